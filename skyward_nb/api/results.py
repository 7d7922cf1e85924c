"""`RankResults`: one value per rank that ran."""

from __future__ import annotations

import reprlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

from IPython.lib.pretty import pretty

from skyward_nb.words.ranks import spell_ranks

T = TypeVar("T")


class RankResults(Sequence[T], Generic[T]):
    """Values of the ranks that ran, in rank order.

    Indexed by rank: `results[2]` is rank 2's value; where rank 2 did not run, the IndexError
    names the ranks that did. A slice gives the `RankResults` of those ranks, `index` the lowest
    rank with a value.
    """

    def __init__(self, values: Mapping[int, T], nodes: Mapping[int, int] | None = None) -> None:
        self._values = dict(sorted(values.items()))
        self._nodes = dict(nodes or {})

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that ran, ascending."""
        return tuple(self._values)

    @property
    def head(self) -> T:
        """The value of the lowest rank that ran."""
        return self._values[self.ranks[0]]

    def by_node(self) -> dict[int, RankResults[T]]:
        """The results of each node, by the node's number."""
        grouped: dict[int, dict[int, T]] = {}
        for rank, value in self._values.items():
            grouped.setdefault(self._nodes.get(rank, 0), {})[rank] = value
        return {node: RankResults(values, self._nodes) for node, values in grouped.items()}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values.values())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> RankResults[T]: ...
    def __getitem__(self, index: int | slice) -> T | RankResults[T]:
        if isinstance(index, slice):
            top = max(self._values, default=-1) + 1
            chosen = [rank for rank in range(top)[index] if rank in self._values]
            return RankResults({rank: self._values[rank] for rank in chosen}, self._nodes)
        if -len(self._values) <= index < 0:
            return self._values[self.ranks[index]]
        if index not in self._values:
            raise IndexError(f"rank {index} has no value here; ranks that have: {self._spelt()}")
        return self._values[index]

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._values.values())

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """The lowest rank from `start` to before `stop` whose value equals `value`; else ValueError."""
        for rank, each in self._values.items():
            if rank >= start and (stop is None or rank < stop) and each == value:
                return rank
        raise ValueError(f"no rank has the value {value!r}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RankResults):
            return self._values == other._values
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _spelt(self) -> str:
        return spell_ranks(self._values) or "none"

    def __repr__(self) -> str:
        groups: list[tuple[str, list[int]]] = []
        for rank, value in self._values.items():
            text = _repr(value)
            same = next((ranks for known, ranks in groups if known == text), None)
            if same is None:
                groups.append((text, [rank]))
            else:
                same.append(rank)
        if not groups:
            return "RankResults()"
        labels = [f"[{spell_ranks(ranks)}]" for _, ranks in groups]
        width = max(map(len, labels))
        lines: list[str] = []
        for label, (text, _) in zip(labels, groups, strict=True):
            indented = text.replace("\n", "\n" + " " * (width + 1))
            lines.append(f"{label:<{width}} {indented}")
        return "\n".join(lines)


_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 6
_SHORT.maxstring = _SHORT.maxother = 200
_MOST_LINES = 12
_MOST_CHARACTERS = 4000


def _repr(value: object) -> str:
    """A value in few lines: long containers shortened, long reprs cut with a word about it."""
    try:
        text = pretty(value, max_width=100)
        if "\n" in text and isinstance(value, list | tuple | dict | set | frozenset | deque):
            return _SHORT.repr(value)
    except Exception as error:  # noqa: BLE001 - a user's broken __repr__ must not hide the others
        return f"<{type(value).__name__}, its repr raises {type(error).__name__}>"
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines"]
    text = "\n".join(lines)
    more = len(text) - _MOST_CHARACTERS
    return f"{text[:_MOST_CHARACTERS]} … {more:,} more characters" if more > 0 else text
