"""What shakes the machine while tests run: a process is stopped, and goes on as it would have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import soak
from soak import stop
from waiting import until

TWO_THREADS = """
import threading, time
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("here", flush=True)
time.sleep(1000)
"""
HOLD = 0.5
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


@pytest.fixture
def running():
    command = [sys.executable, "-c", TWO_THREADS, soak.SPARED]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.fixture
def let_go(running, monkeypatch):
    """Holds the process until it is called, however late that is; it is held when the test begins."""
    told = threading.Event()
    thread = threading.Thread(target=stop, args=(running.pid, HOLD), daemon=True)

    def sleep(seconds: float) -> None:
        told.wait() if seconds == HOLD else time.sleep(seconds)

    def go_on() -> None:
        told.set()
        thread.join()

    monkeypatch.setattr(soak, "time", SimpleNamespace(sleep=sleep))
    thread.start()
    try:
        until(lambda: psutil.Process(running.pid).status() in STOPPED)
        yield go_on
    finally:
        go_on()


def may_trace() -> bool:
    command = [sys.executable, "-c", "import time; time.sleep(10)", soak.SPARED]
    with subprocess.Popen(command) as process:
        try:
            return stop(process.pid, 0) == 1
        finally:
            process.kill()


pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not may_trace(), reason="processes cannot be traced here"
)


def test_all_threads_stop_and_go_on(running, let_go):
    let_go()
    assert psutil.Process(running.pid).status() not in STOPPED
    assert stop(running.pid, 0) == 2


def test_one_that_a_test_stopped_stays_stopped(running):
    os.kill(running.pid, signal.SIGSTOP)
    until(lambda: psutil.Process(running.pid).status() == psutil.STATUS_STOPPED)
    stop(running.pid, 0)
    until(lambda: psutil.Process(running.pid).status() == psutil.STATUS_STOPPED)


def test_one_that_a_test_stops_meanwhile_stays_stopped(running, let_go):
    os.kill(running.pid, signal.SIGSTOP)
    let_go()
    until(lambda: psutil.Process(running.pid).status() == psutil.STATUS_STOPPED)


def test_a_signal_that_comes_meanwhile_is_not_lost(running, let_go):
    os.kill(running.pid, signal.SIGTERM)
    let_go()
    assert running.wait() == -signal.SIGTERM


def test_one_that_is_killed_meanwhile_ends_for_its_parent(running):
    """Or else a test that waits for it waits for ever."""
    code = (
        # Again and again: on a busy machine nobody may look while it is stopped.
        f"import soak, time\nwhile soak.stop({running.pid}, 1): soak.reap()\n"
        "while True: soak.reap(), time.sleep(0.05)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(soak.__file__).parent) as shaking:
        try:
            until(lambda: psutil.Process(running.pid).status() in STOPPED)
            running.kill()
            assert running.wait(30) == -signal.SIGKILL
        finally:
            shaking.kill()


@pytest.mark.parametrize("held", [0, 1], ids=["", "with a thread that is not let go yet"])
def test_one_that_is_killed_before_its_stop_is_noticed_ends_too(running, monkeypatch, held):
    """A main thread is told to have ended once all others are."""
    found, killed = soak._signal_at_stop, []

    def late(thread):
        if not killed:
            until(lambda: psutil.Process(running.pid).status() in STOPPED)
            killed.append(os.kill(running.pid, signal.SIGKILL))
        return found(thread)

    def stopping():
        others = [
            each.id for each in psutil.Process(running.pid).threads() if each.id != running.pid
        ]
        assert all(soak._traced(soak._SEIZE, each) for each in others[:held])
        stop(running.pid, 0)

    monkeypatch.setattr(soak, "_signal_at_stop", late)
    thread = threading.Thread(target=stopping, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def test_one_that_has_ended_is_nobody():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert stop(process.pid, 0) == 0


def test_one_that_is_killed_when_another_thread_of_it_is_known_to_have_stopped(
    running, monkeypatch
):
    """Its main thread is told to have ended once the other is, whose stop was told before."""
    found, killed = soak._signal_at_stop, []

    def late(thread):
        if not killed and thread == running.pid:
            return None
        if (number := found(thread)) is not None and not killed:
            killed.append(os.kill(running.pid, signal.SIGKILL))
        return number

    monkeypatch.setattr(soak, "_signal_at_stop", late)
    thread = threading.Thread(target=stop, args=(running.pid, 0), daemon=True)
    thread.start()
    thread.join(8)
    assert not thread.is_alive()


SANDBOXED = """
import ctypes, sys
allow = (ctypes.c_uint64 * 1)(0x7FFF0000 << 32 | 0x06)  # one instruction: return "allow"
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(1, ctypes.addressof(allow))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0  # seccomp
print("in", flush=True)
sys.stdin.read()
"""


def test_one_in_a_sandbox_is_left_alone(running):
    """OpenSSH's knows no call that goes on with a wait: a login whose process was stopped ended."""
    command = [sys.executable, "-c", SANDBOXED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as inside:
        assert inside.stdout is not None and inside.stdout.readline() == b"in\n"
        with subprocess.Popen(["sleep", "60"]) as another:
            found = soak.stoppable(os.getpid(), set())
            another.kill()
        assert another.pid in found
        assert inside.pid not in found
        assert running.pid not in found, "only one can trace it, and this test does"


def test_one_that_may_not_be_held_is_not_waited_for(running, monkeypatch):
    monkeypatch.setattr(soak, "_traced", lambda *_: False)
    thread = threading.Thread(target=stop, args=(running.pid, 0), daemon=True)
    thread.start()
    thread.join(8)
    assert not thread.is_alive()
