"""The limits of one rank, and which processors it gets of a machine's. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skyward_nb.words.errors import spell_size


class RankLimits(msgspec.Struct, frozen=True):
    """The most bytes of `memory` and processors (`cpus`) of each rank; None where there is no limit."""

    memory: int | None = None
    cpus: int | None = None

    def __str__(self) -> str:
        parts = [spell_memory(self.memory)] if self.memory else []
        parts += [f"cpu_limit={self.cpus}"] if self.cpus else []
        return ", ".join(parts)


def spell_memory(limit: int) -> str:
    """The limit as it is written on a line: `memory_limit=2GB`."""
    return f"memory_limit={spell_size(limit).replace(' ', '')}"


def own_cpus(there: Sequence[int], number: int, count: int, first: int = 0) -> tuple[int, ...]:
    """The `count` processors of a machine's that its rank of this `number` runs on, or all where there are fewer.

    Neighbours get different ones while there are any. `first` is where rank 0 begins: pools that begin at
    different places do not crowd the first processors.
    """
    begin = first + number * count
    return tuple(sorted({there[(begin + each) % len(there)] for each in range(count)}))


def spell_excess(held: int, limit: int) -> str:
    """How a rank ended that was killed for its memory; after its name."""
    return f"used more than {spell_memory(limit)}: {spell_size(held)} with the processes that it started"
