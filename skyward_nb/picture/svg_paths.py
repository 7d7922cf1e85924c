"""Lines of a picture as SVG paths in whole units, without points too close to be visible. Pure."""

from __future__ import annotations

from collections.abc import Sequence

# Half a unit is a quarter of a pixel: what is farther than that from the line is kept.
_NEAR = 0.6
# A line of more points than this is so restless that its extremes in each column tell as much.
_MOST = 280
_COLUMN = 5.0


def line_path(xs: Sequence[float], ys: Sequence[float]) -> str:
    """The path through points, `xs` rising; `xs` and `ys` are as long as one another, and not empty."""
    points = straightened(xs, ys)
    if len(points) > _MOST:
        points = extremes(points)
    return f"M{_relative(points)}"


def band_path(xs: Sequence[float], tops: Sequence[float], floors: Sequence[float]) -> str:
    """The closed path around the area from `tops` down to `floors`, never narrower than it is."""
    at: list[float] = []
    least: list[float] = []
    most: list[float] = []
    for x, top, floor in zip(xs, tops, floors, strict=True):
        # The first and the last place are kept, so that the band is as long as the lines in it.
        if len(at) > 1 and x < at[-1] + _COLUMN and x != xs[-1]:
            least[-1], most[-1] = min(least[-1], top), max(most[-1], floor)
        else:
            at.append(x)
            least.append(top)
            most.append(floor)
    return f"M{_relative([*straightened(at, least), *reversed(straightened(at, most))])}z"


def straightened(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """The points at which a line turns; those left out are no farther than a hair from it.

    From each point kept, the next is the last one before the slopes to all between leave no common way.
    """
    at_x, at_y = xs[0], ys[0]
    kept = [(at_x, at_y)]
    last_x, last_y = at_x, at_y
    least, most = -1e18, 1e18
    for x, y in zip(xs[1:], ys[1:], strict=True):
        run, rise = x - at_x, y - at_y
        if not run * least <= rise <= run * most:
            kept.append((last_x, last_y))
            at_x, at_y = last_x, last_y
            run, rise = x - at_x, y - at_y
            least, most = -1e18, 1e18
        if run > 0:
            # Not by max and min, which cost a third of a picture's time.
            if (slope := (rise - _NEAR) / run) > least:
                least = slope
            if (slope := (rise + _NEAR) / run) < most:
                most = slope
        last_x, last_y = x, y
    if len(xs) > 1:
        kept.append((last_x, last_y))
    return kept


def extremes(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lowest and the highest point of each column, in their order; first and last stay."""
    kept = [points[0]]
    column = low = high = points[1]
    end = column[0] + _COLUMN
    for point in points[2:-1]:
        if point[0] >= end:
            kept += [low] if low is high else [low, high] if low[0] < high[0] else [high, low]
            low = high = point
            end = point[0] + _COLUMN
        elif point[1] < low[1]:
            low = point
        elif point[1] > high[1]:
            high = point
    kept += [low] if low is high else [low, high] if low[0] < high[0] else [high, low]
    return [*kept, points[-1]]


def _relative(points: Sequence[tuple[float, float]]) -> str:
    """Points as text: the first as it is, each other as its way from the one before."""
    x, y = round(points[0][0]), round(points[0][1])
    parts = [f"{x} {y}l"]
    for next_x, next_y in points[1:]:
        to_x, to_y = round(next_x), round(next_y)
        if to_x != x or to_y != y:
            # A sign parts two numbers as well as a space does.
            parts.append(f"{to_x - x}{to_y - y:+}")
            x, y = to_x, to_y
    return " ".join(parts) if len(parts) > 1 else f"{x} {y}l0 0"
