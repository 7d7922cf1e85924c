"""What a person should see of a run, as one value. Pure.

Text, HTML, widgets and the record for front ends draw this one view; `view/folding` makes the next
one of it and of events. It is bounded however much is printed or displayed: head and tail are kept,
the rest is counted. Its clock is `now`, which is set before folding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from skyward_nb.protocol.events import Progress, Telemetry
from skyward_nb.view.series import Series
from skyward_nb.view.terminal import Screen, seen
from skyward_nb.words.offers import Bill

if TYPE_CHECKING:
    from skyward_nb.names.plan import ManifestRow

MOST_TEXT = 256_000
"""Bytes of text that are kept of a run by default."""
MOST_RICH = 16_000_000
"""Bytes of figures and other rich output that are kept of a run."""
MOST_SHOWN = 500
"""Figures and other rich output that are kept of a run, in number."""
MOST_METRICS = 100
"""Metrics that are kept of a rank: the first so many that it logs."""
MOST_WINDOWS = 20
"""Windows of time of which it is kept how much a rank waited: the last so many."""

RankState = Literal["waiting", "running", "done", "failed", "stopped", "lost"]
RunState = Literal["starting", "running", "finished", "failed", "interrupted"]


class OutputLine(msgspec.Struct, frozen=True, gc=False):
    """One line of output, with its colours as SGR; several ranks when they wrote the same."""

    ranks: tuple[int, ...]
    stream: str
    text: str


class DisplayedObject(msgspec.Struct, frozen=True):
    """A rich object a rank displayed, or several ranks alike; `size` in bytes."""

    ranks: tuple[int, ...]
    data: dict[str, str]
    display_id: str | None = None
    size: int = 0


Entry = OutputLine | DisplayedObject


class RankView(msgspec.Struct, frozen=True):
    """How one rank is doing; `bars` from the outermost loop on, `ended` on the view's clock.

    `told` is when its loops last went on, on that clock. Not in `bars` are as many finished loops as
    `bars_done` counts, of which `bars_inner` go when another loop begins around them, and those that go on whose
    numbers are in `bars_hidden`; all of them took at most `loop_rows` rows so far.
    `peak` is the most bytes of memory that were seen; it `logs_more` when metrics are left out.
    `waits` are the shares of its last windows of time that it waited in collectives. One that was `halted` has stood
    at a breakpoint.
    """

    state: RankState = "running"
    stage: str = ""
    bars: tuple[Progress, ...] = ()
    bars_done: int = 0
    bars_inner: int = 0
    bars_hidden: frozenset[int] = frozenset()
    loop_rows: int = 0
    told: float = 0.0
    metrics: dict[str, float] = {}
    series: dict[str, Series] = {}
    logs_more: bool = False
    telemetry: Telemetry | None = None
    peak: int = 0
    waits: tuple[float, ...] = ()
    halted: bool = False
    ended: float | None = None


class StepView(msgspec.Struct, frozen=True):
    """A step of readying nodes; `began` and `ended` on the view's clock."""

    name: str
    text: str
    began: float
    ended: float | None = None


class NoteTable(msgspec.Struct, frozen=True):
    """Notes that make a table, with `remarks` below it; `lines` say all of it where there are no tables."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]
    lines: tuple[str, ...]


class FailedLine(msgspec.Struct, frozen=True):
    """A line at which ranks raised the same: `line` of `where`, which is `Cell In[3]` or a file."""

    ranks: tuple[int, ...]
    where: str
    line: int
    error: str


class RunView(msgspec.Struct, frozen=True):
    """The whole picture; times in seconds of one clock.

    `bar` is how far the whole of it is, where that is no rank's. `nodes` says which node a rank lives on. `text_size` bytes of text are in `entries`, of at most
    `most_text`; `cut` lines of ranks were left out before entry `gap`, and `logs` says how to get
    them; `shown` displays are there, and `unshown` were left out. What the pool costs stands in `bill`,
    whose clock is `wall` seconds ahead of this one. `screens` hold what is not ended yet, by
    rank and stream. The cell itself began at `ran_from`. Where an error stands below the picture, a page has
    the `short_headline`, and leaves the message and the `error_notes` to that. `hang` says which ranks wait for which, where
    nothing has gone on for a while. `failed_at` are lines of the user's code that raised.
    """

    run: str = ""
    nodes: dict[int, int] = {}
    title: str = ""
    about: str = ""
    state: RunState = "starting"
    phase: str = ""
    bar: Progress | None = None
    bill: Bill | None = None
    wall: float = 0.0
    steps: dict[tuple[int, ...], tuple[StepView, ...]] = {}
    awaited: int = 0
    ready: int = 0
    ranks: dict[int, RankView] = {}
    entries: tuple[Entry, ...] = ()
    screens: dict[tuple[int, str], Screen] = {}
    cursors: dict[int, int] = {}
    clearing: frozenset[int] = frozenset()
    most_text: int = MOST_TEXT
    text_size: int = 0
    rich_size: int = 0
    cut: int = 0
    gap: int = 0
    shown: int = 0
    unshown: int = 0
    logs: str = ""
    began: float = 0.0
    ran_from: float = 0.0
    now: float = 0.0
    ended: float | None = None
    headline: str = ""
    short_headline: str = ""
    hang: str = ""
    failed_at: tuple[FailedLine, ...] = ()
    tables: tuple[NoteTable, ...] = ()
    notes: tuple[str, ...] = ()
    error_notes: tuple[str, ...] = ()
    foot: tuple[str, ...] = ()
    manifest: tuple[ManifestRow, ...] = ()
    manifest_open: bool = False

    @property
    def took(self) -> float:
        """Seconds from the beginning until now, or until it ended."""
        return (self.now if self.ended is None else self.ended) - self.began


def cost_words(view: RunView) -> str:
    """What the pool costs an hour and has cost, in words; empty where it costs nothing."""
    now = view.now if view.ended is None else view.ended
    return view.bill.words(view.wall + now) if view.bill is not None else ""


def all_notes(view: RunView) -> tuple[str, ...]:
    """Notes in words, also those that make tables."""
    lines = (line for table in view.tables for line in table.lines)
    return (*lines, *view.notes, *view.error_notes)


def open_lines(view: RunView) -> list[OutputLine]:
    """Lines begun and not ended yet, as they stand, those of the ranks with the same text together."""
    found: dict[tuple[str, str], list[int]] = {}
    for (rank, stream), screen in view.screens.items():
        for row in seen(screen):
            found.setdefault((stream, row), []).append(rank)
    return [OutputLine(tuple(sorted(r)), stream, text) for (stream, text), r in found.items()]


def laid_out(view: RunView) -> Iterator[tuple[int, Entry | None]]:
    """Everything printed and displayed in order, numbered; None stands where lines are left out."""
    entries = (*view.entries, *open_lines(view))
    for index, entry in enumerate(entries):
        if view.cut and index == view.gap:
            yield index, None
        yield index, entry
    if view.cut and view.gap >= len(entries):
        yield len(entries), None
