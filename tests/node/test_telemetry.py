"""How ranks are doing: real processes that spend and hold what they are told, a clock that is ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from pools import why_failed
from waiting import until

from skyward_nb.cell.source import compile_cell
from skyward_nb.node.telemetry import CpuTime, RankProcess, Sampler, spent_since
from skyward_nb.pool.outcome import RunRequest
from skyward_nb.protocol.commands import Sample
from skyward_nb.protocol.events import Telemetry

MB = 1_000_000

# Does what it is told line by line; `spin` spends seconds of CPU, however busy the machine is.
PROGRAM = """
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # orphans are its own, as they are a rank's
def spin(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
class Child:
    def __init__(self, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-c", os.environ["PROGRAM"]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options,
        )
    def do(self, line):
        self.process.stdin.write(line + "\\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        assert said == "done\\n", said
for line in sys.stdin:
    try:
        exec(line, globals())
        said = "done"
    except Exception as error:
        said = repr(error)
    print(said, flush=True)
"""


class Rank:
    """A process that leads its session, as ranks do."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PROGRAM": PROGRAM},
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.do("pass")

    def do(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self):
        if self.process.poll() is None:
            for child in psutil.Process(self.pid).children(recursive=True):
                child.kill()
        self.process.kill()
        self.process.communicate()


class Clock:
    """Goes on when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def make_rank():
    ranks = []

    def start():
        ranks.append(Rank())
        return ranks[-1]

    yield start
    for rank in ranks:
        rank.end()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sampler(clock):
    return Sampler(clock)


@pytest.fixture
def look(sampler, clock):
    """Sample ranks `later` seconds later; what is said of each, in order."""

    def sample(*ranks, later=1.0):
        clock.now += later
        subjects = [RankProcess(number, rank.pid) for number, rank in enumerate(ranks)]
        return sampler.sample(subjects)

    return sample


def near(percent):
    return pytest.approx(percent, abs=6)


def test_a_busy_rank_and_an_idle_one(make_rank, look):
    busy, idle = make_rank(), make_rank()
    assert [each.cpu for each in look(busy, idle)] == [None, None]
    busy.do("spin(0.6)")
    assert [each.cpu for each in look(busy, idle)] == [near(60), near(0)]
    assert [each.cpu for each in look(busy, idle)] == [near(0), near(0)]


def test_the_cpu_is_that_of_a_second_however_long_it_is_since(make_rank, look):
    rank = make_rank()
    look(rank)
    rank.do("spin(0.5)")
    assert look(rank, later=2.5)[0].cpu == near(20)


def test_after_a_long_time_it_begins_anew(make_rank, look):
    rank = make_rank()
    look(rank)
    rank.do("spin(0.3)")
    assert look(rank, later=6.0)[0].cpu is None
    rank.do("spin(0.3)")
    assert look(rank)[0].cpu == near(30)


def test_asked_again_at_once_it_says_the_same_and_counts_from_before(make_rank, look):
    rank = make_rank()
    look(rank)
    rank.do("spin(0.3)")
    first = look(rank)[0].cpu
    rank.do("spin(0.3)")
    assert look(rank, later=0.01)[0].cpu == first
    assert look(rank, later=0.99)[0].cpu == near(30)


@pytest.mark.parametrize("options", ["", "start_new_session=True"])
def test_what_descends_from_a_rank_counts_wherever_it_is_and_once(make_rank, look, options):
    rank, other = make_rank(), make_rank()
    rank.do("child = Child()")
    rank.do(f"child.do('child = Child({options}); child.do(\"pass\")')")
    look(rank, other)
    rank.do("child.do('child.do(\"spin(0.5)\")')")
    assert [each.cpu for each in look(rank, other)] == [near(50), near(0)]
    rank.do("child.do('child.do(\"spin(0.2)\")')")
    rank.do("child.do('child.process.communicate()')")
    assert [each.cpu for each in look(rank, other)] == [near(20), near(0)]
    rank.do("child.process.communicate()")
    assert [each.cpu for each in look(rank, other)] == [near(0), near(0)]


def test_a_child_that_came_and_went_between_two_samples_counts(make_rank, look):
    rank = make_rank()
    look(rank)
    rank.do("child = Child(); child.do('spin(0.5)'); child.process.communicate()")
    assert look(rank)[0].cpu > 40, "the kernel counts in hundredths of a second, of each kind"


def test_an_orphan_in_a_session_of_its_own_is_still_its_ranks(make_rank, look):
    rank = make_rank()
    rank.do("read, write = os.pipe()")
    rank.do("done, write_done = os.pipe()")
    spin = "os.read(read, 1), spin(0.5), os.write(write_done, b'.'), time.sleep(60)"
    between = f"(os.setsid(), os.fork() and os._exit(0), {spin}) if not middle else None"
    rank.do(f"middle = os.fork(); {between}; os.waitpid(middle, 0)")
    look(rank)
    rank.do("os.write(write, b'.'); os.read(done, 1)")
    assert look(rank)[0].cpu == near(50)


def test_memory_is_that_of_all_its_processes(make_rank, look):
    rank = make_rank()
    rank.do("child = Child(); child.do('pass')")
    before = look(rank)[0].rss
    rank.do("kept = bytearray(b'1') * 200_000_000")
    more = look(rank)[0].rss
    assert more - before == pytest.approx(200 * MB, rel=0.1)
    rank.do("child.do('kept = bytearray(b\"1\") * 200_000_000')")
    assert look(rank)[0].rss - more == pytest.approx(200 * MB, rel=0.1)


def test_shared_memory_counts_once(make_rank, look):
    rank = make_rank()
    rank.do("import mmap; shared = mmap.mmap(-1, 200_000_000)")
    rank.do("shared.write(b'1' * 200_000_000)")
    rank.do("kept, go = os.pipe()")
    before = look(rank)[0].rss
    touch = "(sum(shared[::4096]), os.write(go, b'.'), time.sleep(60))"
    rank.do(f"{touch} if not os.fork() else os.read(kept, 1)")
    assert look(rank)[0].rss - before < 100 * MB


def test_a_rank_that_ended_is_left_out(make_rank, look):
    alive, dead = make_rank(), make_rank()
    look(alive, dead)
    dead.end()
    assert [each.rank for each in look(alive, dead)] == [0]
    assert look(dead) == []


def test_a_rank_that_came_later_begins_by_itself(make_rank, look):
    first = make_rank()
    look(first)
    second = make_rank()
    assert [each.cpu for each in look(first, second)] == [near(0), None]
    second.do("spin(0.4)")
    assert [each.cpu for each in look(second, first)] == [near(40), near(0)]


@pytest.mark.parametrize(
    ("before", "now", "owed", "seconds", "owes"),
    [
        ({1: CpuTime(1)}, {1: CpuTime(3)}, 0, 2, 0),
        ({1: CpuTime(1)}, {1: CpuTime(1), 2: CpuTime(0.5)}, 0, 0.5, 0),
        # Its parent waited for a child.
        ({1: CpuTime(1), 2: CpuTime(50)}, {1: CpuTime(1, 51)}, 0, 1, 0),
        # Seen gone a moment before its parent has its time, which then is not counted again.
        ({1: CpuTime(1), 2: CpuTime(50)}, {1: CpuTime(2)}, 0, 1, 50),
        ({1: CpuTime(2)}, {1: CpuTime(3, 51)}, 50, 2, 0),
        # Nobody waits for it: what is owed is not owed forever.
        ({1: CpuTime(2)}, {1: CpuTime(3)}, 50, 1, 0),
        ({1: CpuTime(2)}, {1: CpuTime(3, 4)}, 0, 5, 0),
        # A process id that is another's now.
        ({1: CpuTime(9, 9)}, {1: CpuTime(1, 1)}, 0, 0, 0),
    ],
)
def test_seconds_between_two_looks(before, now, owed, seconds, owes):
    assert spent_since(before, now, owed) == (seconds, owes)


# ── through an agent ────────────────────────────────────────────────────────────────────


@pytest.fixture
def pool(lend):
    return lend(grace=1.0)


def told(pool, ranks):
    """Ask once; what is said of each of `ranks`."""
    pool.lines.send(Sample())
    found = {}

    def hear(event):
        if isinstance(event, Telemetry):
            found[event.rank] = event

    def have_come():
        pool.look(hear)
        return ranks <= set(found)

    until(have_come)
    return found


def run(pool, body):
    made = compile_cell(
        "",
        body,
        transform=lambda text: text,
        transform_ast=lambda tree: tree,
        name_file=lambda code, text: "<cell>",
    )
    request = RunRequest(
        cell=made, number=1, namespace={}, ranks=pool.ranks, value_from=(), wants_value=False
    )
    outcome = pool.run(request, lambda _: None)
    assert not outcome.failed, why_failed(outcome)


def test_an_agent_tells_of_its_ranks_when_it_is_asked(pool, monkeypatch):
    monkeypatch.setattr(
        "skyward_nb.pool.run_clock._FIRST_SAMPLE", 60
    )  # the run's own would be between
    begun = time.monotonic()
    first = told(pool, {0, 1})
    assert {rank: each.cpu for rank, each in first.items()} == {0: None, 1: None}
    assert all(each.rss > 10 * MB and each.gpu is None for each in first.values())
    spin = "import time\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass"
    run(pool, spin)
    second = told(pool, {0, 1})
    for _ in range(5):
        if all(each.cpu is not None for each in second.values()):
            break
        # So late after the one before that the agent has begun anew.
        run(pool, spin)
        second = told(pool, {0, 1})
    seconds = time.monotonic() - begun
    assert all(each.cpu / 100 * seconds > 0.25 for each in second.values())


def test_an_agent_tells_of_those_that_live(pool):
    told(pool, {0, 1})
    os.kill(pool.pids[1], signal.SIGKILL)
    until(lambda: set(told(pool, {0})) == {0})
