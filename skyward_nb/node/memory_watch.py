"""The agent's watch over the memory of its ranks, where `memory_limit=` is set.

A rank limits itself (`node/memory_limit`); this sees the processes that it starts, too, and threads that
outlive their cell. It looks twice a second, so what grows faster goes beyond the limit for as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from skyward_nb.node.telemetry import Sampler
from skyward_nb.system.memory import own_memory, shared_out_memory

_BETWEEN_LOOKS = 0.5
_TOLERANCE = 1.05
"""A rank that its own limit stops is a little above it: what it needs to say so."""


def held_by(family: Iterable[int], limit: float) -> int:
    """Bytes of their own that a rank and the processes which it started hold.

    Pages that forked ones share are divided among them only where the sum of the whole is above the limit.
    """
    pids = tuple(family)
    whole = sum(map(own_memory, pids))
    if whole <= limit or len(pids) == 1:
        return whole
    return sum(map(shared_out_memory, pids)) or whole


class MemoryWatch:
    """Tells of each rank that holds more than the limit: the rank, its process, the bytes that it holds, and the limit.

    `pids` are the processes of the ranks that live.
    """

    def __init__(
        self,
        pids: Callable[[], Mapping[int, int]],
        tell: Callable[[int, int, int, int], None],
    ) -> None:
        self._pids = pids
        self._sampler = Sampler()
        self._tell = tell
        self._limit: int | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, limit: int | None) -> None:
        """From now on each rank may hold so many bytes; None: as many as it likes."""
        self._limit = limit
        if limit is not None and self._task is None:
            self._task = asyncio.create_task(self._look_on())
        elif limit is None:
            self.end()

    def end(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look_on(self) -> None:
        while self._limit is not None:
            # The rank may have another process by the time that this one's memory is known.
            limit, pids = self._limit, dict(self._pids())
            for rank, held in (await asyncio.to_thread(self._over, limit, pids)).items():
                self._tell(rank, pids[rank], held, limit)
            await asyncio.sleep(_BETWEEN_LOOKS)

    def _over(self, limit: int, pids: Mapping[int, int]) -> dict[int, int]:
        most = limit * _TOLERANCE
        families = self._sampler.families(pids)
        held = {rank: held_by(family, most) for rank, family in families.items()}
        return {rank: size for rank, size in held.items() if size > most}
