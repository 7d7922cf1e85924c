"""Looks at the frames of other threads: no garbage is collected meanwhile where that would end the process."""

from __future__ import annotations

import gc
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from skyward_nb.node import control_thread
from skyward_nb.node.collective_waits import CollectiveWaits
from skyward_nb.node.control_thread import ControlThread
from skyward_nb.plugins import tensorflow_plugin
from skyward_nb.system import thread_frames
from skyward_nb.system.thread_frames import looking

ON_FRAMES = "frames_below", "frames_of_thread", "_stack", "_where", "_frame"
"""Functions within which the objects of frames are made."""


class Garbage:
    """A cycle, such as a dead model; each that is collected leaves another one, and notes where that was."""

    def __init__(self, seen):
        self.own, self.seen = self, seen

    def __del__(self):
        self.seen.append(sys._getframe(1).f_code.co_name)
        if len(self.seen) < 10_000:
            Garbage(self.seen)


@pytest.fixture
def seen():
    """Where garbage is collected, which is wherever an object is made."""
    found, before = [], gc.get_threshold()
    gc.set_threshold(1)
    Garbage(found)
    yield found
    gc.set_threshold(*before)
    found += [""] * 10_000
    gc.collect()


@pytest.fixture
def sleeper():
    """A thread that sleeps some functions deep: its number, and the file that tells its state."""
    there, go = threading.Event(), threading.Event()

    def deep(n):
        if n:
            deep(n - 1)
        else:
            there.set()
            go.wait()

    thread = threading.Thread(target=deep, args=(20,))
    thread.start()
    there.wait()
    state = os.open(f"/proc/self/task/{thread.native_id}/stat", os.O_RDONLY)
    yield SimpleNamespace(_main=thread.ident, _state=state)
    os.close(state)
    go.set()
    thread.join()


LOOKS = {
    "waits": CollectiveWaits._waits_in,
    "a cut": lambda own: ControlThread._waits_in(with_methods(own)),
    "a stay": lambda own: ControlThread._stays(with_methods(own)),
    "other threads": lambda own: ControlThread._other_threads(SimpleNamespace(_main=0)),
    "tensorflow": lambda own: tensorflow_plugin._some_thread_waits(),
}


def with_methods(own):
    own._frame = lambda: ControlThread._frame(own)
    return own


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="collects between instructions alone")
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_no_garbage_is_collected_within_a_look(monkeypatch, seen, sleeper, look):
    monkeypatch.setattr(control_thread, "_LISTENING", ())  # else one look at the sleeper is enough
    look(sleeper)
    assert seen and not set(ON_FRAMES) & set(seen)


@pytest.mark.parametrize("collects", [True, False])
def test_collections_are_as_they_were_afterwards(collects):
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with looking(), looking():
            assert gc.isenabled() is (collects and sys.version_info >= (3, 12))
        assert gc.isenabled() is collects
        with pytest.raises(KeyError), looking():
            raise KeyError
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


def test_a_child_that_is_forked_meanwhile_collects():
    with looking():
        pid = os.fork()
        if pid == 0:
            os._exit(0 if gc.isenabled() and not thread_frames._inside else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
