"""Where all ranks of a training stop when it is interrupted: before the same backward pass.

An interrupt reaches ranks at different moments. If each raised where it is, one might have made
`optimizer.step()` of a step and another not: weights, schedules and counters of ranks would differ from
then on, and nothing would say so. So, in a run whose ranks step optimizers:

1. Each rank counts the steps that it has begun, in hooks that torch calls around each of them.
2. An interrupt comes by two ways: to the main thread, by a signal, which raises nothing yet; and to the control
   thread, which reads the count even while the main thread waits in a collective. A helper thread tells the
   count to the other ranks, and reads theirs.
3. From the same counts all ranks decide the same (`decide`): to make step max + 1 still. All can, since all take
   part. Each raises KeyboardInterrupt as it begins its next backward pass: at one place of the program
   on all ranks, where schedules, counters, gradients and scalers are done with the step. Nothing is
   cut, no step is lost. (Within `optimizer.step()`, or just after it, `GradScaler` and schedules would be half-done.)
4. Ranks that do not train, or whose steps take longer than there is time, raise at once. Where the
   agreement takes too long, as when one of them hangs, ranks raise where they are, and what waits in a
   collective is cut. `plugins/torch_kept` finds out then whether they had made the same steps.

An optimizer's step that has begun is made whole in any case, if it takes no more than a second; one that takes longer `is_torn`,
and models are made as on a rank where none is.

On a GPU a step is called before its gradients are there: a collective that is cut then leaves it with a part of them,
and nothing raises. Such steps are counted (`partial_steps`), by the times at which steps ended and the collective was called.

What the main thread does here between two bytecodes may be interrupted by its own signal handler: that
one takes no lock, and only sets attributes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from types import CodeType
from typing import Protocol

import msgspec

from skyward_nb.words.decoding import from_json

_LOOKS, _BETWEEN_LOOKS = 20, 0.05
"""Looks at an optimizer's step for whose end an interrupt waits, and the seconds between.

Looks are counted, not time: a process that was stopped has stepped nothing meanwhile.
"""
_MET = 0.25
"""The part of the patience in which the counts of all ranks must be known."""
_TICK = 0.005
_AHEAD = 256
"""The most steps that a program is ahead of its GPU: a step calls several of the 1,024 kernels that may wait there."""


class StepReport(msgspec.Struct, frozen=True):
    """The optimizer steps that a rank has `begun` in a run, and the seconds `since` the last one, or the run, began.

    `pace` is the time from one to the next, in this run or an earlier one; 0 if there were not two.
    """

    begun: int
    since: float = 0.0
    pace: float = 0.0


def decide(reports: Sequence[StepReport], seconds: float) -> int | None:
    """The last step that all ranks make, by the reports of all; None: they stop at once.

    The same on all ranks that have the same reports. `seconds` are left to get there.
    """
    newest = max(report.begun for report in reports)
    pace = max(report.pace for report in reports)
    if not newest and not pace:
        return None  # nobody has ever trained here
    together = all(report.begun == newest for report in reports)
    # After a single step nobody knows how long one takes.
    pace = pace or seconds / 4
    since = min(report.since for report in reports)
    if together and since > 4 * pace + 0.1:
        return None  # the training is over, or hangs
    if pace > seconds / 2:
        return None if together else newest
    return newest + 1


class Exchange(Protocol):
    """Where all ranks meet; callable from any thread."""

    def __call__(self, key: str, own: bytes, seconds: float) -> list[bytes] | None:
        """Tell all a text under a key; those of all by rank, or None if one is late."""
        ...


class _Phase(Enum):
    OPEN = "steps are counted"
    MEETING = "the common step is being agreed on"
    AGREED = "ranks make the last step"
    RELEASED = "interrupts raise at once"


class CommonStep:
    """The steps of one process's run, and the end that its ranks agree on."""

    def __init__(self) -> None:
        self._exchange: Exchange | None = None
        self._watch_backward: Callable[[bool], None] = lambda _: None
        self._main = 0
        self.run: int = 0
        """The last run that began: the counts are of it."""
        self.left_in: str = ""
        """The collective in which that run was stopped, as `plugins/collectives` names it; or ""."""
        self._run: int | None = None
        self._usual = 0.0
        """The pace of the last run that had one."""
        self._turn = threading.Lock()
        """Held where a run begins or ends, and where other threads change its phase: one may come back late."""
        self._early: tuple[int, float, Callable[[], None]] | None = None
        """An interrupt of a run that has not begun here."""
        self._reset()

    def _reset(self) -> None:
        self.begun: int = 0
        self.ended: int = 0
        self._ended_at: deque[int] = deque(maxlen=_AHEAD)
        self._cut_since: int | None = None
        self._at = self._pace = 0.0
        self._phase = _Phase.OPEN
        self._last = 0
        self._step: CodeType | None = None
        """The code of the function that calls the hooks, while it makes a step."""
        self._is_late = self._was_torn = False
        self._raise: Callable[[], None] | None = None
        """Raises the interrupt that waits."""
        self._decided = threading.Event()
        self._reached = threading.Event()
        self._until = 0.0

    def connect(
        self, exchange: Exchange | None, watch_backward: Callable[[bool], None] = lambda _: None
    ) -> None:
        """Ranks meet by this from now on; None: they do not.

        `watch_backward` begins, and ends, that `backward_begins` is called; from any thread.
        """
        self._exchange = exchange
        self._watch_backward = watch_backward

    def begin(self, run: int) -> None:
        """A run begins; called by the thread that executes it."""
        with self._turn:
            self._usual = self._pace or self._usual
            is_used = self.begun or self._cut_since is not None
            if is_used or self._phase is not _Phase.OPEN or self._raise is not None:
                self._reset()
            self._main = threading.get_ident()
            self._at = time.monotonic()
            self._run = self.run = run
        if self._early is not None and self._early[0] == run:
            self.interrupted(*self._early)

    def end(self, left_in: str = "") -> None:
        """The run is over; it was stopped in this collective, if in any."""
        with self._turn:
            self._run, self.left_in = None, left_in
            self._raise = None
        if self._phase is not _Phase.OPEN:
            self._watch_backward(False)
            self._decided.set()
            self._reached.set()

    # ── the main thread ─────────────────────────────────────────────────────────────────

    def step_begins(self) -> None:
        """An optimizer is about to step; called by the function that steps it."""
        if self._run is None or threading.get_ident() != self._main:
            return
        self._was_torn = self.is_torn  # a cell may have gone on
        now = time.monotonic()
        if self.begun:
            self._pace = now - self._at
        self._at = now
        self._step = sys._getframe(2).f_code
        self.begun += 1

    def step_ended(self) -> None:
        """It has stepped; raises KeyboardInterrupt if that has waited for it alone."""
        if self._step is None or threading.get_ident() != self._main:
            return
        self.ended += 1
        self._ended_at.append(time.time_ns())
        self._step = None
        if self._phase is _Phase.RELEASED:
            self._raise_what_waits()

    @property
    def partial_steps(self) -> int:
        """How many steps, the last of those that `ended`, may have had a part of their gradients only."""
        since = self._cut_since
        return 0 if since is None else sum(each > since for each in self._ended_at)

    @property
    def is_within_step(self) -> bool:
        """Whether an optimizer has begun a step that it did not end, so that parameters may be half-stepped."""
        return self._step is not None

    @property
    def is_torn(self) -> bool:
        """Whether an interrupt could not wait for the end of an optimizer's step, and came upon it."""
        return self._was_torn or (self._is_late and self.is_within_step)

    def made_good(self) -> None:
        """What the last run left half-done is made good, or told: it is nothing of the next."""
        self._step = self._cut_since = None
        self._is_late = self._was_torn = False

    def backward_begins(self) -> None:
        """A backward pass is about to begin; raises KeyboardInterrupt where ranks stop before it.

        Called once an interrupt has come.
        """
        if self._run is None or threading.get_ident() != self._main:
            return
        # The helper thread sees to it that this ends.
        while self._phase is _Phase.MEETING:
            self._decided.wait(_TICK)
        if self._phase is _Phase.AGREED and self.begun >= self._last:
            self._reached.set()
            while self._raise is None and time.monotonic() < self._until:
                time.sleep(_TICK)  # where the signal's handler raises
            self._raise_what_waits()
        elif self._phase is _Phase.RELEASED:
            self._raise_what_waits()

    def _raise_what_waits(self) -> None:
        again, self._raise = self._raise, None
        if again is not None:
            again()

    def defers(self, run: int, again: Callable[[], None]) -> bool:
        """Whether an interrupt of this run is not to raise now: `again` raises it later.

        Called by the signal's handler.
        """
        if run != self._run or self._reached.is_set():
            return False
        agrees = self._exchange is not None and self._phase is not _Phase.RELEASED
        if agrees or self._is_stepping():
            self._raise = again
            return True
        self._raise = None
        return False

    def _is_stepping(self) -> bool:
        """Whether the main thread is in an optimizer's step, not too late; one that raised is over."""
        frame = None if self._step is None or self._is_late else sys._getframe(1)
        while frame is not None:
            if frame.f_code is self._step:
                return True
            frame = frame.f_back
        return False

    # ── other threads ───────────────────────────────────────────────────────────────────

    def cut_since(self, called_at: int) -> None:
        """Collectives called since then, in nanoseconds as `time.time_ns`, were aborted: their results never arrive."""
        self._cut_since = called_at

    def is_agreeing(self, run: int) -> bool:
        """Whether ranks go on to a common step of this run: nothing of theirs is to be cut meanwhile."""
        busy = self._phase in (_Phase.MEETING, _Phase.AGREED)
        return busy and run == self._run and not self._reached.is_set()

    def interrupted(self, run: int, patience: float, wake: Callable[[], None]) -> None:
        """This run is interrupted; ranks may take so many seconds to stop together.

        `wake` has the main thread look at its interrupt again. Called by the control thread.
        """
        self._early = run, patience, wake
        with self._turn:
            if run != self._run or self._phase is not _Phase.OPEN:
                return
            self._until = time.monotonic() + patience
            meets = self._exchange is not None and patience > 0
            if meets:
                self._watch_backward(True)
            self._phase = _Phase.MEETING if meets else _Phase.RELEASED
            if self._exchange is None and self._step is None:
                return  # nothing waits
        threading.Thread(
            target=self._see_it_end,
            args=(run, patience, wake),
            name="skyward-common-step",
            daemon=True,
        ).start()

    def _see_it_end(self, run: int, patience: float, wake: Callable[[], None]) -> None:
        try:
            if (
                self._phase is _Phase.MEETING
                and (last := self._agreed(run, patience)) is not None
                and self._advances(run, _Phase.AGREED, last)
            ):
                self._reached.wait(max(0.0, self._until - time.monotonic()))
        finally:
            if self._advances(run, _Phase.RELEASED):
                wake()
        begun = self.begun
        if self._has_begun_step(begun):
            for _ in range(_LOOKS):
                time.sleep(_BETWEEN_LOOKS)
                if self._run != run or not self._has_begun_step(begun):
                    return
            self._is_late = True
            wake()

    def _advances(self, run: int, phase: _Phase, last: int = 0) -> bool:
        """Whether this run goes on, and is in this phase from now on; `last` is the step that all make."""
        with self._turn:
            if self._run != run or self._reached.is_set():
                return False
            self._last, self._phase = last, phase
            self._decided.set()
            return True

    def _has_begun_step(self, number: int) -> bool:
        return self._step is not None and self.begun == number

    def _agreed(self, run: int, patience: float) -> int | None:
        exchange = self._exchange
        if exchange is None:
            return None
        now = time.monotonic()
        # Read once backward passes are watched: none that is not can come after step begun + 1.
        report = StepReport(self.begun, now - self._at, self._pace or self._usual)
        told = exchange(f"stop/{run}", msgspec.json.encode(report), patience * _MET)
        if told is None:
            return None
        reports = [from_json(each, StepReport) for each in told]
        # Not the time that is left: that differs between ranks.
        return decide(reports, patience * (1 - _MET))


common_step: CommonStep = CommonStep()
"""That of this process."""
