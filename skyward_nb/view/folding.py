"""The next view: of the one before it, and of events. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from skyward_nb.protocol.events import (
    Clear,
    CostChanged,
    Display,
    Event,
    Metric,
    Metrics,
    Output,
    Phase,
    Progress,
    RankDone,
    RankLost,
    RankPhase,
    RankReady,
    Remark,
    Step,
    Telemetry,
    Waited,
)
from skyward_nb.view.loop_rows import loop_rows
from skyward_nb.view.output_entries import OutputEntries
from skyward_nb.view.run_view import (
    MOST_METRICS,
    MOST_WINDOWS,
    RankState,
    RankView,
    RunView,
    StepView,
)
from skyward_nb.view.series import Series, extended

_MOST_BARS = 8


def fold(view: RunView, *events: Event) -> RunView:
    """The view after more events.

    A line that several ranks wrote stands where the first of them wrote it, and what a rank wrote
    before it stands before it. Other lines stand in the order in which they came; among those
    that come together, the ones of one rank may go before those of another.
    """
    folding = _Folding(view)
    for event in events:
        folding.take(event)
    return folding.view()


def _is_passing(bar: Progress) -> bool:
    """Whether it has ended, and its library would have removed it."""
    return bar.over and not bar.keeping


def trimmed(view: RunView) -> RunView:
    """The view with no more text than it may have in the end; while it grows it may have some more."""
    if view.text_size <= view.most_text:
        return view
    board = OutputEntries(view)
    board.cut_text()
    return board.put_into(view)


class _Folding:
    """A view while it is folded: with its board the only place where anything changes."""

    def __init__(self, view: RunView) -> None:
        self._before = view
        self._board = OutputEntries(view)
        self._ranks = dict(view.ranks)
        self._looped: set[int] = set()
        self._points: dict[int, dict[str, list[tuple[int, float]]]] = {}
        self._steps = dict(view.steps)
        self._phase = view.phase
        self._bill = view.bill
        self._notes = view.notes
        self._ready = view.ready

    def view(self) -> RunView:
        """What has come of it."""
        self._board.finish()
        self._draw_series()
        self._count_loop_rows()
        return replace(
            self._board.put_into(self._before),
            phase=self._phase,
            bill=self._bill,
            notes=self._notes,
            steps=self._steps,
            ready=self._ready,
            ranks=self._ranks,
        )

    def take(self, event: Event) -> None:
        """One more event."""
        match event:
            case Output():
                self._board.hear(event)
            case Display():
                self._board.show(event)
            case Clear(rank=rank):
                self._board.clear(rank, wait=event.wait)
            case Progress():
                self._advance(event)
            case Metric(rank=rank, step=step):
                self._log(rank, [step], {name: [value] for name, value in event.values.items()})
            case Metrics(rank=rank):
                self._log(rank, event.steps, event.values)
            case Remark(text=text):
                self._notes = (*self._notes, text)
            case _:
                self._take_rare(event)

    def _take_rare(self, event: Event) -> None:
        match event:
            case Phase(text=text):
                self._phase = text
            case CostChanged(bill=bill):
                self._bill = bill
            case RankPhase(rank=rank, text=text):
                self._set(rank, stage=text)
            case Step():
                self._take_step(event)
            case RankReady():
                self._ready += 1
            case Telemetry(rank=rank) | Waited(rank=rank) if rank in self._ranks:
                self._measure(event)
            case RankDone(rank=rank):
                state: RankState = "failed" if event.failure or event.rejected else "done"
                self._end(rank, "stopped" if event.interrupted else state)
            case RankLost(rank=rank) if self._rank(rank).ended is None:
                self._end(rank, "stopped" if event.asked else "lost")
            case _:
                pass

    def _measure(self, event: Telemetry | Waited) -> None:
        now = self._rank(event.rank)
        if isinstance(event, Waited):
            self._set(event.rank, waits=(*now.waits, event.share)[-MOST_WINDOWS:])
        else:
            self._set(event.rank, telemetry=event, peak=max(now.peak, event.rss))

    def _rank(self, rank: int) -> RankView:
        return self._ranks.get(rank) or RankView()

    def _set(self, rank: int, **changes: object) -> None:
        self._ranks[rank] = replace(self._rank(rank), **changes)

    def _end(self, rank: int, state: RankState) -> None:
        """A rank has finished: lines it left open are ended."""
        self._board.end_lines(rank)
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
        """A bar stands at the place of its earlier self, or of the one before it that was like it.

        Inner loops that ended stay after the loop around them, until another one begins; those that their
        library would have removed, until another one takes their row, which would stand blank meanwhile.
        """
        rank = self._rank(event.rank)
        others = [bar for bar in rank.bars if bar.bar != event.bar]
        is_another = len(others) == len(rank.bars)
        is_new = is_another and not event.over
        hidden = rank.bars_hidden - {event.bar}
        done, inner = rank.bars_done, rank.bars_inner
        if event.over and event.level == 0:
            others = [bar for bar in others if bar.over or not bar.level]
            hidden = frozenset()  # one that goes on beside it tells so again
        elif is_new and event.level == 0 and event.bar not in rank.bars_hidden:
            others = [bar for bar in others if not (bar.over and bar.level)]
            done, inner = done - inner, 0
        if is_another or (event.over and not event.keeping):
            others = [bar for bar in others if not _is_passing(bar) or bar.level < event.level]
        turn = event.level, event.text  # a later turn of a loop takes the place of one before it
        bars = [bar for bar in others if not (bar.over and (bar.level, bar.text) == turn)]
        if event.level or not _is_passing(event):
            bars.append(event)
        bars.sort(key=lambda bar: (bar.level, bar.bar))
        while len(bars) > _MOST_BARS:
            finished = next((bar for bar in bars if bar.over), None)
            if finished is None:
                hidden |= {bars.pop().bar}
            else:
                bars.remove(finished)
                done += 1
                inner += finished.level > 0
        self._looped.add(event.rank)
        self._set(
            event.rank,
            bars=tuple(bars),
            bars_done=done,
            bars_inner=inner,
            bars_hidden=hidden,
            told=self._before.now,
        )

    def _count_loop_rows(self) -> None:
        """Keep the rows that loops take now; what came and went between two pictures took none."""
        for rank in self._looped:
            now = self._ranks[rank]
            rows = loop_rows(now.bars, now.bars_done, len(now.bars_hidden), now.loop_rows)
            self._set(rank, loop_rows=rows)

    def _log(self, rank: int, steps: list[int], values: dict[str, list[float]]) -> None:
        points = self._points.setdefault(rank, {})
        for name, each in values.items():
            if found := list(zip(steps, each, strict=False)):
                points.setdefault(name, []).extend(found)

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
