"""Which figures stand side by side, and which lines stand before and after them. Pure.

Each rank's own lines and figures keep their order. Between ranks it may change: a rank prints after its figure
while the next one has still to show its own, and both figures belong together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from msgspec.structs import replace

from skyward_nb.view.run_view import DisplayedObject, Entry, OutputLine, RunView, laid_out

_FEW, _WIDE, _NARROW = 4, 320, 200
"""Pixels that each of a few ranks, and each of more, has at least for a figure."""
_MOST_AFTER = 40
"""So many lines may come while figures wait for those of other ranks."""
_SOON = 40
"""A rank whose figure is among the next so many entries has still to show it."""


@dataclass(frozen=True)
class Stretch:
    """Lines, None where some are left out, and the figures after them, with their numbers in the view."""

    lines: Sequence[OutputLine | None]
    figures: Sequence[tuple[int, DisplayedObject]] = ()


def stretches(view: RunView) -> Iterator[Stretch]:
    """All that was printed and displayed, in which the figures of several ranks come together."""
    entries = [*laid_out(view)]
    now = _Gathering()
    for at, (index, entry) in enumerate(entries):
        if isinstance(entry, DisplayedObject):
            if now.has_spoken(entry.ranks):
                yield now.ended()
                now = _Gathering(now.after)
            now.figures.append((index, entry))
        elif not now.figures:
            now.lines.append(entry)
        elif entry is None or len(now.after) == _MOST_AFTER:
            yield now.ended()
            now = _Gathering([*now.after, entry])
        elif now.is_past_figures(entry.ranks, islice(entries, at + 1, at + 1 + _SOON)):
            now.say_after(entry)
        else:
            now.lines.append(entry)
    yield now.ended()
    if now.after:
        yield Stretch(now.after)


@dataclass
class _Gathering:
    """A stretch while figures come, and the lines that come after them."""

    lines: list[OutputLine | None] = field(default_factory=list[OutputLine | None])
    figures: list[tuple[int, DisplayedObject]] = field(
        default_factory=list[tuple[int, DisplayedObject]]
    )
    after: list[OutputLine | None] = field(default_factory=list[OutputLine | None])

    def ended(self) -> Stretch:
        return Stretch(self.lines, self.figures)

    def is_past_figures(
        self, ranks: tuple[int, ...], coming: Iterable[tuple[int, Entry | None]]
    ) -> bool:
        """Whether a line of these ranks stands after the figures: they have shown theirs, or show none that is coming."""
        shown = any(not set(ranks).isdisjoint(one.ranks) for _, one in self.figures)
        if shown or self.has_spoken(ranks):
            return True
        return bool(self.after) and not _shows(ranks, coming)

    def has_spoken(self, ranks: tuple[int, ...]) -> bool:
        return any(line and not set(ranks).isdisjoint(line.ranks) for line in self.after)

    def say_after(self, new: OutputLine) -> None:
        """Put a line after the figures: with the same one of other ranks, if there is one."""
        for at in range(len(self.after) - 1, -1, -1):
            line = self.after[at]
            if line is None or not set(new.ranks).isdisjoint(line.ranks):
                break
            if (line.text, line.stream) == (new.text, new.stream):
                ranks = tuple(sorted((*line.ranks, *new.ranks)))
                self.after[at] = replace(line, ranks=ranks)
                return
        self.after.append(new)


def _shows(ranks: tuple[int, ...], entries: Iterable[tuple[int, Entry | None]]) -> bool:
    """Whether one of these ranks shows a figure among the entries."""
    return any(
        isinstance(entry, DisplayedObject) and not set(ranks).isdisjoint(entry.ranks)
        for _, entry in entries
    )


# ── the grid ────────────────────────────────────────────────────────────────────────────


def in_order(figures: Iterable[DisplayedObject]) -> list[DisplayedObject]:
    """Figures by rank: the first of each rank, then the second of each."""
    return [each for turn in turns(figures) for each in turn]


def turns(figures: Iterable[DisplayedObject]) -> list[list[DisplayedObject]]:
    """The first figure of each rank, the second of each, and so on."""
    counts: Counter[tuple[int, ...]] = Counter()
    found: list[list[DisplayedObject]] = []
    for each in figures:
        if (turn := counts[each.ranks]) == len(found):
            found.append([])
        found[turn].append(each)
        counts[each.ranks] += 1
    return [sorted(turn, key=lambda each: each.ranks) for turn in found]


def grid_columns(count: int) -> str:
    """The columns in which what so many ranks show stands side by side; one has the whole width."""
    if count < 2:
        return "minmax(0,1fr)"
    return f"repeat(auto-fit,minmax(min(100%,{_WIDE if count <= _FEW else _NARROW}px),1fr))"


def in_grid(parts: Sequence[str]) -> str:
    """Parts of several ranks, side by side where there is room."""
    if len(parts) < 2:
        return "".join(parts)
    style = f"display:grid;gap:0 12px;grid-template-columns:{grid_columns(len(parts))}"
    return f'<div style="{style}">{"".join(parts)}</div>'
