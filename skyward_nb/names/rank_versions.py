"""The versions of things that ranks have, by name: texts of cells, imports, modules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class RankVersions(Generic[V]):
    """Versions by name, for each rank; `assumed` are those that a rank has before it got any."""

    def __init__(self, assumed: Mapping[str, V] | None = None) -> None:
        self._assumed = assumed or {}
        self._of: dict[int, dict[str, V]] = {}

    def lacking(self, wanted: Mapping[str, V], ranks: Collection[int]) -> list[str]:
        """The names of which one of these ranks has no version, or another one."""
        if not wanted:
            return []
        there = [self._of.get(rank, {}) for rank in ranks]
        return [
            name
            for name, version in wanted.items()
            if any(each.get(name, self._assumed.get(name)) != version for each in there)
        ]

    def is_new_to(self, ranks: Iterable[int]) -> bool:
        """Whether one of these ranks has got nothing so far."""
        return any(rank not in self._of for rank in ranks)

    def note(self, given: Mapping[str, V], ranks: Iterable[int]) -> None:
        """Note that these ranks have these versions now."""
        for rank in ranks:
            self._of.setdefault(rank, {}).update(given)

    def forget(self, ranks: Iterable[int] | None = None) -> None:
        """Note that these ranks (None: all) have nothing."""
        for rank in list(self._of) if ranks is None else ranks:
            self._of.pop(rank, None)
