"""Which ranks of a pool are free, and which thread is next: first come, first served.

But for a thread that holds what those before it wait for: it goes on first, or nobody would.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from skyward_nb.pool.interrupt_handlers import PutOff

_ROUND = 0.1
"""Seconds after which a wait for ranks looks for an interrupt that was put off."""
_NEVER = PutOff()

Wanted: TypeAlias = Callable[[], bool]
"""Whether what waits for a rank is still wanted."""


StopsBy: TypeAlias = Callable[[Callable[[], None]], None]
"""Takes what stops something from another thread."""


def always() -> bool:
    """Of what nobody can cancel."""
    return True


class SlotDeadlock(Exception):
    """A thread would wait for `ranks` that it holds itself."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks: frozenset[int] = frozenset(ranks)
        super().__init__(self.ranks)


OF_TASK: ContextVar[int] = ContextVar("of_task", default=0)
"""In a thread that waits for a task of an event loop, a number of that task, below 0."""


def _me() -> int:
    return OF_TASK.get() or threading.get_ident()


@dataclass(frozen=True, eq=False)
class _Ticket:
    """A thread's place in the queue: for one of these ranks, or `all_of` them."""

    ranks: frozenset[int]
    all_of: bool


class SlotsClosed(Exception):
    """No thread gets a rank any more: the pool is closed."""


class RankSlots:
    """The ranks of a pool, by the node each is on."""

    def __init__(self, nodes: Mapping[int, int]) -> None:
        self._nodes = dict(nodes)
        self._busy: dict[int, int | None] = {}
        """Ranks that are taken, and the thread that alone can set them free, if it is one."""
        self._resting: set[int] = set()
        """Ranks claimed by a thread that waits until nothing runs."""
        self._is_alone = False
        self._is_closed = False
        self._queue: deque[_Ticket] = deque()
        self._changed = threading.Condition()

    def claim(
        self,
        ranks: Collection[int],
        interrupt: PutOff = _NEVER,
        *,
        all_of: bool = False,
        is_wanted: Wanted = always,
    ) -> tuple[int, ...]:
        """Take one of these ranks, the one on the least busy node, or all; waits for its turn.

        Raises `SlotDeadlock` where this thread itself holds what it would wait for, `SlotsClosed`, and CancelledError
        where it is not wanted any more: `look` has it ask.
        """
        ticket = _Ticket(frozenset(ranks), all_of)
        with self._changed:
            self._queue.append(ticket)
            try:
                while True:
                    self._check_open()
                    if not is_wanted():
                        raise CancelledError
                    if self._is_next(ticket) and (found := self._choose(ranks, all_of)):
                        self._busy.update(dict.fromkeys(found))
                        return found
                    self._check_not_stuck(ranks, all_of)
                    self._changed.wait(_ROUND if interrupt.is_there else None)
                    interrupt.check()
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def try_claim(self, ranks: Collection[int]) -> tuple[int, ...]:
        """Take one of these ranks if one is free and no thread waits for it; else none."""
        with self._changed:
            found = self._choose(ranks, False) if self._is_next() else ()
            self._busy.update(dict.fromkeys(found))
            return found

    def release(self, ranks: Iterable[int]) -> None:
        """Set ranks free."""
        with self._changed:
            for rank in ranks:
                self._busy.pop(rank, None)
            self._changed.notify_all()

    def look(self) -> None:
        """Have those that wait see whether they still want a rank."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse ranks to the threads that wait for them, and to all later ones."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def held_by_this_thread(self, ranks: Iterable[int]) -> None:
        """Note that only this thread will release these ranks."""
        self._held(ranks, threading.get_ident())

    def held_by_this_task(self, ranks: Iterable[int]) -> None:
        """Note that only this task of an event loop, or this thread where it waits for none, will release these ranks."""
        self._held(ranks, _me())

    def _held(self, ranks: Iterable[int], by: int) -> None:
        with self._changed:
            self._busy.update(dict.fromkeys(ranks, by))
            self._changed.notify_all()

    @contextmanager
    def alone(self, mine: Collection[int], is_needed: Callable[[], bool]) -> Generator[None]:
        """While inside, nothing runs: other threads that have ranks wait for the same.

        Waits for that as long as it `is_needed`. Raises what `claim` does.
        """
        if not is_needed():
            yield
            return
        was_needed = False
        try:
            with self._changed:
                self._resting |= set(mine)
                self._changed.notify_all()
                while is_needed() and (self._is_alone or self._busy.keys() - self._resting):
                    self._check_open()
                    self._check_not_stuck(self._nodes.keys() - self._resting, True)
                    self._changed.wait()
                was_needed = is_needed()
                self._is_alone |= was_needed
            yield
        finally:
            with self._changed:
                self._resting -= set(mine)
                self._is_alone &= not was_needed
                self._changed.notify_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise SlotsClosed

    def _is_next(self, ticket: _Ticket | None = None) -> bool:
        """Whether this one is first, or a new one would be: or the first waits for this thread, and all behind it with it."""
        first = self._queue[0] if self._queue else ticket
        return first is ticket or (
            first is not None and bool(self._mine_in_the_way(first.ranks, first.all_of))
        )

    def _mine_in_the_way(self, ranks: Collection[int], all_of: bool) -> list[int]:
        """What this thread, or its task of an event loop, holds of these ranks, if that is in the way of one of them, or all."""
        me = {threading.get_ident(), _me()}
        mine = [rank for rank in ranks if self._busy.get(rank) in me]
        return mine if all_of or len(mine) == len(set(ranks)) else []

    def _choose(self, ranks: Collection[int], all_of: bool) -> tuple[int, ...]:
        if all_of:
            return () if self._busy.keys() & set(ranks) else tuple(sorted(ranks))
        free = [rank for rank in ranks if rank not in self._busy]
        if not free:
            return ()
        load: dict[int, int] = {}
        for rank in self._busy:
            load[self._nodes[rank]] = load.get(self._nodes[rank], 0) + 1
        return (min(free, key=lambda rank: (load.get(self._nodes[rank], 0), rank)),)

    def _check_not_stuck(self, ranks: Collection[int], all_of: bool) -> None:
        if mine := self._mine_in_the_way(ranks, all_of):
            raise SlotDeadlock(mine)
