"""`RankResults`: one value per rank that ran."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Generic, NoReturn, TypeVar, overload

from IPython.lib.pretty import RepresentationPrinter

from skyward_nb.compat.ipython_private import print_by_repr
from skyward_nb.picture.figure_grid import in_grid
from skyward_nb.picture.rich import rich_html
from skyward_nb.protocol.message_parts import RUN_VALUE
from skyward_nb.words.bounds import SHOWN as _MOST_CHARACTERS
from skyward_nb.words.bounds import SHOWN_LINES as _MOST_LINES
from skyward_nb.words.bounds import cut
from skyward_nb.words.controls import spelt
from skyward_nb.words.ranks import count_ranks, ranks_by, spell_ranks

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

    def with_values(self, more: Mapping[int, T]) -> RankResults[T]:
        """The results with those of more ranks."""
        return RankResults({**self._values, **more}, self._nodes)

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
            there = spell_ranks(self._values) or "none"
            raise IndexError(f"rank {index} has no value here; ranks that have: {there}")
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

    def _repr_html_(self) -> str | None:
        """Tables, and what else has HTML of its own, of equal ranks together; None if no value has."""
        drawn = {rank: _own_html(value) for rank, value in self._values.items()}
        if not any(drawn.values()):
            return None
        left = _MOST_HTML
        parts: list[str] = []
        shown = {rank: drawn[rank] or _repr(value) for rank, value in self._values.items()}
        for ranks in ranks_by(shown).values():
            own = drawn[ranks[0]]
            left -= len(own or "")
            if own is not None and left > 0:
                data = {"text/html": own}
            else:
                data = {"text/plain": _repr(self._values[ranks[0]])}
            body = rich_html(data, f"value of {count_ranks(ranks)}")
            head = f"<div>[{spell_ranks(ranks)}]</div>"
            parts.append(f'<div style="min-width:0;overflow-x:auto">{head}{body}</div>')
        return in_grid(parts)

    def __repr__(self) -> str:
        texts = {rank: _repr(value) for rank, value in self._values.items()}
        groups = list(ranks_by(texts).items())
        if not groups:
            return "RankResults()"
        labels = [f"[{spell_ranks(ranks)}]" for _, ranks in groups]
        width = max(map(len, labels))
        lines: list[str] = []
        for label, (text, _) in zip(labels, groups, strict=True):
            indented = text.replace("\n", "\n" + " " * (width + 1))
            lines.append(f"{label:<{width}} {indented}")
        return "\n".join(lines)


_MOST_HTML = 500_000
_MOST_LINES_OF_EACH = 6
_MOST_OF_EACH = 200
_MOST_ITEMS = 6
_MOST_PRINTED = 100_000
_MOST_OBJECTS = 2000
_WIDE = 1 << 30
_LACKS_GROUP = "process group has not been initialized"
"""What torch says where a DDP model is rebuilt in a process without a group."""
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


class UnreturnedValue:
    """Stands in results for a value that cannot travel: `shown` is its repr on its rank, if known."""

    shown: str = ""

    def __init__(self, shown: str = "") -> None:
        self.shown = shown

    def __repr__(self) -> str:
        return f"{self.shown}{chr(10) if chr(10) in self.shown else ' '}(stays on the ranks)"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name}: this stands for a value that stays on the ranks: give the value a name there, "
            "and use that in a %%sky_remote cell"
        )


def why_it_stays(reason: str) -> str:
    """A note on a run's value that nobody asked for and that cannot be here, in one line."""
    why = reason.partition("\n")[0].removeprefix(f"{RUN_VALUE}: ")
    if _LACKS_GROUP in why:
        why = "it belongs to their process group, in which the notebook is not"
    return f"{RUN_VALUE} stays on the ranks: {why}"


class _Enough(Exception):
    """As much is printed as is going to be shown."""


class _Page(StringIO):
    """What is printed, up to so many characters and lines."""

    def __init__(self, most_lines: int = _MOST_PRINTED) -> None:
        super().__init__()
        self._left = _MOST_PRINTED
        self._lines_left = most_lines

    def write(self, text: str, /) -> int:
        self._left -= len(text)
        self._lines_left -= text.count("\n")
        if self._left < 0 or self._lines_left <= 0:
            raise _Enough
        return super().write(text)


class _Printer(RepresentationPrinter):
    """IPython's, which cuts each long repr before it is taken apart, line by line, to be printed."""

    def __init__(self, page: _Page, width: int, items: int, most: int) -> None:
        super().__init__(page, max_width=width, max_seq_length=items)
        self._most = most
        self._left = _MOST_OBJECTS
        by_repr = print_by_repr()
        for kind, known in list(self.type_pprinters.items()):
            if known is by_repr:
                self.type_pprinters[kind] = self._print_repr

    def pretty(self, obj: object) -> None:
        """Print an object in its own way; raises `_Enough` after a great many."""
        self._left -= 1
        if self._left < 0:
            raise _Enough
        self.takes_repr(type(obj))
        super().pretty(obj)

    def takes_repr(self, kind: type) -> bool:
        """Whether objects of this class are printed by their `__repr__`."""
        for each in kind.__mro__:
            if each in self.type_pprinters:
                return self.type_pprinters[each] == self._print_repr
            if (each.__module__, each.__name__) in self.deferred_pprinters:
                return False
            if "_repr_pretty_" in each.__dict__:
                return False
            if "__repr__" in each.__dict__ and each is not object:
                self.type_pprinters[each] = self._print_repr
                return True
        return False

    def _print_repr(self, obj: object, p: object, cycle: bool) -> None:
        first, *others = _cut_repr(obj, self._most, _MOST_LINES_OF_EACH).split("\n")
        with self.group():
            self.text(first)
            for line in others:
                self.break_()
                self.text(line)


def _own_html(value: object) -> str | None:
    """A value's HTML of its own, if it has one of a moderate size."""
    draw = getattr(type(value), "_repr_html_", None)
    try:
        drawn = draw(value) if draw is not None else None
    except Exception:  # noqa: BLE001 - a user's broken method: its repr is shown
        return None
    return drawn if isinstance(drawn, str) and len(drawn) <= _MOST_HTML else None


def _repr(value: object) -> str:
    """A value in few lines: long containers shortened, long reprs cut with a word about it."""
    try:
        return spelt(_print(value))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a user's broken __repr__ must not hide the others
        return f"<{type(value).__name__}, its repr raises {type(error).__name__}>"


def _print(value: object) -> str:
    is_container = isinstance(value, _CONTAINERS)
    page = _Page(1 if is_container else _MOST_PRINTED)
    printer = _Printer(page, 100, 1000, _MOST_CHARACTERS)
    if printer.takes_repr(type(value)):
        return _cut_repr(value, _MOST_CHARACTERS)
    if _fill(page, printer, value):
        return cut(page.getvalue(), _MOST_CHARACTERS, _MOST_LINES)
    if is_container:
        # One that takes more than a line is shown by its first items.
        page = _Page()
        if _fill(page, _Printer(page, _WIDE, _MOST_ITEMS, _MOST_OF_EACH), value):
            return cut(page.getvalue(), _MOST_CHARACTERS, _MOST_LINES)
    return cut(page.getvalue(), _MOST_CHARACTERS, _MOST_LINES, at_least=True)


def _fill(page: _Page, printer: _Printer, value: object) -> bool:
    """Print a value; whether all of it had room."""
    try:
        printer.pretty(value)
        printer.flush()
    except _Enough:
        with contextlib.suppress(_Enough):
            printer.flush()
        return False
    return True


def _cut_repr(value: object, most: int, most_lines: int = _MOST_LINES) -> str:
    """A value's repr, of which only the beginning is made where it is that of a long text."""
    if isinstance(value, str | bytes) and type(value) in (str, bytes) and len(value) > most:
        return f"{value[:most]!r} … {len(value) - most:,} more characters"
    return cut(repr(value), most, most_lines)
