"""A metric over steps, in no more points than can be seen: neighbours are averaged. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

MOST_POINTS = 400


class Series(msgspec.Struct, frozen=True):
    """Values of one metric: `means` of `counts` values each, at `steps` to `steps + stride - 1`.

    Steps rise. What is not finite is counted in `missing` and has no point.
    """

    stride: int = 1
    steps: tuple[int, ...] = ()
    means: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    missing: int = 0


def extended(series: Series, points: Iterable[tuple[int, float]]) -> Series:
    """The series with more points, (step, value) each, in any order."""
    stride, missing = series.stride, series.missing
    sums = {
        step: (mean * count, count)
        for step, mean, count in zip(series.steps, series.means, series.counts, strict=True)
    }
    for step, value in points:
        if not math.isfinite(value):
            missing += 1
            continue
        at = step - step % stride
        total, count = sums.get(at, (0.0, 0))
        sums[at] = (total + value, count + 1)
        if len(sums) > MOST_POINTS:
            stride, sums = _halved(stride, sums)
    return _series(stride, sums, missing)


def thinned(series: Series, most: int) -> Series:
    """The series in at most so many points, as if fewer had been kept from the first on."""
    if len(series.steps) <= most:
        return series
    stride = series.stride
    sums = {
        step: (mean * count, count)
        for step, mean, count in zip(series.steps, series.means, series.counts, strict=True)
    }
    while len(sums) > most:
        stride, sums = _halved(stride, sums)
    return _series(stride, sums, series.missing)


def mean_of(series: Sequence[Series]) -> Series:
    """The mean over several ranks at each step, every rank counting the same."""
    if not series:
        return Series()
    stride = max(each.stride for each in series)
    sums: dict[int, tuple[float, int]] = {}
    for each in series:
        own: dict[int, tuple[float, int]] = {}
        for step, mean, count in zip(each.steps, each.means, each.counts, strict=True):
            at = step - step % stride
            total, known = own.get(at, (0.0, 0))
            own[at] = (total + mean * count, known + count)
        for at, (total, count) in own.items():
            known, ranks = sums.get(at, (0.0, 0))
            sums[at] = (known + total / count, ranks + 1)
    while len(sums) > MOST_POINTS:
        stride, sums = _halved(stride, sums)
    return _series(stride, sums, sum(each.missing for each in series))


def _halved(
    stride: int, sums: dict[int, tuple[float, int]]
) -> tuple[int, dict[int, tuple[float, int]]]:
    """Twice the stride, so that about half as many points are left."""
    stride *= 2
    fewer: dict[int, tuple[float, int]] = {}
    for step, (total, count) in sums.items():
        at = step - step % stride
        known, counted = fewer.get(at, (0.0, 0))
        fewer[at] = (known + total, counted + count)
    return stride, fewer


def _series(stride: int, sums: dict[int, tuple[float, int]], missing: int) -> Series:
    steps = tuple(sorted(sums))
    return Series(
        stride,
        steps,
        tuple(sums[step][0] / sums[step][1] for step in steps),
        tuple(sums[step][1] for step in steps),
        missing,
    )
