"""How much of its time a rank waits in collectives of torch: looks at its main thread, now and then.

Ranks of a synchronous loop all step alike: the one that waits least computes longest (`view/slow_ranks` says
which). A collective costs nothing here, as no call is wrapped; a look takes tens of microseconds, twenty times a second,
while a run goes on. What a main thread does in native code tells only torch's on a CPU (gloo, DDP's waits among
them): with NCCL it goes on while the GPU waits, and JAX and TensorFlow wait alike for what they compute; there
nothing is told. Nor is it where ranks differ by design: of waits for one rank's message, or at a barrier.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType

from skyward_nb.compat.torch_private import groups
from skyward_nb.node.rank_frameworks import RankFrameworks
from skyward_nb.plugins.collectives import NamedFrame, called_at, frames_below, waits_in
from skyward_nb.protocol.events import Event, Waited
from skyward_nb.system.thread_frames import looking
from skyward_nb.words.profile import MOST_ONE_SIDED, OF_ALL

_EVERY = 0.05
"""Seconds from one look to the next, if Python lets other threads run."""
_WINDOW = 0.5
_LEAST_BEGUN, _LEAST_LOOKS = 4, 4
_MOST_FRAMES = 60


class Window:
    """Looks at a rank since `began`, when it had begun so many collectives. Pure."""

    def __init__(self, began: float, begun: int) -> None:
        self._began = self._seen = began
        self._begun = begun
        self._looks = 0
        self._waits = self._one_sided = 0.0

    def look(self, now: float, waits_in: str) -> None:
        """It was seen to wait in this collective; "" where it was not.

        A look that comes late was kept waiting by code that holds the interpreter, and so computes.
        """
        seconds = min(_EVERY, now - self._seen)
        self._seen = now
        self._looks += 1
        if waits_in.startswith(OF_ALL):
            self._waits += seconds
        elif waits_in:
            self._one_sided += seconds

    def is_void(self, begun: int) -> bool:
        """Whether collectives are counted anew since: the run left its group, and joined another one."""
        return begun < self._begun

    def is_over(self, begun: int) -> bool:
        """Whether it is long enough: steps may be longer than a window."""
        long_enough = self._seen - self._began >= _WINDOW and self._looks >= _LEAST_LOOKS
        return long_enough and begun - self._begun >= _LEAST_BEGUN

    def share(self) -> float | None:
        """The share of its time in which the rank waited; None where ranks differ by design."""
        seconds = self._seen - self._began
        return None if self._one_sided > MOST_ONE_SIDED * seconds else self._waits / seconds


class CollectiveWaits:
    """Tells how much of a run's time this rank waits in collectives: `Waited`, about twice a second."""

    def __init__(
        self, rank: int, frameworks: RankFrameworks, emit: Callable[[Event], None]
    ) -> None:
        self._rank = rank
        self._frameworks = frameworks
        self._emit = emit
        self._run = 0
        self._going = threading.Event()
        self._main = threading.main_thread().ident or 0
        self._state = -1
        self._thread: threading.Thread | None = None

    def begin(self, run: int) -> None:
        """The main thread is in this run from now on."""
        names = [plugin.name for plugin in self._frameworks.plugins]
        if "torch" not in names or any("nccl" in backend for _, backend in groups()):
            return
        if self._thread is None:
            try:
                # The main thread has the process's number; Python may not know that of a fork's.
                self._state = os.open(f"/proc/self/task/{os.getpid()}/stat", os.O_RDONLY)
            except OSError:  # not on Linux
                return
            self._thread = threading.Thread(target=self._serve, name="skyward-waits", daemon=True)
            self._thread.start()
        self._run = run
        self._going.set()

    def end(self) -> None:
        """The main thread is in no run."""
        self._going.clear()

    def _serve(self) -> None:
        # Signals are the main thread's, which sleeps on if another one takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._going.wait()
            time.sleep(_EVERY)  # most cells are over by then: they are not to share the interpreter
            run = self._run
            window = Window(time.monotonic(), self._begun())
            while self._going.is_set() and run == self._run:
                time.sleep(_EVERY)
                waits_in = self._waits_in()
                now = time.monotonic()
                window.look(now, waits_in)
                begun = self._begun()
                if window.is_void(begun):
                    window = Window(now, begun)
                elif window.is_over(begun):
                    if (share := window.share()) is not None:
                        self._emit(Waited(self._rank, share, run))
                    window = Window(now, begun)

    def _begun(self) -> int:
        steps = (each.steps("") for each in self._frameworks.plugins if each.name == "torch")
        return sum(count for each in steps for count in each.values())

    def _waits_in(self) -> str:
        """The collective that the main thread sleeps in: one that computes, or would if it could, does not."""
        if os.pread(self._state, 512, 0).rpartition(b") ")[2][:1] != b"S":
            return ""
        with looking():
            frames = tuple(_frames(sys._current_frames().get(self._main)))
        return _known(frames)


def _frames(frame: FrameType | None) -> Iterator[NamedFrame]:
    """As `frames_of_thread`, which examines code, and the thread's variables, each time."""
    called = "" if frame is None else _called(frame.f_code, frame.f_lasti)
    return frames_below(called, frame, _MOST_FRAMES)


# A loop is seen at the same few places again and again.
_known = functools.lru_cache(maxsize=256)(waits_in)


@functools.lru_cache(maxsize=256)
def _called(code: CodeType, at: int) -> str:
    return called_at(code, at)
