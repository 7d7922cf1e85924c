"""The one display under a cell: folds events into a view, and draws it where the cell runs.

In a kernel it is one display that is updated in place, at most ten times a second, and whose
last state is what the notebook keeps. In a terminal, lines are printed as they come.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from msgspec.structs import replace

from skyward_nb.notebook.picture import as_html, as_text, headline, manifest_text
from skyward_nb.pool.ledger import Row
from skyward_nb.pool.view import Line, RankView, RunState, View, fold
from skyward_nb.words.messages import Display, Event, Output, Phase
from skyward_nb.words.ranks import spell_ranks

_FIRST = 0.2
_PERIOD = 0.1


class Canvas(Protocol):
    """Where a view can be drawn."""

    def draw(self, view: View, now: float) -> None:
        """Show the view, replacing what was shown before."""
        ...

    def output(self, event: Output | Display) -> None:
        """Something of a rank has come."""
        ...


class NotebookCanvas:
    """One display of the running cell, updated in place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, view: View, now: float) -> None:
        """Publish the bundle of HTML and plain text."""
        from IPython.display import display

        bundle = {"text/html": as_html(view, now), "text/plain": as_text(view, now)}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def output(self, event: Output | Display) -> None:
        """Nothing: the view holds it."""


class TerminalCanvas:
    """Lines as they come, each with its rank, and a closing word."""

    def __init__(self) -> None:
        self._rests: dict[tuple[int, str], str] = {}

    def draw(self, view: View, now: float) -> None:
        """Print the closing word when the run has ended."""
        if view.ended is None:
            return
        for (rank, stream), rest in self._rests.items():
            self._print(rank, stream, rest)
        self._rests.clear()
        if view.state != "finished" or view.notes or view.manifest_open:
            sys.stdout.write("\n".join([headline(view), *manifest_text(view), *view.notes]) + "\n")

    def output(self, event: Output | Display) -> None:
        """Print every line that is complete, and of rich objects their text."""
        if isinstance(event, Display):
            self._print(event.rank, "stdout", event.data.get("text/plain", "(no text)"))
            return
        key = (event.rank, event.stream)
        *lines, rest = (self._rests.pop(key, "") + event.text).split("\n")
        for line in lines:
            self._print(event.rank, event.stream, line)
        if rest:
            self._rests[key] = rest

    def _print(self, rank: int, stream: str, line: str) -> None:
        target = sys.stderr if stream == "stderr" else sys.stdout
        target.write(f"[{rank}] {line.rpartition(chr(13))[2]}\n")


class RunDisplay:
    """Watches a pool's events for one cell."""

    def __init__(self, canvas: Canvas, title: str, about: str, *, quiet: bool = False) -> None:
        now = time.monotonic()
        self._canvas = canvas
        self._quiet = quiet
        self._due = now + _FIRST
        self.drawn = False
        self._shown: dict[str, frozenset[int]] = {}
        self.view = View(title=title, about=about, began=now)

    def show_only(self, stream: str, ranks: frozenset[int]) -> None:
        """Show this stream of these ranks alone."""
        self._shown[stream] = ranks

    def running(self, ranks: tuple[int, ...], title: str, about: str) -> None:
        """The pool is up, and the cell begins on these ranks."""
        states = {rank: RankView() for rank in ranks}
        self.view = replace(self.view, state="running", ranks=states, title=title, about=about)

    def watch(self, event: Event | None) -> None:
        """Take an event, or a tick of time, and draw if it is time to."""
        if event is not None:
            if isinstance(event, Output) and self._is_hidden(event):
                return
            if isinstance(event, Output | Display) and not self._quiet:
                self._canvas.output(event)
            self.view = fold(self.view, event)
        now = time.monotonic()
        # What takes a moment is told before it begins: nothing can be drawn meanwhile.
        told = isinstance(event, Phase) and bool(event.text) and self.view.state == "running"
        if (told or now >= self._due) and not self._quiet:
            self._draw(now)
            # Drawing may be slow: never spend more than a third of the time on it.
            after = time.monotonic()
            self._due = after + max(_PERIOD, 2 * (after - now))

    def _is_hidden(self, event: Output) -> bool:
        shown = self._shown.get(event.stream)
        return shown is not None and event.rank not in shown

    def end(
        self,
        state: RunState,
        words: str,
        *,
        notes: tuple[str, ...] = (),
        foot: tuple[str, ...] = (),
        manifest: tuple[Row, ...] = (),
        is_dry: bool = False,
    ) -> None:
        """Draw the final state, which the notebook keeps.

        With `is_dry`, its manifest is what was asked for, and tells what would be.
        """
        now = time.monotonic()
        notes = (*self.view.notes, *notes)
        self.view = replace(
            self.view,
            state=state,
            headline=words,
            ended=now,
            notes=notes,
            foot=foot,
            manifest=manifest,
            manifest_open=is_dry,
        )
        if not self._quiet or state == "failed" or notes:
            self._draw(now)

    def last_words(self, rank: int, lines: int = 5) -> str:
        """The last lines a rank wrote."""
        said = [
            entry.text
            for entry in self.view.entries
            if isinstance(entry, Line) and rank in entry.ranks
        ]
        return "\n".join(said[-lines:])

    def _draw(self, now: float) -> None:
        self.drawn = True
        self._canvas.draw(self.view, now)


def spell_result(ranks: tuple[int, ...], world_size: int) -> str:
    """`4 ranks`, or `ranks 0-1 of 4`."""
    if len(ranks) == world_size:
        return f"{world_size} rank{'s' * (world_size != 1)}"
    return f"rank{'s' * (len(ranks) != 1)} {spell_ranks(ranks)} of {world_size}"
