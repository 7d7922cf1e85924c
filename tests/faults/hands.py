"""Whose hands do it: they watch a run until its moment has come, and bring the fault about."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

from faults.matrix import BY_ITSELF, Case, End, Fault, Moment
from faults.scenes import Script

from skyward_nb.pool import registry
from skyward_nb.protocol.events import Output, RankPhase

FROZEN_FOR = 0.45
RESETS = 8
SOON = 0.05
HANG = 25.0
"""Seconds after which it counts as a hang: far more than a busy machine needs, and no measure."""

SIGNALS = {
    Fault.KILLED: signal.SIGKILL,
    Fault.SEGFAULT: signal.SIGSEGV,
    Fault.FROZEN: signal.SIGSTOP,
}
_DONE_BY_CODE = (*BY_ITSELF, Fault.SEGFAULT, Fault.AGENT_KILLED_CHILD)
_WAITED_FOR = {Fault.DEAF: ("deaf",), Fault.AGENT_KILLED_CHILD: ("child",)}
_LATER = {Moment.COLLECTIVE: 1.0, Moment.SENDING: 0.03, Moment.GATHERING: 0.03}
_STAGES = {Moment.SENDING: "taking in", Moment.GATHERING: "returning values"}


class Left(Exception):
    """The client is gone, in the middle of whatever it did."""


class Hang(AssertionError):
    """It did not come to its end."""


def children(pid: int) -> list[int]:
    """Processes that this one has forked and not reaped, the eldest first."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def agent_of(pool) -> int:
    """The process id of a pool's agent."""
    return int((registry.runtime_root() / pool.pool_id / "lock").read_text())


def forge_of(agent: int) -> int:
    """The process id of its forge."""
    return children(agent)[0]


def press() -> None:
    """The square button."""
    os.kill(os.getpid(), signal.SIGINT)


def reset(pool) -> None:
    """Cut the line to the agent, if there is one just now."""
    for link in pool.lines.links:
        with contextlib.suppress(OSError, AttributeError):
            link._socket.shutdown(socket.SHUT_RDWR)


class Hands:
    """Brings one fault about, once, when its moment has come; a `watch` of the run."""

    def __init__(self, case: Case, script: Script, pool) -> None:
        self.case = case
        self.said: dict[int, str] = {}
        self.struck: float | None = None
        """When the fault was brought about, by the monotonic clock."""
        self._pool = pool
        self._script = script
        self._stages: set[int] = set()
        self._timers: list[threading.Timer] = []
        self._began = time.monotonic()
        self._due: float | None = None
        self._steps = self._strike()
        self._interrupted_at: float | None = None

    def __call__(self, event) -> None:
        """Take notice of what came in, and of time."""
        now = time.monotonic()
        if now - self._began > HANG:
            raise Hang(f"{self.case}: no end after {HANG:g} s; ranks said {self._tails()}")
        if isinstance(event, Output) and event.stream == "stdout":
            self.said[event.rank] = self.said.get(event.rank, "") + event.text
        elif isinstance(event, RankPhase) and event.text.startswith(
            _STAGES.get(self.case.moment, "none")
        ):
            self._stages.add(event.rank)
        if self._due is None and self._has_come(now):
            self._due = now + _LATER.get(self.case.moment, 0.0)
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Do what is due."""
        while self._due is not None and now >= self._due:
            self._due = now + next(self._steps, 3600)

    def strike(self) -> None:
        """Do all of it now, while nothing runs."""
        for wait in self._steps:
            time.sleep(wait)

    def finish(self) -> None:
        """Let go of what is still on its way."""
        for timer in self._timers:
            timer.join()
        self._script.touch("end")

    # ── when ────────────────────────────────────────────────────────────────────────────

    def _has_come(self, now: float) -> bool:
        size = self.case.size
        match self.case.moment:
            case Moment.SENDING | Moment.GATHERING:
                return len(self._stages) == size
            case Moment.STOPPING:
                return self._is_stopping(now)
            case Moment.IDLE:
                return False
            case _:
                return len(self.said) == size

    def _is_stopping(self, now: float) -> bool:
        if self._interrupted_at is None and len(self.said) == self.case.size:
            self._interrupted_at = now
            press()
        stopping = [text for text in self.said.values() if "stopping" in text]
        if self._interrupted_at is None or self._script.has("end"):
            return False
        # On a busy machine some are not so far when the grace is half over.
        return len(stopping) == self.case.size or now - self._interrupted_at > 0.25

    def _tails(self) -> dict[int, str]:
        return {rank: text[-40:] for rank, text in sorted(self.said.items())}

    # ── what ────────────────────────────────────────────────────────────────────────────

    def _strike(self):
        """The steps of the fault, with the seconds that lie between them."""
        fault = self.case.fault
        if fault is Fault.TIMEOUT:
            # It is over by itself, and nobody lets ranks come to their end before.
            yield 3600
        self.struck = time.monotonic()
        if fault in _DONE_BY_CODE:
            self._script.touch("go")
        else:
            yield from self._from_outside(fault)
        for file in _WAITED_FOR.get(fault, ()):
            while not self._script.has(file):
                yield 0.01
        if fault is Fault.AGENT_KILLED_CHILD:
            self.struck = time.monotonic()
            os.kill(agent_of(self._pool), signal.SIGKILL)
        yield from self._interrupts(fault, self.case.moment is Moment.STOPPING)
        yield SOON
        if self._others_come_to_their_end():
            self._script.touch("end")

    def _from_outside(self, fault: Fault):
        if fault in (Fault.KILLED, Fault.FROZEN):
            os.kill(self._pool.pids[self.case.victim], SIGNALS[fault])
        elif fault is Fault.AGENT_KILLED:
            os.kill(agent_of(self._pool), signal.SIGKILL)
        elif fault is Fault.FORGE_KILLED:
            os.kill(forge_of(agent_of(self._pool)), signal.SIGKILL)
        elif fault is Fault.AGENT_FROZEN:
            self.freeze()
        elif fault in (Fault.CLIENT_BACK, Fault.CLIENT_GONE):
            raise Left
        elif fault in (Fault.RESET, Fault.RESETS):
            for _ in range(1 if fault is Fault.RESET else RESETS):
                reset(self._pool)
                yield 0.02

    def _interrupts(self, fault: Fault, is_stopping: bool):
        idle = self.case.moment is Moment.IDLE
        button = self._pool.interrupt if idle else press
        asks = fault in (Fault.FROZEN, Fault.DEAF) and not is_stopping and not idle
        if asks or fault in (Fault.INTERRUPT, Fault.INTERRUPTS):
            self.struck = time.monotonic()
            button()
        if fault is Fault.INTERRUPTS:
            yield SOON
            button()

    def _others_come_to_their_end(self) -> bool:
        """Whether ranks that are not concerned end by themselves, so that nothing has to stop them."""
        if self.case.moment is Moment.STOPPING:
            return True
        # A value that cannot go home stops nobody.
        raises = (self.case.fault, self.case.moment) == (Fault.RAISES, Moment.GATHERING)
        return raises or self.case.end in (End.FINISHED, End.ATTACHED_WHOLE)

    def freeze(self) -> None:
        """Stop the agent, and let it go on a little later."""
        agent = agent_of(self._pool)
        os.kill(agent, signal.SIGSTOP)
        timer = threading.Timer(FROZEN_FOR, os.kill, (agent, signal.SIGCONT))
        timer.start()
        self._timers.append(timer)
