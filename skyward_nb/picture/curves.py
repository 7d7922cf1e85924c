"""Curves of metrics over steps as images that need no script, no style sheet and no theme. Pure.

An image cannot see the page that it is on, so every colour is a middle one, that stands out on white
as well as on near-black, and nothing is painted behind the lines.
"""

from __future__ import annotations

import base64
import bisect
import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from skyward_nb.picture.curve_svg import Paper, Sketch, are_in_step
from skyward_nb.picture.scales import Scale, compact
from skyward_nb.view.series import Series, mean_of

MOST_LINES = 8
LEAST_WIDTH, LEAST_HEIGHT = 200, 80

# Values that span more than this many decades are drawn by decades.
_LOG_DECADES = 1.7
# What XML has no way to write.
_UNWRITABLE = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_LONGEST_NAME = 80


@dataclass(frozen=True)
class _Metric:
    """One metric made ready: ranks that have a finite value, in order, their mean and ends."""

    ranks: Mapping[int, Series]
    mean: Series
    low: float
    high: float
    missing: int

    @property
    def spans_decades(self) -> bool:
        """Whether a linear scale would hide the small of its values, which are all above 0."""
        if not self.ranks or self.low <= 0:
            return False
        return math.log10(self.high) - math.log10(self.low) > _LOG_DECADES


def suits_log(by_rank: Mapping[int, Series]) -> bool:
    """Whether all values are above 0 and span so much that a linear scale would hide the small."""
    return _metric(by_rank).spans_decades


def title(name: str, by_rank: Mapping[int, Series]) -> str:
    """The newest values in words: `loss · mean 0.231 (0.208 – 0.284)`.

    The mean is the one that the image ends at, and lies between the two others.
    """
    return _title(name, _metric(by_rank))


def curve(
    name: str,
    by_rank: Mapping[int, Series],
    *,
    is_log: bool = False,
    width: int = 420,
    height: int = 150,
) -> str:
    """One metric by step as an `<img>` element that holds its image: a thin line per rank, a strong mean.

    More than `MOST_LINES` ranks are a band from the lowest to the highest. `is_log` asks for a log
    scale, and has no effect where a value is 0 or below. `width` and `height` are pixels, and at
    least `LEAST_WIDTH` and `LEAST_HEIGHT`.
    """
    return _image(name, _metric(by_rank), is_log, width, height)


def _title(name: str, metric: _Metric) -> str:
    mean = metric.mean
    if not mean.steps:
        return f"{name} · {'no finite value' if metric.missing else 'no value yet'}"
    if len(metric.ranks) == 1:
        return f"{name} · {compact(mean.means[-1])}"
    newest = [
        value
        for series in metric.ranks.values()
        if (value := _value_at(series, mean.steps[-1], mean.stride)) is not None
    ]
    low, high = min(newest), max(newest)
    like = max(abs(low), abs(high))
    ends = compact(low, like=like), compact(high, like=like)
    spread = f" ({ends[0]} – {ends[1]})" if ends[0] != ends[1] else ""
    return f"{name} · mean {compact(mean.means[-1], like=like)}{spread}"


def _value_at(series: Series, step: int, stride: int) -> float | None:
    """What a rank had in `stride` steps from `step`, or else just before; None if it began later."""
    begin = bisect.bisect_left(series.steps, step)
    end = bisect.bisect_left(series.steps, step + stride)
    if begin == end:
        return series.means[end - 1] if end else None
    counts = series.counts[begin:end]
    # Each divided by itself, for sums of huge values are not finite.
    parts = zip(series.means[begin:end], counts, strict=True)
    return sum(mean * (count / sum(counts)) for mean, count in parts)


def _image(name: str, metric: _Metric, is_log: bool, width: int, height: int) -> str:
    paper = Paper(max(width, LEAST_WIDTH), max(height, LEAST_HEIGHT))
    name = _writable(name)
    is_log = is_log and bool(metric.ranks) and 0 < metric.low < metric.high
    body = _body(paper, metric, is_log)
    source = base64.b64encode(paper.page(name, body).encode()).decode()
    words = html.escape(_sentence(name, metric, is_log))
    return (
        f'<img alt="{words}" width="{paper.width}" height="{paper.height}" '
        f'style="max-width:100%;height:auto" src="data:image/svg+xml;base64,{source}"/>'
    )


def _body(paper: Paper, metric: _Metric, is_log: bool) -> str:
    if not metric.ranks:
        return paper.empty("no finite value" if metric.missing else "no value yet")
    remarks = ["log scale"] if is_log else []
    if metric.missing:
        remarks.append(f"{metric.missing:,} not finite")
    steps = Scale(
        min(series.steps[0] for series in metric.ranks.values()),
        max(series.steps[-1] for series in metric.ranks.values()),
    )
    values = Scale(metric.low, metric.high, is_log)
    sketch = Sketch(paper, steps, values, metric.ranks, metric.mean)
    return sketch.drawn(_colours(list(metric.ranks)), remarks)


def _metric(by_rank: Mapping[int, Series]) -> _Metric:
    finite = {rank: _finite(by_rank[rank]) for rank in sorted(by_rank)}
    ranks = {rank: series for rank, series in finite.items() if series.steps}
    return _Metric(
        ranks,
        _mean(ranks),
        min((min(series.means) for series in ranks.values()), default=0.0),
        max((max(series.means) for series in ranks.values()), default=0.0),
        sum(series.missing for series in finite.values()),
    )


def _writable(name: str) -> str:
    """A name that XML can hold, and that a title has room for."""
    name = _UNWRITABLE.sub("\ufffd", name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _finite(series: Series) -> Series:
    """The series without points that are not finite, which sums of huge values can become."""
    if math.isfinite(sum(series.means)):
        return series
    kept = [i for i, value in enumerate(series.means) if math.isfinite(value)]
    return Series(
        series.stride,
        tuple(series.steps[i] for i in kept),
        tuple(series.means[i] for i in kept),
        tuple(series.counts[i] for i in kept),
        series.missing + len(series.means) - len(kept),
    )


def _colours(ranks: Sequence[int]) -> dict[int, int]:
    """The colour of each rank: always the same one, in pools of no more ranks than colours."""
    if all(0 <= rank < MOST_LINES for rank in ranks):
        return {rank: rank for rank in ranks}
    return {rank: place % MOST_LINES for place, rank in enumerate(ranks)}


def _mean(ranks: Mapping[int, Series]) -> Series:
    """The mean, as far as at least half of the ranks are, and two of them.

    Beyond, it would jump to whatever the fastest rank says.
    """
    mean = _mean_of(list(ranks.values()))
    if len(ranks) < 2:
        return mean
    lasts = sorted(series.steps[-1] for series in ranks.values())
    until = lasts[0] if len(lasts) == 2 else lasts[len(lasts) // 2]
    count = max(1, bisect.bisect_right(mean.steps, until))
    return Series(mean.stride, mean.steps[:count], mean.means[:count], mean.counts[:count])


def _mean_of(ranks: Sequence[Series]) -> Series:
    """The mean of ranks, also of values whose sum is too large for a number."""
    if len(ranks) < 2:
        return ranks[0] if ranks else Series()
    mean = _mean_in_step(ranks) if are_in_step(ranks) else mean_of(ranks)
    if all(map(math.isfinite, mean.means)):
        return mean
    # Small values are lost on this way, and large ones can grow by a hair.
    mean = _times(mean_of([_times(series, 2.0**-64) for series in ranks]), 2.0**64)
    low, high = min(min(each.means) for each in ranks), max(max(each.means) for each in ranks)
    return msgspec.structs.replace(
        mean, means=tuple(min(max(value, low), high) for value in mean.means)
    )


def _mean_in_step(ranks: Sequence[Series]) -> Series:
    """What `mean_of` says of ranks that have the same steps, in a seventh of its time."""
    first, count = ranks[0], len(ranks)
    columns = zip(*(each.means for each in ranks), strict=True)
    means = tuple(sum(column) / count for column in columns)
    return Series(first.stride, first.steps, means, (count,) * len(means))


def _times(series: Series, factor: float) -> Series:
    return msgspec.structs.replace(series, means=tuple(mean * factor for mean in series.means))


def _sentence(name: str, metric: _Metric, is_log: bool) -> str:
    """The image in one sentence."""
    ranks, mean, missing = metric.ranks, metric.mean, metric.missing
    lost = f"{missing:,} value{'s are' if missing > 1 else ' is'} not finite" if missing else ""
    if not ranks:
        return f"{name}: {lost or 'no value yet'}."
    who = f"{len(ranks)} ranks" if len(ranks) > 1 else f"rank {next(iter(ranks))}"
    parts: list[str] = []
    if mean.steps:
        ends = [f"{compact(mean.means[i], 4)} at step {mean.steps[i]}" for i in (0, -1)]
        what = "the mean is " if len(ranks) > 1 else ""
        parts.append(what + (" and ".join(ends) if len(mean.steps) > 1 else ends[0]))
    if metric.low < metric.high:
        parts.append(f"all are from {compact(metric.low, 4)} to {compact(metric.high, 4)}")
    if is_log:
        parts.append("on a log scale")
    if lost:
        parts.append(lost)
    return f"{name} by step, {who}: {', '.join(parts)}."
