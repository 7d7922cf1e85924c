"""How ranks die: each way is told from the others, and memory that ran out by its evidence."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from faults.hands import agent_of
from pools import KILLED, request
from waiting import until

from skyward_nb.node import exit_causes
from skyward_nb.node.exit_causes import HUNG_UP, ExitCauses
from skyward_nb.pickling.payload import unpack
from skyward_nb.protocol.commands import Sample
from skyward_nb.protocol.events import Telemetry

OUTSIDE = "killed by SIGKILL (from outside; no sign of memory running out)"


def run(pool, body):
    return pool.run(request(pool, body), lambda _: None)


@pytest.fixture
def pool(lend):
    return lend()


def death(pool, body):
    """How rank 1 ended that ran this, while rank 0 waited."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    body = f"import os, time\nif os.environ['RANK'] == '1':\n{lines}\ntime.sleep(1)"
    outcome = run(pool, body)
    assert list(outcome.lost) == [1]
    return outcome.lost[1].how


# ── real deaths ─────────────────────────────────────────────────────────────────────────


def test_each_way_to_die_is_told_from_the_others(pool):
    ways = {
        "os._exit(3)": "exited with code 3",
        "os._exit(0)": "exited with code 0",
        "import threading\nthreading.Timer(0.1, os._exit, (4,)).start()\ntime.sleep(9)": (
            "exited with code 4"
        ),
        "import ctypes\nctypes.CDLL(None).exit(5)": "exited with code 5",
        "import ctypes\nctypes.string_at(0)": "crashed: SIGSEGV, a memory fault in native code",
        "os.abort()": "crashed: SIGABRT, native code called abort()",
        "import signal\nos.kill(os.getpid(), signal.SIGFPE)": "crashed: SIGFPE, an arithmetic",
        "import signal\nos.kill(os.getpid(), signal.SIGILL)": "crashed: SIGILL, native code made",
        "import signal\nos.kill(os.getpid(), signal.SIGTERM)": "killed by SIGTERM",
        "os.closerange(3, 10_000)\ntime.sleep(9)": HUNG_UP,
        "os.closerange(0, 10_000)": HUNG_UP,
        "import resource, signal\nsignal.signal(signal.SIGXCPU, signal.SIG_DFL)\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (0, -1))\nwhile True: pass": (
            "killed by SIGXCPU: the CPU time"
        ),
        "import mmap, tempfile\nfile = tempfile.TemporaryFile()\nfile.truncate(8192)\n"
        "view = mmap.mmap(file.fileno(), 8192)\nfile.truncate(0)\nview[5000]": (
            "crashed: SIGBUS, a fault on mapped memory"
        ),
    }
    told = {body: death(pool, body) for body in ways}
    wrong = {body: how for body, how in told.items() if not how.startswith(ways[body])}
    assert not wrong
    assert re.fullmatch(KILLED, death(pool, "import signal\nos.kill(os.getpid(), signal.SIGKILL)"))


def test_a_rank_that_closed_its_connection_is_told_so_by_an_agent_that_looks_late(pool):
    agent = psutil.Process(agent_of(pool))

    def go_on_late():
        until(lambda: agent.status() == psutil.STATUS_STOPPED)
        time.sleep(0.5)
        agent.resume()

    late = threading.Thread(target=go_on_late)
    late.start()
    body = f"os.kill({agent.pid}, 19)\nos.closerange(3, 10_000)\nraise SystemExit"
    assert death(pool, body) == HUNG_UP
    late.join()


FAULT = "crashed: SIGSEGV, a memory fault in native code"


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGTERM])
def test_what_native_code_said_when_it_gave_up_tells_how(number):
    """It is on its way to abort, and may meet with something else there."""
    told = ExitCauses()
    assert told.how(0, -number, asked=False, said="ended by JAX") == "ended by JAX"
    assert told.told(0) == "ended by JAX"


def test_a_rank_that_said_nothing_or_was_ended_here_is_told_by_its_signal():
    told = ExitCauses()
    assert told.how(0, -signal.SIGSEGV, asked=False) == FAULT
    assert told.how(1, -signal.SIGKILL, asked=True, said="ended by JAX") == "killed by SIGKILL"
    assert told.how(2, 3, asked=False, said="ended by JAX") == "exited with code 3"


def test_a_fault_of_what_writes_where_a_rank_gave_up_is_not_how_it_ended():
    aborted = "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File "
    fault = "Fatal Python error: Segmentation fault\n\n"
    told = ExitCauses()
    gave_up = told.how(0, -signal.SIGSEGV, asked=False, crash=aborted + fault)
    assert gave_up == "crashed: SIGABRT, native code called abort()"
    assert told.how(1, -signal.SIGSEGV, asked=False, crash=fault) == FAULT
    assert told.how(2, -signal.SIGTERM, asked=False, crash=aborted) == "killed by SIGTERM"


def test_a_rank_killed_between_cells_is_told(pool):
    os.kill(pool.pids[1], signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pool.pids[1]))
    outcome = run(pool, "1")
    assert re.fullmatch(KILLED, {**outcome.lost, **outcome.lost_before}[1].how)


@pytest.fixture
def small_group():
    """A control group of little memory, and the file that takes processes into it."""
    if os.getuid() != 0:
        pytest.skip("only root makes control groups")
    made = None
    try:
        own = exit_causes.control_groups(os.getpid())
        if not own and (Path("/sys/fs/cgroup") / "cgroup.controllers").exists():
            own = (Path("/sys/fs/cgroup/memory.events"),)  # the outermost one counts nothing
        if not own:
            pytest.skip("no control group of memory is mounted here")
        made = own[0].parent / f"sky-test-{os.getpid()}"
        made.mkdir()
        limit = next(
            (
                made / name
                for name in ("memory.max", "memory.limit_in_bytes")
                if (made / name).exists()
            ),
            None,
        )
        if limit is None:
            pytest.skip("no limit of memory can be set in a control group made here")
        limit.write_text(str(300 << 20))
        for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
            if (made / swap).exists():
                (made / swap).write_text("0" if swap.endswith("swap.max") else str(300 << 20))
    except OSError as error:
        if made is not None and made.exists():
            made.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield made
    until(lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


def test_memory_that_ran_out_is_told_with_its_evidence(small_group, make):
    pool = make()  # which ends with the group
    outcome = run(pool, "__import__('os').getppid()")
    forge = unpack(outcome.done[0].value, pool.store)
    (small_group / "cgroup.procs").write_text(str(forge))
    pool.restart(lambda _: None)
    grow = "import os, time\nheld = bytearray(40 << 20)\nheld[::4096] = bytes(len(held[::4096]))"
    assert not run(pool, grow).failed
    sampled = []
    pool.lines.send(Sample())

    def has_come():
        pool.look(sampled.append)
        return any(isinstance(each, Telemetry) for each in sampled)

    until(has_come)
    how = death(pool, "more = bytearray(600 << 20)\nmore[::4096] = b'1' * len(more[::4096])")
    told, held, size = how.partition("; it held ")
    assert told == ("killed by SIGKILL: memory ran out (oom_kill of its control group rose by 1)")
    assert held
    assert size.endswith(" MB")
    assert 40 < float(size.split()[0]) < 300
    # What killed one rank is no evidence for the next one.
    assert re.fullmatch(KILLED, death(pool, "import signal\nos.kill(os.getpid(), signal.SIGKILL)"))


# ── what is remembered, and when ────────────────────────────────────────────────────────


class Kernel:
    """Counters of control groups in files, as the kernel keeps them."""

    def __init__(self, folder, monkeypatch):
        self.own = folder / "pods" / "mine" / "memory.events"
        self.around = folder / "pods" / "memory.events"
        self.machine = folder / "vmstat"
        self.own.parent.mkdir(parents=True)
        self.now = 0.0
        self.set(0, 0, 0)
        monkeypatch.setattr(exit_causes, "_MACHINE", self.machine)
        monkeypatch.setattr(exit_causes, "control_groups", lambda pid: (self.own, self.around))

    def set(self, own, around, machine):
        self.own.write_text(f"low 0\noom 9\noom_kill {own}\n")
        self.around.write_text(f"oom 9\noom_kill {around}\noom_group_kill 7\n")
        self.machine.write_text(f"pgfault 8\noom_kill {machine}\n")


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    return Kernel(tmp_path, monkeypatch)


def killed(watch, rank=0, asked=False):
    return watch.how(rank, -signal.SIGKILL, asked=asked)


def test_a_counter_that_rose_is_evidence_once(kernel):
    kernel.set(4, 5, 6)
    watch = ExitCauses(lambda: kernel.now)
    for rank in range(3):
        watch.born(rank, 1)
    watch.saw(0, 3_100_000_000)
    watch.saw(0, 0)  # a sample taken while it was ending
    kernel.set(5, 6, 7)
    assert killed(watch, 0) == (
        "killed by SIGKILL: memory ran out (oom_kill of its control group rose by 1); it held 3.1 GB"
    )
    assert killed(watch, 1) == OUTSIDE
    kernel.set(6, 7, 8)
    assert "rose by 1)" in killed(watch, 2)


def test_what_rose_around_a_rank_is_less_of_an_evidence(kernel):
    watch = ExitCauses(lambda: kernel.now)
    watch.born(0, 1)
    watch.born(1, 1)
    kernel.set(0, 0, 1)
    assert killed(watch, 0) == (
        "killed by SIGKILL, perhaps because memory ran out: oom_kill of this machine rose by 1, "
        "that of its own control group did not"
    )
    kernel.set(0, 1, 2)
    assert "oom_kill of a control group around its own rose by 1" in killed(watch, 1)


def test_where_no_group_can_be_read_the_machine_is_the_evidence(kernel, monkeypatch):
    monkeypatch.setattr(exit_causes, "control_groups", lambda pid: ())
    watch = ExitCauses(lambda: kernel.now)
    watch.born(0, 1)
    kernel.set(0, 0, 1)
    assert killed(watch) == (
        "killed by SIGKILL: memory ran out (oom_kill of this machine rose by 1)"
    )


def test_what_rose_long_before_is_no_evidence(kernel):
    watch = ExitCauses(lambda: kernel.now)
    watch.born(0, 1)
    kernel.set(1, 1, 1)  # a worker of the rank, say
    for _ in range(3):
        kernel.now += 1
        watch.look()
    assert killed(watch) == OUTSIDE


def test_a_look_between_a_kill_and_its_death_hides_nothing(kernel):
    watch = ExitCauses(lambda: kernel.now)
    watch.born(0, 1)
    for _ in range(3):
        kernel.now += 1
        watch.look()
    kernel.set(1, 1, 1)
    kernel.now += 1
    watch.look()
    assert "memory ran out" in killed(watch)


def test_what_we_asked_for_needs_no_evidence(kernel):
    watch = ExitCauses(lambda: kernel.now)
    watch.born(0, 1)
    kernel.set(1, 1, 1)
    assert killed(watch, asked=True) == "killed by SIGKILL"
    assert watch.how(7, -64, asked=False) == "killed by SIGRTMAX"
    assert watch.how(7, -50, asked=False) == "killed by signal 50"


def test_a_connection_that_a_dying_rank_closed_was_not_closed_on_purpose():
    watch = ExitCauses()
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    watch.born(0, child.pid)
    watch.hung_up(0)
    assert killed(watch).startswith("killed by SIGKILL")
    child.wait()


@pytest.mark.parametrize(
    ("root", "path", "inner"),
    [
        ("/", "/a/b", "a/b"),
        ("/docker/1", "/docker/1", ""),
        ("/docker/1", "/docker/1/x", "x"),
        ("/docker/1", "/docker/12", "docker/12"),
        ("/", "/../..", ""),
        ("/", "/", ""),
    ],
)
def test_a_group_is_found_below_what_is_mounted(root, path, inner):
    assert exit_causes._below(root, path) == inner
