"""Where the threads of a rank are, asked from outside: whatever the rank does, and if it is stopped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from leaks import gone_within, leaves_nothing, traces
from node.drivers import driver
from waiting import until

from skyward_nb.hangs.stacks import threads
from skyward_nb.node.stack_pipe import STACK_SIGNAL
from skyward_nb.protocol.commands import Inspect
from skyward_nb.protocol.events import RankLost, Stack


@pytest.fixture(scope="module")
def two():
    with leaves_nothing(), driver(2) as made:
        yield made


def test_idle_ranks(two):
    # Whoever has said that it is ready may still be in the call that said so.
    until(lambda: all("mailbox.py" in text for text in two.stacks()))
    for text in two.stacks():
        (main,) = threads(text)
        assert main.is_main
        assert main.frames[0].file.endswith("mailbox.py")
        assert not any(spot.file.startswith("<cell") for spot in main.frames)


def test_a_rank_in_native_code_that_holds_the_interpreter(two):
    run = two.start(
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(3,), daemon=True).start()\n"
        "print('here')\n"
        "ctypes.PyDLL(None).usleep(30_000_000)"  # which the signal ends
    )
    two.said(run, "here")
    for text in two.stacks():
        main, *_ = threads(text)  # the others may not be able to say it
        (cell,) = [spot for spot in main.frames if spot.file == f"<cell {run}>"]
        assert cell.function == "<module>"
        assert cell.line in (3, 4)
    assert not any(end.failure for end in two.ended(run))


def test_asked_twice_at_once_it_is_signalled_once(two):
    run = two.start("import time\nprint('here'); time.sleep(0.7)")
    two.said(run, "here")
    since = len(two.events)
    two.link.send_later(Inspect((0,)))
    two.link.send(Inspect((0,)))  # in one piece: else the rank may have answered the first before
    while len(told := [e for e in two.events[since:] if isinstance(e, Stack)]) < 2:
        assert two.hear()
    assert told[0] == told[1]
    assert told[0].text.count("Stack (most recent call first)") == 1
    two.ended(run)


def has_pending(pid, number):
    """Whether a process was sent a signal that it has not received yet."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_a_rank_that_is_stopped_answers_nothing_and_later_again(two):
    os.kill(two.pids[1], signal.SIGSTOP)
    try:
        # Until its last thread stands, that one could still begin to answer.
        states = Path(f"/proc/{two.pids[1]}/task")
        until(lambda: all(") T " in each.read_text() for each in states.glob("*/stat")))
        first, second = two.stacks()
        assert threads(first)
        assert second == ""
    finally:
        os.kill(two.pids[1], signal.SIGCONT)
    until(lambda: not has_pending(two.pids[1], STACK_SIGNAL))
    time.sleep(0.2)  # what it writes now was not asked for any more
    (text,) = two.stacks([1])
    assert text.count("Stack (most recent call first)") == 1


def test_many_threads(two):
    two.ran(
        "import threading\nstop, deep = threading.Event(), threading.Barrier(61)\n"
        "def f(n): f(n - 1) if n else deep.wait() + 1 and stop.wait()\n"
        "for _ in range(60): threading.Thread(target=f, args=(50,), daemon=True).start()\n"
        "deep.wait(); import time; time.sleep(0.1)"
    )

    def deep(text):
        return [thread for thread in threads(text) if len(thread.frames) > 50]

    # Of a rank that stands still meanwhile comes what there is.
    until(lambda: [len(deep(text)) for text in two.stacks()] == [60, 60])
    two.ran("stop.set()")


def test_ranks_that_are_not_there(two):
    assert two.stacks([7]) == [""]


def test_a_crash_says_where():
    before = traces()
    with driver(2) as made:
        run = made.start(
            "import os, signal\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGSEGV)"
        )
        while not any(isinstance(event, RankLost) for event in made.events):
            assert made.hear()
        (lost,) = [event for event in made.events if isinstance(event, RankLost)]
        text = lost.stack
        (main, *_) = threads(text)
        assert text.startswith("Fatal Python error: Segmentation fault")
        assert f"<cell {run}>" in {spot.file for spot in main.frames}
    assert not gone_within(60, before)


def test_nothing_is_left_of_asking(two):
    agent = psutil.Process(two.pids[0]).parent().parent()
    two.stacks()
    before = agent.num_fds()
    for _ in range(20):
        two.stacks()
    until(lambda: agent.num_fds() <= before)


def test_other_threads_are_told_beside_a_main_one_that_waits(two, tmp_path):
    seen = tmp_path / "seen"
    run = two.start(
        "import os, threading, time\nstop = threading.Event()\n"
        "threading.Thread(target=stop.wait).start()\nprint('here')\n"
        f"while not os.path.exists({str(seen)!r}): time.sleep(0.01)\nstop.set()"
    )
    two.said(run, "here")
    found = []

    def are_told():
        """A rank that is held up may not say in time where its other threads are."""
        found[:] = [threads(text) for text in two.stacks()]
        return all(len(each) > 1 for each in found)

    until(are_told)
    for main, *others in found:  # one of a test before may still end
        assert main.is_main
        assert not any(other.is_main for other in others)
    seen.touch()
    two.ended(run)
