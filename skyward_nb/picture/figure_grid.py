"""Which figures stand side by side, and which lines stand before and after them. Pure.

Each rank's own lines and figures keep their order. Between ranks it may change: a rank prints after its figure
while the next one has still to show its own, and both figures belong together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from skyward_nb.view.run_view import DisplayedObject, Entry, OutputLine, RunView, laid_out

_FEW, _WIDE, _NARROW = 4, 320, 200
"""Pixels that each of a few ranks, and each of more, has at least for a figure."""
_MOST_AFTER = 40
"""So many lines may be held back while figures wait for those of other ranks."""
_SOON = 40
"""A rank whose figure is among the next so many entries has still to show it."""


@dataclass
class Stretch:
    """Lines, None where some are left out, and the figures after them, with their numbers in the view."""

    lines: list[OutputLine | None] = field(default_factory=list[OutputLine | None])
    figures: list[tuple[int, DisplayedObject]] = field(
        default_factory=list[tuple[int, DisplayedObject]]
    )
    shown: set[int] = field(default_factory=set[int])
    """The ranks that have a figure here."""

    def show(self, index: int, figure: DisplayedObject) -> None:
        """Add a figure, with its number in the view."""
        self.figures.append((index, figure))
        self.shown.update(figure.ranks)

    def say(self, new: OutputLine) -> None:
        """Add a line: with the same one of other ranks, where these have said nothing after it."""
        for at in range(len(self.lines) - 1, -1, -1):
            line = self.lines[at]
            if line is None or not set(new.ranks).isdisjoint(line.ranks):
                break
            if (line.text, line.stream) == (new.text, new.stream):
                ranks = tuple(sorted((*line.ranks, *new.ranks)))
                self.lines[at] = replace(line, ranks=ranks)
                return
        self.lines.append(new)


def stretches(view: RunView) -> Iterator[Stretch]:
    """All that was printed and displayed, in which the figures of several ranks come together."""
    entries = [*laid_out(view)]
    still = [Stretch()]
    places: dict[int, int] = {}
    for at, (index, entry) in enumerate(entries):
        if entry is None:
            yield from still
            still, places = [Stretch([None])], {}
            continue
        place = max(places.get(rank, 0) for rank in entry.ranks)
        if isinstance(entry, DisplayedObject):
            still[place].show(index, entry)
        else:
            place = _place_of(entry.ranks, place, still, entries, at)
            if place == 0:
                still[0].lines.append(entry)
            else:
                still[place].say(entry)
        places |= dict.fromkeys(entry.ranks, place)
        if sum(len(each.lines) for each in still[1:]) > _MOST_AFTER:
            yield from still[:-1]
            still, places = still[-1:], {}
    yield from still


def _place_of(
    ranks: tuple[int, ...],
    place: int,
    still: list[Stretch],
    entries: Sequence[tuple[int, Entry | None]],
    at: int,
) -> int:
    """The stretch for the line `at` of ranks that are at `place`: the next one after a figure of theirs.

    What ranks say that show nothing soon is the last so far.
    """
    if not still[place].shown.isdisjoint(ranks):
        if place + 1 == len(still):
            still.append(Stretch())
        return place + 1
    last = len(still) - 1
    is_there = place == last or _shows(ranks, entries[at + 1 : at + 1 + _SOON])
    return place if is_there else last


def _shows(ranks: tuple[int, ...], entries: Iterable[tuple[int, Entry | None]]) -> bool:
    """Whether one of these ranks shows a figure among the entries."""
    among = set(ranks)
    return any(
        isinstance(entry, DisplayedObject) and not among.isdisjoint(entry.ranks)
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
