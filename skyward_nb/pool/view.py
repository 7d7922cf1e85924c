"""What a person should see of a run, as one value folded from events. Pure.

Text, HTML, widgets and the record for front ends draw this one view. It is bounded however much
is printed or displayed: head and tail are kept, the rest is counted. Its clock is `now`, which
whoever folds sets before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec.structs import replace

from skyward_nb.pool.ledger import Row
from skyward_nb.pool.series import Series, extended
from skyward_nb.pool.terminal import Screen, feed, seen
from skyward_nb.words.errors import spell_size
from skyward_nb.words.messages import (
    Clear,
    Display,
    Event,
    Metric,
    Output,
    Phase,
    Progress,
    RankDone,
    RankLost,
    RankReady,
    Stage,
    Step,
    Telemetry,
)

MOST_TEXT = 256_000
"""Bytes of text that are kept of a run unless it is told otherwise."""
MOST_RICH = 16_000_000
"""Bytes of figures and other rich output that are kept of a run."""
MOST_METRICS = 100
"""Metrics that are kept of a rank: the first so many that it logs."""
_HEAD_PART = 0.25
_SLACK = 1.25
_PER_LINE = 8
_LOOK_AHEAD = 16
_MOST_BARS = 8

RankState = Literal["waiting", "running", "done", "failed", "stopped", "lost"]
RunState = Literal["starting", "running", "finished", "failed", "interrupted"]


class Line(msgspec.Struct, frozen=True):
    """One line of output, with its colours as SGR; several ranks when they wrote the same."""

    ranks: tuple[int, ...]
    stream: str
    text: str


class Shown(msgspec.Struct, frozen=True):
    """A rich object a rank displayed, or several ranks alike; `size` in bytes."""

    ranks: tuple[int, ...]
    data: dict[str, str]
    display_id: str | None = None
    size: int = 0


Entry = Line | Shown


class RankView(msgspec.Struct, frozen=True):
    """How one rank is doing; `bars` from the outermost loop on, `ended` on the view's clock.

    `peak` is the most bytes of memory that were seen; it `logs_more` when metrics are left out.
    """

    state: RankState = "running"
    stage: str = ""
    bars: tuple[Progress, ...] = ()
    metrics: dict[str, float] = {}
    series: dict[str, Series] = {}
    logs_more: bool = False
    telemetry: Telemetry | None = None
    peak: int = 0
    ended: float | None = None


class StepView(msgspec.Struct, frozen=True):
    """A step of readying nodes; `began` and `ended` on the view's clock."""

    name: str
    text: str
    began: float
    ended: float | None = None


class View(msgspec.Struct, frozen=True):
    """The whole picture; times in seconds of one clock.

    `nodes` says which node a rank lives on. `text_size` bytes of text are in `entries`, of at most `most_text`; `cut` lines were left out
    before entry `gap`, and `logs` says how to get them. `screens` hold what is not ended yet,
    by rank and stream. The cell itself began at `ran_from`.
    """

    run: str = ""
    nodes: dict[int, int] = {}
    title: str = ""
    about: str = ""
    state: RunState = "starting"
    phase: str = ""
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
    logs: str = ""
    began: float = 0.0
    ran_from: float = 0.0
    now: float = 0.0
    ended: float | None = None
    headline: str = ""
    notes: tuple[str, ...] = ()
    foot: tuple[str, ...] = ()
    manifest: tuple[Row, ...] = ()
    manifest_open: bool = False

    @property
    def took(self) -> float:
        """Seconds from the beginning until now, or until it ended."""
        return (self.now if self.ended is None else self.ended) - self.began


def fold(view: View, *events: Event) -> View:
    """The view after more events.

    A line that several ranks wrote stands where the first of them wrote it, and what a rank wrote
    before it stands before it. Other lines stand in the order in which they came; among those
    that come together, the ones of one rank may go before those of another.
    """
    folding = _Folding(view)
    for event in events:
        folding.take(event)
    return folding.view()


def open_lines(view: View) -> list[Line]:
    """Lines begun and not ended yet, as they stand, those of the ranks with the same text together."""
    found: dict[tuple[str, str], list[int]] = {}
    for (rank, stream), screen in view.screens.items():
        for row in seen(screen):
            found.setdefault((stream, row), []).append(rank)
    return [Line(tuple(sorted(r)), stream, text) for (stream, text), r in found.items()]


@lru_cache(maxsize=4096)
def _joined(ranks: tuple[int, ...], rank: int) -> tuple[int, ...] | None:
    """The ranks with one more; None when it is among them."""
    return None if rank in ranks else tuple(sorted((*ranks, rank)))


class _Folding:
    """A view while it is folded: the only place where anything changes."""

    def __init__(self, view: View) -> None:
        self._before = view
        self._entries = list(view.entries)
        self._fresh = len(self._entries)
        self._cursors = dict(view.cursors)
        self._screens = dict(view.screens)
        self._ranks = dict(view.ranks)
        self._points: dict[int, dict[str, list[tuple[int, float]]]] = {}
        self._texts: dict[int, tuple[str, list[str]]] = {}
        self._known: set[str] | None = None
        self._updates: dict[tuple[int, str], Shown] = {}
        self._clearing = set(view.clearing)
        self._steps = dict(view.steps)
        self._phase = view.phase
        self._awaited, self._ready = view.awaited, view.ready
        self._text_size, self._rich_size = view.text_size, view.rich_size
        self._cut, self._gap = view.cut, view.gap

    def view(self) -> View:
        """What has come of it."""
        # The last first: each finds its place before what is there.
        for rank in sorted(self._texts, reverse=True):
            self._print(rank)
        self._draw_series()
        self._update_shown()
        return replace(
            self._before,
            phase=self._phase,
            steps=self._steps,
            awaited=self._awaited,
            ready=self._ready,
            ranks=self._ranks,
            entries=tuple(self._entries),
            screens=self._screens,
            cursors=self._cursors,
            clearing=frozenset(self._clearing),
            text_size=self._text_size,
            rich_size=self._rich_size,
            cut=self._cut,
            gap=self._gap,
        )

    def take(self, event: Event) -> None:
        """One more event."""
        match event:
            case Output():
                self._hear(event)
            case Display():
                self._print(event.rank)
                self._show(event)
            case Clear(rank=rank):
                self._print(rank)
                self._clearing.add(rank)
                if not event.wait:
                    self._clear_if_due(rank)
            case Progress():
                self._advance(event)
            case Metric():
                self._log(event)
            case _:
                self._take_rare(event)

    def _take_rare(self, event: Event) -> None:
        match event:
            case Phase(text=text):
                self._phase = text
            case Stage(rank=rank, text=text):
                self._set(rank, stage=text)
            case Step():
                self._take_step(event)
            case RankReady():
                self._ready += 1
            case Telemetry(rank=rank):
                if rank not in self._ranks:
                    return  # of a rank that runs no part of this
                peak = max(self._rank(rank).peak, event.rss)
                self._set(rank, telemetry=event, peak=peak)
            case RankDone(rank=rank):
                state: RankState = "failed" if event.failure or event.rejected else "done"
                self._end(rank, "stopped" if event.interrupted else state)
            case RankLost(rank=rank):
                self._end(rank, "stopped" if event.asked else "lost")
            case _:
                pass

    # ── ranks and nodes ─────────────────────────────────────────────────────────────────

    def _rank(self, rank: int) -> RankView:
        return self._ranks.get(rank) or RankView()

    def _set(self, rank: int, **changes: object) -> None:
        self._ranks[rank] = replace(self._rank(rank), **changes)

    def _end(self, rank: int, state: RankState) -> None:
        """A rank has finished: lines it left open are ended."""
        self._end_open(rank)
        self._set(rank, state=state, stage="", ended=self._before.now)

    def _take_step(self, event: Step) -> None:
        now = self._before.now
        steps = {step.name: step for step in self._steps.get(event.nodes, ())}
        known = steps.get(event.name) or StepView(event.name, "", now)
        text = event.text or known.text
        steps[event.name] = StepView(
            event.name, text, known.began, ended=now if event.done else None
        )
        self._steps[event.nodes] = tuple(steps.values())

    def _advance(self, event: Progress) -> None:
        """A bar stands at the place of its earlier self, or of the one before it that was like it."""
        others = [bar for bar in self._rank(event.rank).bars if bar.bar != event.bar]
        if event.over and event.level == 0:
            others = [bar for bar in others if not bar.level]
        bars = [bar for bar in others if not (bar.over and _alike(bar, event))]
        if event.keeping or not event.over:
            bars.append(event)
        bars.sort(key=lambda bar: (bar.level, bar.bar))
        while len(bars) > _MOST_BARS:
            bars.remove(next((bar for bar in bars if bar.over), bars[-1]))
        self._set(event.rank, bars=tuple(bars))

    def _log(self, event: Metric) -> None:
        points = self._points.setdefault(event.rank, {})
        for name, value in event.values.items():
            points.setdefault(name, []).append((event.step, value))

    def _draw_series(self) -> None:
        for rank, points in self._points.items():
            now = self._rank(rank)
            metrics, series = dict(now.metrics), dict(now.series)
            more = now.logs_more
            for name, values in points.items():
                if name not in metrics and len(metrics) >= MOST_METRICS:
                    more = True
                    continue
                metrics[name] = values[-1][1]
                series[name] = extended(series.get(name, Series()), values)
            self._set(rank, metrics=metrics, series=series, logs_more=more)

    # ── text ────────────────────────────────────────────────────────────────────────────

    def _hear(self, event: Output) -> None:
        """Put text by until the rank does something else: much at once is less work."""
        stream, texts = self._texts.get(event.rank, (event.stream, []))
        if stream != event.stream:
            self._print(event.rank)
            texts = []
        texts.append(event.text)
        self._texts[event.rank] = event.stream, texts

    def _print(self, rank: int) -> None:
        """Show what was heard of a rank."""
        stream, texts = self._texts.pop(rank, ("", []))
        if not texts:
            return
        self._clear_if_due(rank)
        key = rank, stream
        screen, lines = feed(
            self._screens.get(key) or Screen(),
            "".join(texts),
            lambda: self._take_back(rank, stream),
        )
        self._screens[key] = screen
        if lines:
            self._place(rank, stream, self._worth_placing(rank, lines))
            if self._text_size > self._before.most_text * _SLACK:
                self._cut_text()

    def _worth_placing(self, rank: int, lines: list[str]) -> list[str]:
        """The lines, without those that would be left out again at once."""
        most = self._before.most_text
        if not self._cut or len(lines) * _PER_LINE < most:
            return lines
        count = _within((Line((), "", text) for text in reversed(lines)), most)
        self._cut += len(lines) - count
        kept = lines[len(lines) - count :]
        entries = self._entries
        for index in range(self._cursors.get(rank, 0), len(entries) if kept else 0):
            entry = entries[index]
            if isinstance(entry, Line) and entry.text == kept[0] and rank not in entry.ranks:
                self._cursors[rank] = index
                break
        return kept

    def _place(self, rank: int, stream: str, lines: Iterable[str]) -> None:
        """Put a rank's lines: with equal ones of other ranks after its last, or by themselves."""
        entries = self._entries
        at = self._cursors.get(rank, 0)
        own: list[Entry] = []
        size = 0
        count = len(entries)
        known = self._known_texts()
        alone = (rank,)
        for text in lines:
            found = None
            if text in known and at < count:
                found = self._find(at, rank, stream, text)
            if found is None:
                own.append(Line(alone, stream, text))
                size += len(text) + _PER_LINE
                continue
            index, ranks = found
            if own:
                put = min(index, max(at, self._fresh))
                self._insert(put, own)
                index += len(own)
                count += len(own)
                own = []
            entries[index] = Line(ranks, stream, text)
            at = index + 1
        if own:
            at = max(at, self._fresh)
            self._insert(at, own)
            at += len(own)
        self._cursors[rank] = at
        self._text_size += size

    def _find(
        self, at: int, rank: int, stream: str, text: str
    ) -> tuple[int, tuple[int, ...]] | None:
        """Where other ranks have the same line, and those ranks with this one.

        It is looked for soon after `at`, and in what has just come.
        """
        entries = self._entries
        for begin in (at,) if at >= self._fresh else (at, self._fresh):
            index, last = begin, min(begin + _LOOK_AHEAD, len(entries))
            while index < last:
                entry = entries[index]
                if type(entry) is Line and entry.text == text and entry.stream == stream:
                    ranks = _joined(entry.ranks, rank)
                    if ranks is not None:
                        return index, ranks
                index += 1
        return None

    def _known_texts(self) -> set[str]:
        """Texts of all lines there are; lines that are not among them need no search."""
        if self._known is None:
            self._known = {entry.text for entry in self._entries if isinstance(entry, Line)}
        return self._known

    def _insert(self, at: int, new: list[Entry]) -> None:
        entries = self._entries
        if self._known is not None:
            self._known.update([entry.text for entry in new if isinstance(entry, Line)])
        if at >= len(entries):
            entries += new
            return
        entries[at:at] = new
        self._fresh += len(new) * (at < self._fresh)
        self._gap += len(new) * (at < self._gap)
        for rank, cursor in self._cursors.items():
            if cursor > at:
                self._cursors[rank] = cursor + len(new)

    def _take_back(self, rank: int, stream: str) -> str | None:
        """The last line of a rank's stream, which is its own again: the cursor went up to it."""
        is_last = True
        for index in range(len(self._entries) - 1, self._gap - 1, -1):
            entry = self._entries[index]
            if rank not in entry.ranks:
                continue
            if not isinstance(entry, Line) or entry.stream != stream:
                is_last = False
            else:
                left = _without(entry, rank)
                if left is not None:
                    self._entries[index] = left
                else:
                    self._remove_line(index, entry)
                if is_last:
                    self._cursors[rank] = min(self._cursors.get(rank, 0), index)
                return entry.text
        return None

    def _remove_line(self, index: int, line: Line) -> None:
        del self._entries[index]
        self._text_size -= len(line.text) + _PER_LINE
        self._fresh -= index < self._fresh
        for rank, cursor in self._cursors.items():
            if cursor > index:
                self._cursors[rank] = cursor - 1

    def _cut_text(self) -> None:
        """Keep the head and the tail of the lines; what was displayed between them stays, too."""
        most = self._before.most_text
        entries = self._entries
        first = _within(entries, int(most * _HEAD_PART))
        if self._cut:
            # Ranks that lag behind put lines into the head: it must not grow by them.
            first = min(first, self._gap)
        rest = entries[first:]
        last = first + len(rest) - _within(reversed(rest), int(most * (1 - _HEAD_PART)))
        middle = entries[first:last]
        kept = [entry for entry in middle if isinstance(entry, Shown)]
        lines = [entry for entry in middle if isinstance(entry, Line)]
        self._cut += sum(len(line.ranks) for line in lines)
        self._text_size -= sum(len(line.text) + _PER_LINE for line in lines)
        self._gap = first
        self._entries = [*entries[:first], *kept, *entries[last:]]
        # Where the border before each entry is now: nothing may come before what was displayed.
        borders = [*range(first)]
        at = first
        for entry in middle:
            borders.append(at)
            at += isinstance(entry, Shown)
        borders += range(at, len(self._entries) + 1)
        self._fresh = borders[self._fresh]
        self._cursors = {rank: borders[at] for rank, at in self._cursors.items()}

    # ── rich output ─────────────────────────────────────────────────────────────────────

    def _show(self, event: Display) -> None:
        rank = event.rank
        self._clear_if_due(rank)
        size = sum(map(len, event.data.values()))
        shown = Shown((rank,), event.data, event.display_id, size)
        name = event.display_id
        if event.update:
            if name is not None:
                self._updates[rank, name] = shown
            return
        if name is not None and (rank, name) in self._updates:
            self._update_shown()
        self._end_open(rank)
        self._put_shown(rank, shown)
        if self._rich_size > MOST_RICH:
            self._cut_rich()

    def _update_shown(self) -> None:
        """Renew what was displayed and updated since: of many updates of one, the last counts."""
        if not self._updates:
            return
        for index, entry in enumerate(self._entries):
            if isinstance(entry, Shown) and entry.display_id is not None:
                new = self._updates.get((entry.ranks[0], entry.display_id))
                if new is not None:
                    self._entries[index] = new
                    self._rich_size += new.size - entry.size
        self._updates.clear()
        if self._rich_size > MOST_RICH:
            self._cut_rich()

    def _put_shown(self, rank: int, shown: Shown) -> None:
        """Put what a rank displayed: with the same of other ranks after its last, or by itself.

        Those of several ranks that come together stand together, in order of ranks.
        """
        entries = self._entries
        at = self._cursors.get(rank, 0)
        for index in range(at, min(at + _LOOK_AHEAD, len(entries))):
            entry = entries[index]
            if isinstance(entry, Shown) and entry.display_id is None and entry.data == shown.data:
                ranks = _joined(entry.ranks, rank)
                if ranks is not None and shown.display_id is None:
                    entries[index] = replace(entry, ranks=ranks)
                    self._cursors[rank] = index + 1
                    return
        at = max(at, self._fresh)
        while at < len(entries) and _is_shown_before(entries[at], rank):
            at += 1
        self._insert(at, [shown])
        self._cursors[rank] = at + 1
        self._rich_size += shown.size

    def _end_open(self, rank: int) -> None:
        """What stands on the screen stands before what is displayed now, or ends with the rank."""
        self._print(rank)
        for stream in ("stdout", "stderr"):
            screen = self._screens.get((rank, stream))
            if screen is not None and any(screen.rows):
                self._hear(Output(rank, stream, "\n" * len(screen.rows)))
                self._print(rank)

    def _cut_rich(self) -> None:
        """Leave out what was displayed in the middle, saying so in its place."""
        size = 0
        for index, entry in enumerate(self._entries):
            if not isinstance(entry, Shown):
                continue
            size += entry.size
            if size > MOST_RICH / 2 and entry.size > 1000:
                words = f"(left out here: {', '.join(entry.data)}, {spell_size(entry.size)})"
                data = {"text/plain": words}
                left = Shown(entry.ranks, data, entry.display_id, len(words))
                self._entries[index] = left
                self._rich_size += left.size - entry.size
                if self._rich_size <= MOST_RICH:
                    return

    def _clear_if_due(self, rank: int) -> None:
        """Take away what a rank has shown so far, when it asked for that."""
        if rank not in self._clearing:
            return
        self._clearing.discard(rank)
        for stream in ("stdout", "stderr"):
            self._screens.pop((rank, stream), None)
        kept: list[Entry] = []
        kept_before: list[int] = []
        for entry in self._entries:
            kept_before.append(len(kept))
            left = _without(entry, rank)
            if left is not None:
                kept.append(left)
            elif isinstance(entry, Line):
                self._text_size -= len(entry.text) + _PER_LINE
            else:
                self._rich_size -= entry.size
        kept_before.append(len(kept))
        self._entries = kept
        self._fresh, self._gap = kept_before[self._fresh], kept_before[self._gap]
        self._cursors = {each: kept_before[at] for each, at in self._cursors.items()}


def _without(entry: Entry, rank: int) -> Entry | None:
    """What is left of an entry without a rank."""
    if rank not in entry.ranks:
        return entry
    others = tuple(other for other in entry.ranks if other != rank)
    return replace(entry, ranks=others) if others else None


def _is_shown_before(entry: Entry, rank: int) -> bool:
    """Whether an entry is what ranks before this one displayed."""
    return isinstance(entry, Shown) and entry.ranks[0] < rank


def _alike(a: Progress, b: Progress) -> bool:
    """Whether a loop is another turn of one before it."""
    return (a.level, a.text) == (b.level, b.text)


def _within(entries: Iterable[Entry], size: int) -> int:
    """How many entries from the first on have lines of at most `size` bytes in all."""
    count = 0
    for entry in entries:
        if isinstance(entry, Line):
            size -= len(entry.text) + _PER_LINE
            if size < 0:
                break
        count += 1
    return count
