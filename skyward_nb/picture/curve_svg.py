"""One picture of curves: where its parts are, and their SVG. Pure.

Everything is counted in units of half a pixel, so that whole numbers are fine enough.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from skyward_nb.picture.legend import COLOURS, FONT, LETTER, MEAN, ROW, TEXT, legend, stroke
from skyward_nb.picture.scales import Scale, Tick, compact
from skyward_nb.picture.svg_paths import band_path, line_path
from skyward_nb.view.series import Series

_BOLD_LETTER = 13.6
_FOOT = 34
_LEAST_BODY = 80


@dataclass(frozen=True)
class Paper:
    """An empty image of `width` times `height` pixels."""

    width: int
    height: int

    def page(self, name: str, body: str) -> str:
        """The whole image."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {2 * self.width} {2 * self.height}" font-family="system-ui,sans-serif" '
            f'font-size="{FONT}" fill="{TEXT}"><title>{html.escape(name)}</title>{body}</svg>'
        )

    def empty(self, remark: str) -> str:
        """The drawing without any points."""
        across, middle = 2 * self.width, self.height
        return (
            f'<path d="M8 {2 * self.height - _FOOT}H{across - 8}" stroke="{TEXT}" opacity=".5"/>'
            f'<text x="{self.width}" y="{middle}" text-anchor="middle">{remark}</text>'
        )


@dataclass(frozen=True)
class _Box:
    """Where the lines are, in units."""

    left: int
    right: int
    top: int
    bottom: int

    def across(self, parts: Iterable[float]) -> list[float]:
        """Parts of the way from left to right as places."""
        left, span = self.left, self.right - self.left
        return [left + part * span for part in parts]

    def up(self, parts: Iterable[float]) -> list[float]:
        """Parts of the way from bottom to top as places."""
        bottom, span = self.bottom, self.bottom - self.top
        return [bottom - part * span for part in parts]


@dataclass(frozen=True)
class Sketch:
    """What a picture shows: series of ranks, none of them empty, and their mean, on two scales."""

    paper: Paper
    steps: Scale
    values: Scale
    ranks: Mapping[int, Series]
    mean: Series

    def drawn(self, colours: Mapping[int, int], remarks: Sequence[str]) -> str:
        """The picture; `colours` says which of `COLOURS` a rank has, `remarks` are words at its top."""
        across = 2 * self.paper.width
        shown = {rank: colours[rank] for rank in self.ranks} if self._has_lines() else {}
        rows = legend(shown, " · ".join(remarks), across)
        # A legend must not take the room of what it explains.
        most = (2 * self.paper.height - _FOOT - _LEAST_BODY) // ROW
        if len(rows) > most:
            rows = legend({}, " · ".join(remarks), across)
        box = self._box(len(rows))
        parts = [self._grid(box)]
        if len(self.ranks) > len(COLOURS):
            parts.append(self._band(box))
        elif self._has_lines():
            parts += [self._line(box, rank, colours[rank]) for rank in self.ranks]
        parts.append(self._strong(box))
        return "".join([*parts, *rows])

    def _has_lines(self) -> bool:
        """Whether each rank has a line of its own beside the mean."""
        return 2 <= len(self.ranks) <= len(COLOURS)

    def _box(self, rows: int) -> _Box:
        labels = [*self.values.ends(), *self.values.ticks(6)]
        left = max(len(tick.text) for tick in labels) * LETTER + 16
        right = max(60, len(self._newest()) * _BOLD_LETTER + 26)
        across = 2 * self.paper.width
        return _Box(
            round(min(left, across * 0.33)),
            round(across - min(right, across * 0.4)),
            max(14, rows * ROW + 12),
            2 * self.paper.height - _FOOT - 8,
        )

    def _newest(self) -> str:
        return compact(self.mean.means[-1]) if self.mean.means else ""

    def _grid(self, box: _Box) -> str:
        """Lines and numbers of both scales."""
        heights = (box.bottom - box.top) / 2
        beside = _apart(
            [*self.values.ends(), *self.values.ticks(max(2, min(6, int(heights // 20))))],
            lambda tick: (box.up([tick.part])[0] - 13, box.up([tick.part])[0] + 13),
        )
        below = self._below(box)
        lines = "".join(
            f"M{box.left} {round(y)}H{box.right}" for y in box.up(t.part for t in beside)
        )
        floor = box.bottom + 8
        marks = "".join(f"M{x} {floor}v6" for x, _, _ in below)
        words = "".join(
            f'<text x="{box.left - 10}" y="{round(y) + 7}" text-anchor="end">{tick.text}</text>'
            for tick, y in zip(beside, box.up(t.part for t in beside), strict=True)
        )
        row = 2 * self.paper.height - 7
        words += "".join(
            f'<text x="{x}" y="{row}" text-anchor="{anchor}">{text}</text>'
            for x, text, anchor in below
        )
        words += f'<text x="{2 * self.paper.width - 8}" y="{row}" text-anchor="end">step</text>'
        return (
            f'<path d="{lines}" stroke="{TEXT}" opacity=".22"/>'
            f'<path d="M{box.left} {floor}H{box.right}{marks}" stroke="{TEXT}" fill="none" '
            f'opacity=".6"/>{words}'
        )

    def _below(self, box: _Box) -> list[tuple[int, str, str]]:
        """Numbers under the floor: place, text and how the text lies at its place."""
        most = max(2, (box.right - box.left) // 120)

        def span(tick: Tick) -> tuple[float, float]:
            x, size = box.across([tick.part])[0], len(tick.text) * LETTER
            before = size if tick.part == 1 else size / 2
            return x - before - 10, x - before + size + 10

        return [
            (round(box.across([tick.part])[0]), tick.text, "end" if tick.part == 1 else "middle")
            for tick in _apart([*self.steps.ends(), *self.steps.ticks(most)], span)
        ]

    def _points(self, box: _Box, series: Series) -> tuple[list[float], list[float]]:
        return self._across(box, series.steps), box.up(self.values.parts(series.means))

    def _across(self, box: _Box, steps: Sequence[int]) -> list[float]:
        xs = box.across(self.steps.parts(steps))
        # Steps taken together can have a name below the first step.
        xs[0] = max(xs[0], box.left)
        return xs

    def _line(self, box: _Box, rank: int, colour: int) -> str:
        xs, ys = self._points(box, self.ranks[rank])
        if len(xs) == 1:
            return _dot(xs[0], ys[0], 4, COLOURS[colour])
        return (
            f'<path d="{line_path(xs, ys)}" fill="none" {stroke(colour)} stroke-linejoin="round"/>'
        )

    def _band(self, box: _Box) -> str:
        steps, lows, highs = edges(list(self.ranks.values()))
        xs = self._across(box, steps)
        low, high = box.up(self.values.parts(lows)), box.up(self.values.parts(highs))
        if len(xs) == 1:
            return (
                f'<path d="M{round(xs[0])} {round(low[0])}V{round(high[0])}" stroke="{MEAN}" '
                'stroke-width="12" opacity=".3"/>'
            )
        return (
            f'<path d="{band_path(xs, high, low)}" fill="{MEAN}" fill-opacity=".2" '
            f'stroke="{MEAN}" stroke-opacity=".6" stroke-linejoin="round"/>'
        )

    def _strong(self, box: _Box) -> str:
        """The mean, its end and its newest value."""
        if not self.mean.steps:
            return ""
        xs, ys = self._points(box, self.mean)
        # A mean of equal numbers can be off by a hair.
        ys = [min(max(y, box.top), box.bottom) for y in ys]
        line = ""
        if len(xs) > 1:
            line = (
                f'<path d="{line_path(xs, ys)}" fill="none" stroke="{MEAN}" stroke-width="4" '
                'stroke-linejoin="round"/>'
            )
        at = round(ys[-1])
        if xs[-1] < box.right - 24:
            # The number stands aside; what leads to it is no part of the curve.
            line += (
                f'<path d="M{round(xs[-1])} {at}H{box.right + 8}" stroke="{MEAN}" '
                'stroke-dasharray="2 6" opacity=".7"/>'
            )
        return (
            f"{line}{_dot(xs[-1], ys[-1], 7, MEAN)}"
            f'<text x="{box.right + 14}" y="{at + 7}" fill="{MEAN}" font-weight="600" '
            f'font-size="22">{self._newest()}</text>'
        )


def are_in_step(ranks: Sequence[Series]) -> bool:
    """Whether all have the same steps, as ranks that train together have."""
    first = ranks[0]
    return all(each.steps == first.steps and each.stride == first.stride for each in ranks)


def edges(ranks: Sequence[Series]) -> tuple[Sequence[int], list[float], list[float]]:
    """(steps, lowest, highest): what ranks, none of them empty, have at each step."""
    if are_in_step(ranks):
        columns = list(zip(*(each.means for each in ranks), strict=True))
        return ranks[0].steps, list(map(min, columns)), list(map(max, columns))
    stride = max(each.stride for each in ranks)
    lows: dict[int, float] = {}
    highs: dict[int, float] = {}
    for each in ranks:
        for step, value in zip(each.steps, each.means, strict=True):
            at = step - step % stride
            if value < lows.get(at, math.inf):
                lows[at] = value
            if value > highs.get(at, -math.inf):
                highs[at] = value
    steps = sorted(lows)
    return steps, [lows[step] for step in steps], [highs[step] for step in steps]


def _apart(ticks: Sequence[Tick], span: Callable[[Tick], tuple[float, float]]) -> list[Tick]:
    """The ticks whose labels have room beside those of the ticks before them."""
    taken: list[tuple[float, float]] = []
    kept: list[Tick] = []
    for tick in ticks:
        begin, end = span(tick)
        if all(end <= other_begin or begin >= other_end for other_begin, other_end in taken):
            taken.append((begin, end))
            kept.append(tick)
    return kept


def _dot(x: float, y: float, radius: int, colour: str) -> str:
    return f'<circle cx="{round(x)}" cy="{round(y)}" r="{radius}" fill="{colour}"/>'
