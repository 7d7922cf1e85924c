"""The one display under a cell: folds events into a view, and draws it where the cell runs.

Nothing is drawn more often than ten times a second, and what comes between two drawings is
folded at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from skyward_nb.names.plan import Plan
from skyward_nb.picture.wording import sent_words
from skyward_nb.protocol.events import Display, Event, Output, Phase, Progress
from skyward_nb.show.canvas import Canvas
from skyward_nb.show.run_progress import ProgressFile
from skyward_nb.view.folding import fold, trimmed
from skyward_nb.view.run_view import DisplayedObject, OutputLine, RankView, RunState, RunView
from skyward_nb.words.offers import Bill
from skyward_nb.words.ranks import spell_ranks

_FIRST = 0.2
_STILL = 1.0
_MANY = 1_000_000
_RUNS = 64


class RunDisplay:
    """Watches a pool's events for one cell, or a call.

    A `sparing` one draws nothing of a run that ends well within a moment and shows nothing. `logs` is
    the command that prints the log of a run, with its `{run}` or its `{number}`.
    """

    def __init__(
        self,
        canvas: Canvas,
        title: str,
        about: str = "",
        *,
        quiet: bool = False,
        sparing: bool = False,
        logs: str = "%sky logs run={number}",
    ) -> None:
        now = time.monotonic()
        self._canvas = canvas
        self._logs_command = logs
        self._quiet = quiet
        self._sparing = sparing
        self._heard = False
        self._due = now + _FIRST
        self._still_due = now + _FIRST
        self._shown: dict[str, frozenset[int]] = {}
        self._waiting: list[Event] = []
        self._size = 0
        self._view = RunView(
            title=title, about=about, began=now, ran_from=now, now=now, wall=time.time() - now
        )
        self.drawn: bool = False
        self.keep: Callable[[Output | Display], None] = lambda _: None
        """Called with all output and displays of ranks."""
        self.progress_file: ProgressFile | None = None
        """Where it tells other processes how far its run is."""
        self.error_follows = False
        """Whether an error that its run ends with is shown below it, and need not be told twice."""
        self.is_aside = False
        """Whether its run belongs to no cell."""
        self.hang: str = ""
        """For whom ranks waited when the run last went on no more, in the past tense."""
        self.lacks_files: bool = False
        """Whether files that its run was to bring did not come."""
        self.first_run: int = 0
        """The number of its run, once the cell runs: events of earlier runs are not its own."""
        self.last_runs: deque[int] = deque(maxlen=_RUNS)
        """Where it shows many, those that began last."""

    @property
    def view(self) -> RunView:
        """The view so far."""
        self._fold()
        return self._view

    def shows(self, run: int) -> bool:
        """Whether it is the display of a run, as far as is known: of many it knows the last, and of one it may not know the number."""
        known = len(self.last_runs)
        return run in self.last_runs or (known in (0, _RUNS) and 0 < self.first_run <= run)

    def change(self, **changes: object) -> None:
        """Set fields of the view."""
        self._view = replace(self.view, **changes)

    def loop(self, done: int, total: int, seconds: float, unit: str = "item") -> None:
        """Show the progress of the whole, after so many seconds."""
        bar = Progress(-1, 0, done, total, seconds=seconds, unit=unit)
        self._view = replace(self._view, bar=bar)
        self._still_due = 0.0

    def again(self, ranks: Iterable[int]) -> None:
        """These ranks run once more."""
        there = self.view.ranks
        more = {rank: replace(there[rank], state="running", ended=None) for rank in ranks}
        self.change(ranks={**there, **more})

    def note(self, *notes: str) -> None:
        """Add notes for the end."""
        if notes:
            self.change(notes=(*self._view.notes, *notes))

    def took_files(self, notes: Iterable[str], *, lacks_some: bool) -> None:
        """Note what came of the files that the run was to bring."""
        self.note(*notes)
        self.lacks_files = lacks_some

    def show_only(self, stream: str, ranks: frozenset[int]) -> None:
        """Show this stream of these ranks alone."""
        self._shown[stream] = ranks

    def running(
        self,
        ranks: tuple[int, ...],
        title: str,
        about: str,
        *,
        run: str,
        number: int,
        nodes: Mapping[int, int],
        bill: Bill | None = None,
    ) -> None:
        """The pool is up, and the cell begins on these ranks as run `number`; what the pool costs."""
        self.numbered(run, number)
        self.change(
            state="running",
            ranks={rank: RankView() for rank in ranks},
            nodes={rank: nodes.get(rank, 0) for rank in ranks},
            title=title,
            about=about,
            bill=bill,
            ran_from=time.monotonic(),
        )

    def numbered(self, run: str, number: int) -> None:
        """Its run is this one."""
        self.first_run = number
        self.change(run=run, logs=self._logs_command.format(run=run, number=number))

    def show_plan(self, plan: Plan) -> None:
        """Show what the run sends."""
        if plan.rows:
            self.change(foot=sent_words(plan.rows, plan.sent_bytes), manifest=plan.rows)

    def watch(self, event: Event | None) -> None:
        """Take an event, or a tick of time, and draw if it is time to."""
        if event is not None:
            self._take(event)
        now = time.monotonic()
        if self.progress_file is not None and self.progress_file.is_due:
            self.progress_file.write(self.view)
        # A phase is shown before it begins: nothing can be drawn meanwhile.
        told = isinstance(event, Phase) and bool(event.text) and self._view.state == "running"
        has_more = self._waiting or self._canvas.waits
        due = now >= self._due and (has_more or now >= self._still_due)
        if (told or due) and not self._quiet:
            self._draw(now)
            # Drawing may be slow: never spend more than a third of the time on it.
            after = time.monotonic()
            self._due = after + max(self._canvas.period, 2 * (after - now))
            self._still_due = after + _STILL

    def show(self) -> None:
        """Draw now: later changes are drawn from elsewhere."""
        if not self._quiet:
            self._draw(time.monotonic())

    def began_before(self, seconds: float) -> None:
        """What it shows began so long ago."""
        began = time.monotonic() - seconds
        self.change(began=began, ran_from=began)

    def late(self, event: Event) -> None:
        """Take an event of its run that came after its end; `renew` draws it."""
        self._take(event)

    def update(self, event: Display) -> None:
        """A later run updates what was displayed: `renew` draws it, if it was here."""
        for entry in self.view.entries:
            if (
                isinstance(entry, DisplayedObject)
                and entry.display_id == event.display_id
                and event.rank in entry.ranks
            ):
                self._waiting.append(event)
                return

    def renew(self) -> None:
        """Draw again what has ended, when something came late."""
        if self._waiting and not self._quiet:
            self._draw(time.monotonic())

    def draw_again(self) -> None:
        """Draw what was drawn last once more."""
        if self.drawn:
            self._canvas.draw(self._view)

    def _take(self, event: Event) -> None:
        if isinstance(event, Output | Display):
            self.keep(event)
            if isinstance(event, Output):
                if self._is_hidden(event):
                    return
                self._size += len(event.text)
            self._heard = True
            if not self._quiet:
                self._canvas.output(event)
        self._waiting.append(event)
        if self._size > _MANY:
            self._fold()

    def _fold(self) -> None:
        if self._waiting:
            now = time.monotonic()
            self._view = fold(replace(self._view, now=now), *self._waiting)
            self._waiting.clear()
            self._size = 0

    def _is_hidden(self, event: Output) -> bool:
        shown = self._shown.get(event.stream)
        return event.hidden or (shown is not None and event.rank not in shown)

    def end(
        self,
        state: RunState,
        words: str,
        *,
        notes: tuple[str, ...] = (),
        short: str = "",
        error_notes: tuple[str, ...] = (),
        is_dry: bool = False,
    ) -> None:
        """Draw the final state, which the notebook keeps.

        `short` are the words where the run's error is shown, too, with the `error_notes`. With `is_dry`, its
        manifest is open, and tells what would be sent.
        """
        now = time.monotonic()
        told = state == "failed" or bool(self._view.notes or notes or error_notes)
        spared = self._sparing and not (self.drawn or self._heard) and state == "finished"
        if told or not spared:  # else what came is folded if anybody ever looks
            self._fold()
        self._view = replace(
            self._view,
            state=state,
            headline=words,
            short_headline=short if self.error_follows else "",
            error_notes=error_notes,
            now=now,
            ended=now,
            notes=(*self._view.notes, *notes),
            manifest_open=is_dry,
        )
        self._view = trimmed(self._view)
        try:
            if told or not (self._quiet or spared):
                self._draw(now)
        finally:
            # Last: a page that looks for the run finds it going on, or the picture that is kept.
            if self.progress_file is not None:
                self.progress_file.remove()
                self.progress_file = None

    def fail(
        self, error: BaseException, *, silent: str = "Interrupted", notes: tuple[str, ...] = ()
    ) -> None:
        """Draw the final state with the first line of an error, or `silent` if it has no text."""
        words = str(error).partition("\n")[0] or silent
        self.end("failed", words, notes=notes, short=type(error).__name__)

    def last_words(self, rank: int, lines: int = 5) -> str:
        """The last lines a rank wrote."""
        said = [
            entry.text
            for entry in self.view.entries
            if isinstance(entry, OutputLine) and rank in entry.ranks
        ]
        return "\n".join(said[-lines:])

    def _draw(self, now: float) -> None:
        self.drawn = True
        self._fold()
        self._view = replace(self._view, now=now)
        self._canvas.draw(self._view)


def spell_result(ranks: tuple[int, ...], world_size: int) -> str:
    """`4 ranks`, or `ranks 0-1 of 4`."""
    if len(ranks) == world_size:
        return f"{world_size} rank{'s' * (world_size != 1)}"
    return f"rank{'s' * (len(ranks) != 1)} {spell_ranks(ranks)} of {world_size}"
