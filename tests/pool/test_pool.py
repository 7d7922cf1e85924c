"""A real pool in this process, without a notebook: runs, interrupts at any moment, and the end."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from pools import paused, request, values
from waiting import until

from skyward_nb.pickling.payload import unpack
from skyward_nb.pool import registry
from skyward_nb.protocol.commands import Kill
from skyward_nb.protocol.events import NotKilled, Output, Phase, RankDone
from skyward_nb.words.errors import PoolError, StartError


def test_a_pool_opens_and_closes_without_a_trace(make):
    process = psutil.Process()
    make().close()  # what is made once for all pools is made now
    gc.collect()  # what tests before have left to it
    before = process.num_fds(), process.num_threads()
    for _ in range(3):
        pool = make()
        assert values(pool, "1 + 1") == [2, 2]
        pool.close()
        pool.close()
    # Threads and descriptors of tests before may still go.
    until(lambda: process.num_fds() <= before[0] and process.num_threads() <= before[1])


def test_questions_of_ranks_are_no_sign_of_a_silent_machine(lend):
    """Whoever answers them listens anew each time."""
    lines = lend().lines
    heard = [link.heard - 100 for link in lines.links]
    for link, at in zip(lines.links, heard, strict=True):
        link.heard = at
    for _ in range(3):
        lines.next(0)
        lines.begin_listening()
    assert all(link.heard < at + 50 for link, at in zip(lines.links, heard, strict=True))


def test_a_pause_between_cells_is_no_silence_of_machines(lend):
    pool, told = lend(), []
    cell = request(pool, "5")
    for begin in (pool.look, lambda watch: pool.run(cell, watch)):
        paused(pool, 3600)
        begin(told.append)
        assert not pool.lines.is_cut
    assert not [each for each in told if isinstance(each, Phase)]


@pytest.mark.extensive
def test_forty_generations(make):
    pool = make()
    for generation in range(2, 42):
        pool.restart(lambda _: None)
        assert pool.generation == generation
    assert values(pool, "__import__('skyward_nb').instance_info().generation") == [41, 41]


def test_a_death_told_in_one_breath_with_the_end_of_a_run_is_not_lost(lend):
    pool = lend()
    slow = iter([True])

    def slowly(event):
        if isinstance(event, Output) and next(slow, False):
            until(lambda: (now := registry.condition(pool.entry)) and now.running == ())
            os.kill(pool.pids[0], signal.SIGKILL)
            until(lambda: 0 not in registry.condition(pool.entry).ranks)

    pool.run(request(pool, "print('begun')"), slowly)
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, "'alive'"), lambda _: None)
    assert len(outcome.done) == 2
    assert list(outcome.lost_before) == [0]


def test_a_run_on_a_rank_that_is_gone_ends_also_when_nobody_looked(lend):
    pool = lend()
    os.kill(pool.pids[1], signal.SIGKILL)
    time.sleep(0.3)
    outcome = pool.run(request(pool, "1"), lambda _: None)
    assert list(outcome.lost) == [1]
    assert values(pool, "'alive'") == ["alive", "alive"]


def test_many_ranks(make):
    pool = make(nodes=8, ranks_per_node=16)
    info = "i = __import__('skyward_nb').instance_info()\n(i.node, i.worker, i.rank)"
    assert values(pool, info) == [(rank // 16, rank % 16, rank) for rank in range(128)]


def test_the_agent_killed_is_told_and_nothing_is_left(lend):
    pool = lend()
    pids = values(pool, "__import__('os').getppid()")
    forge = psutil.Process(pids[0])
    forge.parent().kill()
    with pytest.raises(PoolError, match="is gone"):
        pool.run(request(pool, "1"), lambda _: None)
    assert pool.closed


def test_the_forge_killed_is_told_and_nothing_is_left(lend):
    pool = lend()
    psutil.Process(values(pool, "__import__('os').getppid()")[0]).kill()
    time.sleep(0.3)
    with pytest.raises(PoolError, match="its forge ended"):
        pool.run(request(pool, "1"), lambda _: None)


def test_interrupts_that_come_at_any_moment(lend):
    """Never a hang, never a torn frame, never an interrupt that hits the next run."""
    pool = lend()
    dice = random.Random(5)
    seen = {True: 0, False: 0}
    for turn in range(60):
        lines = dice.choice([0, 10, 2000, 20_000])
        timer = threading.Timer(dice.random() * 0.03, os.kill, (os.getpid(), signal.SIGINT))
        told, begins_late = [], turn % 2

        def watch(event, timer=timer, told=told, begins_late=begins_late):
            # However busy the machine, some interrupts come while it runs.
            if begins_late and not told:
                timer.start()
            told.append(event)

        try:
            if not begins_late:
                timer.start()
            outcome = pool.run(request(pool, f"for i in range({lines}): print('line', i)"), watch)
            assert not begins_late or told
            assert not outcome.lost
            seen[outcome.interrupted] += 1
        except KeyboardInterrupt:
            pass  # it came just before or after the run
        finally:
            try:
                timer.join()
                time.sleep(0.001)
            except KeyboardInterrupt:
                pass
        text = "".join(e.text for e in told if isinstance(e, Output) and e.rank == 1)
        whole = text.splitlines()[:-1]
        assert whole == [f"line {i}" for i in range(len(whole))]
        assert values(pool, "'fine'") == ["fine", "fine"]
    assert seen[True] > 5


def test_output_is_never_lost_however_slowly_it_is_read(lend):
    pool = lend()
    count = {0: 0, 1: 0}

    def slowly(event):
        if isinstance(event, Output):
            count[event.rank] += event.text.count("\n")
            time.sleep(0.002)

    outcome = pool.run(request(pool, "for i in range(200_000): print('line', i)"), slowly)
    assert not outcome.failed
    assert count == {0: 200_000, 1: 200_000}


def test_the_reserved_port_is_free_for_the_users_own_rendezvous(lend):
    pool = lend()
    bind = (
        "import os, socket\ns = socket.socket()\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "s.bind(('127.0.0.1', int(os.environ['MASTER_PORT'])))\ns.listen()\n'bound'"
    )
    outcome = pool.run(request(pool, bind, ranks=(0,)), lambda _: None)
    assert unpack(outcome.done[0].value, pool.store) == "bound"


def test_nothing_listens_beyond_this_machine(lend):
    pool = lend()
    pids = values(pool, "__import__('os').getpid()")
    everyone = [psutil.Process(pid) for pid in pids]
    everyone += [everyone[0].parent(), everyone[0].parent().parent()]
    for process in everyone:
        for connection in process.net_connections("inet"):
            assert connection.laddr.ip.startswith("127."), connection


def test_a_broken_start_is_told_with_its_reason(make, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(StartError, match="agent ended before it was ready"):
        make()


def test_a_client_that_speaks_nonsense_is_hung_up_on_and_may_come_again(lend):
    pool = lend()
    pool.lines.links[0]._socket.sendall(b"\x00\x00\x00\x03abc")
    assert values(pool, "1") == [1, 1]


def test_the_next_start_sweeps_what_a_killed_agent_left(make, runtime_dir):
    pool = make()
    (runtime_dir / "dead-000000").mkdir()
    (runtime_dir / "dead-000000" / "lock").touch()
    make(name="second")
    assert not (runtime_dir / "dead-000000").exists()
    assert values(pool, "1") == [1, 1], "the living are left alone"


def test_processes_of_a_pool_are_told_apart_by_their_names(lend):
    pool = lend()
    name = "open('/proc/{}/comm').read().strip()"
    parent = "__import__('os').getppid()"
    assert values(pool, name.format("self")) == ["sky-rank-0", "sky-rank-1"]
    (forge, _) = values(pool, parent)
    assert Path(f"/proc/{forge}/comm").read_text() == "sky-forge\n"
    assert Path(f"/proc/{psutil.Process(forge).ppid()}/comm").read_text() == "sky-agent\n"


def test_everything_of_a_pool_has_no_terminal_of_ours(lend):
    pool = lend()
    for pid in values(pool, "__import__('os').getpid()"):
        assert os.getsid(pid) == pid


def test_a_rank_that_has_ended_a_run_is_not_killed_for_it(lend, tmp_path):
    pool = lend()
    pids = dict(pool.pids)
    path = tmp_path / "end"
    body = f"import os, time\nwhile os.environ['RANK'] == '0' and not os.path.exists({str(path)!r}):\n    time.sleep(0.01)"
    run = pool.begin(request(pool, body), lambda _: None)
    heard = []

    def has_come(kind):
        return lambda: any(isinstance(each, kind) for each in heard)

    for kind, ranks in ((RankDone, (1,)), (NotKilled, ())):
        pool.runs.await_any((run,), lambda _, event: heard.append(event), has_come(kind))
        if ranks:
            pool.lines.send(Kill(ranks, run.number))
    path.touch()
    outcome = pool.finish(run, heard.append)
    assert not outcome.lost
    assert sorted(outcome.done) == [0, 1]
    assert pool.pids == pids


FEW = """
import sys
sys.path[:0] = {paths}
from pools import start, values
pool = start(nodes=2)
assert values(pool, "import os; os.system('true')") == [0, 0]
pool.close()
"""


def test_a_pool_where_few_files_may_be_open(no_leaks):
    """As on hosts whose administrator has set it so."""
    script = FEW.format(paths=[path for path in sys.path if path])
    command = ["/bin/sh", "-c", 'ulimit -n 64; exec "$@"', "sh", sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_pool_ends_whoever_fails_to_hear_of_it(make, no_leaks):
    pool = make(nodes=1)
    called = []

    def fails():
        raise ZeroDivisionError

    pool.closing.before_close += [fails, lambda: called.append(pool)]
    with pytest.raises(ZeroDivisionError):
        pool.close()
    assert called and pool.closed
    assert pool.pool_id not in {each.pool_id for each in registry.entries()}
