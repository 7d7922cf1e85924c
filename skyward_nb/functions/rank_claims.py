"""Ranks of a pool, claimed for what this thread begins on them: interrupts leave none of them taken."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from skyward_nb.functions.owed_interrupts import owed_at_its_end
from skyward_nb.functions.rank_slots import RankSlots, SlotDeadlock, SlotsClosed, Wanted, always
from skyward_nb.pool.interrupt_handlers import PutOff
from skyward_nb.pool.pool import Pool
from skyward_nb.words.errors import PoolError
from skyward_nb.words.ranks import count_ranks

_SETTLES = 0.5


class Held(Protocol):
    """What goes on only when the thread that has it asks for more."""

    name: str

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it is on."""
        ...

    def settle(self, seconds: float, /) -> bool:
        """Whether a rank gets free within so many seconds if no values are taken; or somebody takes them."""
        ...


@dataclass(eq=False)
class Claim:
    """Ranks that were taken, while interrupts are put off; released at its end, unless something `has_begun` that does so."""

    ranks: tuple[int, ...]
    interrupt: PutOff
    has_begun: bool = False


class RankClaims:
    """Claims ranks of one pool; from any thread."""

    def __init__(self, pool: Pool) -> None:
        self.slots: RankSlots = RankSlots({info.rank: info.node for info in pool.infos})
        self.held: set[Held] = set()
        self._pool = pool
        pool.closing.before_close.append(self.slots.close)

    @contextlib.contextmanager
    def claimed(
        self,
        ranks: Sequence[int],
        *,
        all_of: bool = False,
        is_wanted: Wanted = always,
        waits: bool = True,
    ) -> Generator[Claim]:
        """One of these ranks, or all, for what is inside; where it does not wait, and none is free, an empty claim."""
        with PutOff() as interrupt:
            if waits:
                taken = self._claim(ranks, interrupt, all_of=all_of, is_wanted=is_wanted)
            else:
                taken = self.slots.try_claim(ranks)
            claim = Claim(taken, interrupt)
            try:
                yield claim
            finally:
                if not claim.has_begun:
                    self.slots.release(taken)

    @contextlib.contextmanager
    def all_ranks(self) -> Generator[None]:
        """All ranks, for what readies them."""
        with (
            owed_at_its_end(self._pool),
            self.claimed(self._pool.ranks, all_of=True) as claim,
            claim.interrupt.as_before(),
        ):
            yield

    def _claim(
        self, ranks: Sequence[int], interrupt: PutOff, *, all_of: bool, is_wanted: Wanted
    ) -> tuple[int, ...]:
        """Take one of these ranks, or all; waits until they are free.

        Raises `PoolError` where they never would be: this thread has generators on them, and takes
        no values; or the pool is closed meanwhile.
        """
        while True:
            try:
                return self.slots.claim(ranks, interrupt, all_of=all_of, is_wanted=is_wanted)
            except SlotDeadlock as stuck:
                with interrupt.as_before():
                    self.settle(stuck)
            except SlotsClosed:
                raise self._pool.context.closed_error() from None

    def settle(self, stuck: SlotDeadlock) -> None:
        """Have what this thread holds come to its end, if it does without its values taken."""
        held = [run for run in tuple(self.held) if stuck.ranks & set(run.ranks)]
        if any(run.settle(_SETTLES) for run in held):
            return
        gc.collect()  # an interrupt may have left its streams in a cycle, with the frames that it came through
        if not held or not self.held.isdisjoint(held):
            names = ", ".join(dict.fromkeys(run.name for run in held))
            raise PoolError(
                self._pool.spec.name,
                f"{count_ranks(stuck.ranks)} {'is' if len(stuck.ranks) == 1 else 'are'} still used by "
                f"{names}, whose values were not all read: read them, or .close() it",
            ) from None
