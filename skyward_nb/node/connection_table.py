"""The connections to the ranks of an agent's machine, by rank."""

from __future__ import annotations

from collections.abc import Iterable

from skyward_nb.node.rank_connection import RankConnection
from skyward_nb.words.info import InstanceInfo


class ConnectionTable(dict[int, RankConnection]):
    """The ranks that live on this machine; `elsewhere` are those of the pool on other machines."""

    elsewhere: frozenset[int] = frozenset()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The ranks, in order."""
        return tuple(sorted(self))

    @property
    def places(self) -> tuple[InstanceInfo, ...]:
        """Their places, in the order of ranks."""
        return tuple(self[rank].place for rank in self.numbers)

    @property
    def pids(self) -> dict[int, int]:
        """Their process ids, by rank, of those that have been forked."""
        return {rank: connection.pid for rank, connection in self.items() if connection.pid}

    def here(self, ranks: Iterable[int]) -> list[int]:
        """The ranks among these that are not on another machine."""
        return [rank for rank in ranks if rank not in self.elsewhere]

    def connections(self, ranks: Iterable[int]) -> list[RankConnection]:
        """The connections to those of these ranks that live here."""
        return [connection for rank in ranks if (connection := self.get(rank)) is not None]

    def reachable(self, rank: int) -> RankConnection | None:
        """The connection to a rank that lives, and is not about to end; else None."""
        connection = self.get(rank)
        is_ending = connection is None or connection.asked_to_end or connection.how is not None
        return None if is_ending else connection
