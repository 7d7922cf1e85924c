"""The matrix as data: what is broken, when, on how many ranks, and what has to come of it.

Nothing here starts anything. A case's dice are seeded by what it is, so each is the same in every run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Fault(Enum):
    """What goes wrong, as a row of the table."""

    KILLED = "rank killed (SIGKILL)"
    SEGFAULT = "rank segfaults"
    EXITS = "rank calls os._exit(3)"
    RAISES = "rank raises ValueError"
    HANGS_UP = "rank closes its sockets"
    FROZEN = "rank stopped (SIGSTOP), then an interrupt"
    DEAF = "rank ignores the interrupt"
    CHILD = "rank with a child in a session of its own is killed"
    INTERRUPT = "the person interrupts"
    INTERRUPTS = "the person interrupts twice"
    TIMEOUT = "timeout= is over"
    AGENT_KILLED = "agent killed"
    AGENT_KILLED_CHILD = "agent killed; a rank has a child in a session of its own"
    AGENT_FROZEN = "agent stopped for a while (SIGSTOP, SIGCONT)"
    FORGE_KILLED = "forge killed"
    RESET = "line reset"
    RESETS = "line reset again and again"
    CLIENT_BACK = "client gone, another attaches"
    CLIENT_GONE = "client gone for good (idle=2s)"


class Moment(Enum):
    """When it goes wrong, as a column of the table."""

    STARTING = "starting"
    IDLE = "idle"
    SENDING = "sending"
    RUNNING = "running"
    PRINTING = "printing"
    COLLECTIVE = "in a collective"
    GATHERING = "gathering"
    STOPPING = "being interrupted"
    CLOSING = "closing"


class End(Enum):
    """What has come of it."""

    FINISHED = "finished"
    RAISED = "raised"
    DIED = "died"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed out"
    POOL_GONE = "pool gone"
    ATTACHED_WHOLE = "attached, whole"


F, M = Fault, Moment
EVERY_FAULT = tuple(Fault)
EVERY_MOMENT = tuple(Moment)
SIZES = (1, 4, 16)

BY_ITSELF = (F.EXITS, F.RAISES, F.HANGS_UP, F.DEAF, F.CHILD)
"""Faults of ranks that code on the rank brings about, and no signal from outside can."""

ENDS = {
    F.KILLED: End.DIED,
    F.SEGFAULT: End.DIED,
    F.EXITS: End.DIED,
    F.RAISES: End.RAISED,
    F.HANGS_UP: End.DIED,
    F.FROZEN: End.INTERRUPTED,
    F.DEAF: End.INTERRUPTED,
    F.CHILD: End.DIED,
    F.INTERRUPT: End.INTERRUPTED,
    F.INTERRUPTS: End.INTERRUPTED,
    F.TIMEOUT: End.TIMED_OUT,
    F.AGENT_KILLED: End.POOL_GONE,
    F.AGENT_KILLED_CHILD: End.POOL_GONE,
    F.AGENT_FROZEN: End.FINISHED,
    F.FORGE_KILLED: End.POOL_GONE,
    F.RESET: End.FINISHED,
    F.RESETS: End.FINISHED,
    F.CLIENT_BACK: End.ATTACHED_WHOLE,
    F.CLIENT_GONE: End.POOL_GONE,
}

OTHER_ENDS = {
    # Between cells there is nothing that an interrupt could mean, and it must not hit what comes.
    (F.INTERRUPT, M.IDLE): End.FINISHED,
    (F.INTERRUPTS, M.IDLE): End.FINISHED,
}

SAMPLE = {
    (F.KILLED, M.RUNNING): 4,
    (F.SEGFAULT, M.COLLECTIVE): 4,
    (F.EXITS, M.GATHERING): 4,
    (F.RAISES, M.PRINTING): 4,
    (F.HANGS_UP, M.IDLE): 4,
    (F.FROZEN, M.RUNNING): 4,
    (F.DEAF, M.STOPPING): 4,
    (F.CHILD, M.SENDING): 4,
    (F.INTERRUPT, M.PRINTING): 4,
    (F.INTERRUPTS, M.RUNNING): 4,
    (F.TIMEOUT, M.RUNNING): 4,
    (F.AGENT_KILLED, M.STARTING): 1,
    (F.AGENT_KILLED_CHILD, M.RUNNING): 4,
    (F.AGENT_FROZEN, M.SENDING): 1,
    (F.FORGE_KILLED, M.CLOSING): 1,
    (F.RESET, M.GATHERING): 4,
    (F.RESETS, M.SENDING): 16,
    (F.CLIENT_BACK, M.PRINTING): 4,
    (F.CLIENT_GONE, M.GATHERING): 4,
}
"""What `make test` plays, and on how many ranks: each fault, each moment, each size occurs."""

LEFT_OUT: tuple[tuple[tuple[Fault, ...], tuple[Moment, ...], str], ...] = (
    (
        (*BY_ITSELF, F.AGENT_KILLED_CHILD),
        (M.STARTING, M.CLOSING),
        "no code of a person runs on a rank then; what ends ranks from outside stands for it",
    ),
    ((F.RAISES, F.DEAF), (M.IDLE,), "no code runs that could raise, or be interrupted"),
    ((F.TIMEOUT,), (M.STARTING, M.IDLE, M.CLOSING), "it counts while a cell runs"),
    ((F.TIMEOUT,), (M.STOPPING,), "what is being stopped already waits for its grace alone"),
    ((F.INTERRUPTS,), (M.STOPPING,), "once is the second time there already"),
    (
        (F.CLIENT_BACK, F.CLIENT_GONE),
        (M.STARTING,),
        "start() is one call of one thread, which only the end of its process ends",
    ),
    ((F.CLIENT_BACK, F.CLIENT_GONE), (M.CLOSING,), "the client is going"),
)


@dataclass(frozen=True)
class Case:
    """One cell of the table on so many ranks."""

    fault: Fault
    moment: Moment
    size: int

    def __str__(self) -> str:
        words = f"{self.fault.name}-{self.moment.name}-{self.size}"
        return words.lower().replace("_", "")

    @property
    def framework(self) -> tuple[str, ...]:
        """Pools have none unless collectives are the point: they start in half the time."""
        return ("torch",) if self.moment is M.COLLECTIVE else ()

    @property
    def end(self) -> End:
        """What has to come of it."""
        if self.moment is M.CLOSING:
            # That goes on to its end, whatever happens.
            return End.FINISHED
        if self.moment is M.STOPPING and ENDS[self.fault] is not End.POOL_GONE:
            # Whatever else happens, it is told that the person interrupted.
            return End.ATTACHED_WHOLE if self.fault is F.CLIENT_BACK else End.INTERRUPTED
        return OTHER_ENDS.get((self.fault, self.moment), ENDS[self.fault])

    @property
    def keeps_all(self) -> bool:
        """Whether every rank has to live on, and its namespace with it."""
        if self.moment in (M.STARTING, M.CLOSING):
            return False
        if self.fault in (F.RAISES, F.TIMEOUT) or self.end is End.FINISHED:
            return True
        return self.fault is F.INTERRUPT and self.moment is not M.STOPPING

    @cached_property
    def dice(self) -> random.Random:
        """What the case leaves to chance, the same in every run."""
        return random.Random(str(self))

    @cached_property
    def victim(self) -> int:
        """The rank that it happens to."""
        return random.Random(f"victim of {self}").randrange(self.size)

    @cached_property
    def absent(self) -> int:
        """The rank that does not come to the collective in which the others wait."""
        itself = self.fault in (*BY_ITSELF, F.SEGFAULT, F.AGENT_KILLED_CHILD)
        return self.victim if itself else random.Random(f"absent in {self}").randrange(self.size)


def in_sample(case: Case) -> bool:
    """Whether `make test` plays it."""
    return SAMPLE.get((case.fault, case.moment)) == case.size


def sizes(moment: Moment, fault: Fault) -> tuple[int, ...]:
    """On how many ranks: alone nobody waits in a collective, and many with a framework are slow."""
    if moment is not M.COLLECTIVE:
        return SIZES
    return (4, 16) if fault in (F.KILLED, F.RAISES, F.INTERRUPT, F.TIMEOUT) else (4,)


def why_left_out(fault: Fault, moment: Moment) -> str:
    """Why this pair makes no case; empty if it does."""
    for faults, moments, why in LEFT_OUT:
        if fault in faults and moment in moments:
            return why
    return ""


def all_cases() -> list[Case]:
    """Every case; those that use one pool one after another are neighbours."""
    cases = [
        Case(fault, moment, size)
        for moment in EVERY_MOMENT
        for fault in EVERY_FAULT
        if not why_left_out(fault, moment)
        for size in sizes(moment, fault)
    ]
    # What starts a pool of its own comes last, so that there is no other one beside it.
    return sorted(cases, key=lambda case: (case.framework, case.size, case.moment is M.STARTING))


def in_order(cases: list[Case]) -> list[Case]:
    """These, so that of neighbours those are neighbours, too, whose pools have the same grace."""
    return sorted(
        cases,
        key=lambda case: (case.framework, case.size, case.moment is M.STARTING, case.keeps_all),
    )
