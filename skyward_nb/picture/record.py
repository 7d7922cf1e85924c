"""A view as data for front ends of their own: the MIME type `application/vnd.skyward.run+json`.

Its JSON schema is made from these types (`make schema`), and a test holds the two together.
Binary parts of what ranks displayed are not in it: they stand in the `text/html` of the same
bundle, in the element with the `anchor` as its id. Nor are the lines of a run that printed much, where the
HTML comes with the record, so that a saved notebook holds them once: they are the lines of the HTML's elements
`.out > div > pre > .g`, in order, each without the label before it. Such a record has version 2.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Literal

import msgspec

from skyward_nb.picture.figure_grid import Stretch, stretches
from skyward_nb.picture.wording import headline, remarks
from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.view.run_view import (
    DisplayedObject,
    Entry,
    FailedLine,
    OutputLine,
    RankState,
    RunState,
    RunView,
)
from skyward_nb.view.series import Series, thinned
from skyward_nb.view.stragglers import behind
from skyward_nb.words.decoding import from_json
from skyward_nb.words.offers import Bill

MIME = "application/vnd.skyward.run+json"
_MOST_TEXT = 10_000
_MOST_POINTS = 20_000
_FEWEST_POINTS = 4
_MOST_TWICE = 20_000
"""Characters of output up to which it stands in the record, too, and not in the HTML alone."""
_NOT_AS_IT_IS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Colours, and what HTML does not keep."""
_TEXTUAL = ("text/plain", "text/markdown", "text/latex", "application/json")


class Bar(msgspec.Struct, frozen=True):
    """A loop: `done` of `total` items (null: not known) after `seconds`, at a depth from 0.

    It went on from a checkpoint with `skipped` of them.
    """

    text: str
    done: float
    total: float | None
    unit: str
    seconds: float
    level: int
    note: str
    over: bool
    skipped: float = 0.0


class Curve(msgspec.Struct, frozen=True):
    """A metric: mean values at steps, each of `stride` steps; `missing` values were not finite."""

    steps: tuple[int, ...]
    values: tuple[float, ...]
    stride: int
    missing: int


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One rank; `cpu` in percent of a core, `memory` and `peak` in bytes; null where not known.

    Not in `bars` are `bars_done` loops that ended, and `bars_hidden` that go on; all of them took at most `loop_rows`
    rows so far, which they keep. A metric that is not finite is null. Of very many metrics there are no curves.
    """

    rank: int
    node: int
    state: RankState
    stage: str
    bars: tuple[Bar, ...]
    metrics: dict[str, float | None]
    curves: dict[str, Curve]
    cpu: float | None
    memory: int | None
    peak: int | None
    gpu: Gpu | None
    remark: str
    bars_done: int = 0
    bars_hidden: int = 0
    loop_rows: int = 0


class Text(msgspec.Struct, frozen=True, tag="text", omit_defaults=True):
    """Lines that the same ranks wrote to the same stream; colours as SGR sequences.

    Either these `lines`, or so many that are `in_html` alone.
    """

    ranks: tuple[int, ...]
    stream: str
    lines: tuple[str, ...]
    in_html: int = 0


class Figure(msgspec.Struct, frozen=True, tag="display"):
    """Something a rank displayed: its MIME types, and of them those that are short text."""

    ranks: tuple[int, ...]
    types: tuple[str, ...]
    data: dict[str, str]
    anchor: str


class Cut(msgspec.Struct, frozen=True, tag="cut"):
    """Here so many lines are left out; `logs` says how to get them."""

    lines: int
    logs: str


class Name(msgspec.Struct, frozen=True):
    """A row of the manifest; `size` in bytes, `seconds` that packing took."""

    name: str
    status: str
    type: str
    size: int
    seconds: float


class StepRecord(msgspec.Struct, frozen=True):
    """A step of readying nodes; `seconds` it took or has taken."""

    nodes: tuple[int, ...]
    name: str
    text: str
    seconds: float
    done: bool


class Table(msgspec.Struct, frozen=True):
    """Notes that make a table, with `remarks` below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool's machines cost in dollars: an hour, so far, at most; null where not known or not said.

    `machines` says which they are, `source` who says what they cost.
    """

    hourly: float | None
    so_far: float | None
    most: float | None
    machines: str
    source: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One run as it is or was; `seconds` since it began. What costs nothing has no `cost`.

    It has version 2 where lines are in the HTML alone, which readers of version 1 do not know.
    Where the run's error stands below its picture, `short_headline` is what to show in place of the `headline`, and the
    error says the `error_notes`; else it is empty.
    """

    version: Literal[1, 2] = 1
    run: str
    state: RunState
    headline: str
    about: str
    seconds: float
    over: bool
    cost: Cost | None
    steps: tuple[StepRecord, ...]
    ranks: tuple[RankRecord, ...]
    remarks: tuple[str, ...]
    output: tuple[Text | Figure | Cut, ...]
    notes: tuple[str, ...]
    foot: tuple[str, ...]
    names: tuple[Name, ...]
    failures: tuple[FailedLine, ...] = ()
    short_headline: str = ""
    error_notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


def record_of(view: RunView, *, in_html: bool = False) -> Record:
    """The record of a view; with `in_html` lines may stand in its HTML alone, which must come with it."""
    late = behind(view.ranks) if view.ended is None else {}
    most = _most_points(view)
    output = _output(view, in_html=in_html)
    return Record(
        version=2 if any(isinstance(part, Text) and part.in_html for part in output) else 1,
        run=view.run,
        state=view.state,
        headline=headline(view),
        about=view.about,
        seconds=round(view.took, 3),
        over=view.ended is not None,
        cost=view.bill and cost_of(view.bill, _wall_time(view)),
        steps=tuple(
            StepRecord(
                nodes,
                step.name,
                step.text,
                round((view.now if step.ended is None else step.ended) - step.began, 3),
                step.ended is not None,
            )
            for nodes, steps in sorted(view.steps.items())
            for step in steps
        ),
        ranks=tuple(_rank(view, rank, late.get(rank, ""), most) for rank in sorted(view.ranks)),
        remarks=remarks(view),
        output=output,
        notes=view.notes,
        foot=view.foot,
        names=tuple(
            Name(row.name, row.status, row.type_name, row.size, round(row.seconds, 4))
            for row in view.manifest
        ),
        failures=view.failed_at,
        short_headline=view.short_headline,
        error_notes=view.error_notes,
        tables=tuple(Table(t.title, t.columns, t.rows, t.remarks) for t in view.tables),
    )


def _wall_time(view: RunView) -> float:
    return view.wall + (view.now if view.ended is None else view.ended)


def cost_of(bill: Bill, now: float) -> Cost:
    """The cost of a pool until `now`, in seconds since 1970."""
    spent = bill.spent(now)
    return Cost(
        hourly=bill.dollars,
        so_far=None if spent is None else round(spent, 4),
        most=bill.max_cost,
        machines=bill.what,
        source=bill.source,
    )


def as_json(view: RunView, *, in_html: bool = False) -> dict[str, Any]:
    """The record as front ends get it: JSON's own types; what is not finite is null. `in_html` as for `record_of`."""
    return from_json(msgspec.json.encode(record_of(view, in_html=in_html)), Any)


def schema() -> bytes:
    """The JSON schema of the MIME type, made from the types; the same on every Python."""
    made = msgspec.json.schema(Record)
    for each in made["$defs"].values():
        # Only newer Pythons take the indentation out of docstrings.
        each["description"] = inspect.cleandoc(each["description"])
    return msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n"


def anchor(view: RunView, index: int) -> str:
    """The id of the element that shows entry `index` in the HTML."""
    return f"{group(view)}-{index}"


def group(view: RunView) -> str:
    """A prefix for ids of this run's elements in a page."""
    return f"sky-{view.run.replace('/', '-') or 'run'}"


def _most_points(view: RunView) -> int:
    """The number of points per curve that keeps their sum within bounds; 0 for no curves."""
    curves = sum(len(now.series) for now in view.ranks.values())
    most = _MOST_POINTS // max(1, curves)
    return most if most >= _FEWEST_POINTS else 0


def _rank(view: RunView, rank: int, late: str, most: int) -> RankRecord:
    """A rank that is `late`, in words; of each curve it has the `most` points."""
    now = view.ranks[rank]
    sample = now.telemetry
    return RankRecord(
        rank=rank,
        node=view.nodes.get(rank, 0),
        state=now.state,
        stage=now.stage,
        bars=tuple(
            Bar(
                *(b.text, b.done, b.total, b.unit, round(b.seconds, 3)),
                *(b.level, b.note, b.over, b.skipped),
            )
            for b in now.bars
        ),
        metrics={
            name: value if math.isfinite(value) else None for name, value in now.metrics.items()
        },
        curves={name: _curve(thinned(series, most)) for name, series in now.series.items() if most},
        cpu=sample.cpu if sample else None,
        memory=sample.rss if sample else None,
        peak=now.peak or None,
        gpu=sample.gpu if sample else None,
        remark=late,
        bars_done=now.bars_done,
        bars_hidden=len(now.bars_hidden),
        loop_rows=now.loop_rows,
    )


def _curve(series: Series) -> Curve:
    return Curve(series.steps, series.means, series.stride, series.missing)


def _output(view: RunView, *, in_html: bool) -> tuple[Text | Figure | Cut, ...]:
    there = [place for each in stretches(view) for place in _places(each)]
    size = sum(len(entry.text) for _, entry in there if isinstance(entry, OutputLine))
    once = in_html and size > _MOST_TWICE

    def kind_of(place: tuple[int, Entry | None]) -> tuple[object, ...]:
        index, entry = place
        if not isinstance(entry, OutputLine):
            return (index, entry is None)
        return (entry.ranks, entry.stream, once and not _NOT_AS_IT_IS.search(entry.text))

    found: list[Text | Figure | Cut] = []
    for kind, places in groupby(there, kind_of):
        entries = list(places)
        index, first = entries[0]
        if first is None:
            found.append(Cut(view.cut, view.logs))
        elif isinstance(first, DisplayedObject):
            found.append(_figure(view, index, first))
        elif kind[-1]:
            found.append(Text(first.ranks, first.stream, (), in_html=len(entries)))
        else:
            lines = tuple(entry.text for _, entry in entries if isinstance(entry, OutputLine))
            found.append(Text(first.ranks, first.stream, lines))
    return tuple(found)


def _places(stretch: Stretch) -> Iterator[tuple[int, Entry | None]]:
    """What is in a stretch, in the order of the HTML; figures with their numbers in the view."""
    yield from ((0, line) for line in stretch.lines)
    yield from stretch.figures


def _figure(view: RunView, index: int, entry: DisplayedObject) -> Figure:
    short = {
        mime: text
        for mime, text in entry.data.items()
        if mime in _TEXTUAL and len(text) <= _MOST_TEXT
    }
    return Figure(entry.ranks, tuple(entry.data), short, anchor(view, index))


if __name__ == "__main__":
    sys.stdout.buffer.write(schema())
