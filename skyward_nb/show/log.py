"""A run as lines in a terminal, a file or the log of a CI: for scripts, the command line, IPython.

What ranks print goes to the same stream here, as `[rank 0] text`; words on the run
goes to stderr: steps on the way up, one line that tells how far ranks are, and how it ended.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from msgspec.structs import replace

from skyward_nb.picture.one_line import of_the_run, one_line
from skyward_nb.picture.text import closing_text, kinds
from skyward_nb.picture.wording import clock
from skyward_nb.protocol.events import Display, Output, RankDone
from skyward_nb.show.console import CONSOLE, Console, printable
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import Entry, OutputLine, RankView, RunView
from skyward_nb.view.terminal import Screen, feed
from skyward_nb.words.ranks import count_ranks, spell_ranks

_SELDOM = 10.0
"""Seconds between two words on how far ranks are, where there is no terminal,"""
_PART = 0.1
"""or this part of the time that has passed,"""
_SELDOMEST = 300.0
"""but never more, for there are places that end what is silent."""
_BRIEF = 1.0
_MOST_WAITING = 1_000_000
_NUMBER = re.compile(r"\d+")


class LogCanvas:
    """Prints a run; from any thread, beside others.

    A run that ends well within a second, and says nothing, is not told of.
    """

    period: float = 0.1

    def __init__(self, console: Console = CONSOLE) -> None:
        self._console = console
        self._lock = threading.RLock()
        self._said = _Said()
        self._told: set[object] = set()
        self._due: float | None = None
        self._is_closed = False

    @property
    def waits(self) -> bool:
        """Whether lines are held back for a moment: other ranks may be about to say the same."""
        return bool(self._said)

    def output(self, event: Output | Display) -> None:
        """Keep it until it is drawn, or until it is much."""
        with self._lock:
            self._said.add(event)
            if self._said.size > _MOST_WAITING:
                self._print(_labelled(self._said.overflow()))

    def draw(self, view: RunView) -> None:
        """Print what is new, and say what goes on; when the view has ended, how."""
        with self._lock:
            said = _labelled(self._said.settled(view.ranks, is_over=view.ended is not None))
            if view.ended is None:
                is_live = self._console.is_live
                own = [*self._way_up(view, is_live=is_live)]
                own += [] if is_live else self._how_far(view)
                self._print([*_own(own), *said], one_line(view) if is_live else "")
            else:
                self._print(said)
                self._print(_own(self._closing(view)))

    def _print(self, lines: Iterable[tuple[str, str]], going: str = "") -> None:
        lines = list(lines)
        if lines:
            self._told.add("something")
        self._console.show(self, lines, going)

    def _once(self, key: object) -> bool:
        """Whether this is not told yet; now it is."""
        if key in self._told:
            return False
        self._told.add(key)
        return True

    def _way_up(self, view: RunView, *, is_live: bool) -> Iterator[str]:
        """Tell the start, the steps of nodes and what takes a moment: each once."""
        if view.state == "starting" and view.title and self._once(("title", view.title)):
            yield view.title
        # Of what counts seconds only the first is told.
        if not is_live and view.phase and self._once(("phase", _NUMBER.sub("", view.phase))):
            yield view.phase
        taken: dict[str, tuple[set[int], float]] = {}
        for nodes, steps in view.steps.items():
            for step in steps:
                if step.ended is not None and self._once((nodes, step.name)):
                    name = f"{step.name} {step.text}".strip()
                    among, longest = taken.get(name, (set[int](), 0.0))
                    taken[name] = among | {*nodes}, max(longest, step.ended - step.began)
        for name, (nodes, seconds) in taken.items():
            yield f"node{'s' * (len(nodes) > 1)} {spell_ranks(nodes)}: {name}, {clock(seconds)}"
        if 0 < view.awaited <= view.ready and self._once("ready"):
            seconds = (view.ran_from if view.ranks else view.now) - view.began
            yield f"{view.awaited} rank{'s' * (view.awaited > 1)} ready in {clock(seconds)}"

    def _how_far(self, view: RunView) -> Iterator[str]:
        """How far ranks are, now and then."""
        if self._due is None:
            self._due = view.began + _SELDOM
        if view.now >= self._due:
            self._due = view.now + min(max(_SELDOM, _PART * view.took), _SELDOMEST)
            yield one_line(view)

    def _closing(self, view: RunView) -> Iterable[str]:
        """How it ended, told once."""
        if self._is_closed:
            return ()
        self._is_closed = True
        words = closing_text(view)
        is_brief = view.ranks and of_the_run(view).took < _BRIEF and len(words) == 1
        return () if is_brief and view.state == "finished" and not self._told else words


class _Said:
    """What ranks said and is not printed yet.

    Equal lines of several ranks become one as they do in a view: it is one, less what was printed.
    """

    def __init__(self) -> None:
        self._view = RunView(most_text=sys.maxsize)
        self._events: list[Output | Display] = []
        self._seen = 0
        self.size = 0
        """Letters that came since something was taken."""

    def __bool__(self) -> bool:
        return bool(self._events or self._view.entries)

    def add(self, event: Output | Display) -> None:
        """One more; of a rich object its text is enough."""
        if isinstance(event, Display):
            text = event.data.get("text/plain") or kinds(event.data)
            event = replace(event, data={"text/plain": text})
            self.size += len(text)
        else:
            self.size += len(event.text)
        self._events.append(event)

    def settled(self, ranks: Mapping[int, RankView], *, is_over: bool) -> tuple[Entry, ...]:
        """Lines that wait for no more ranks: all running ranks printed them, or they have waited once.

        Ranks that have ended end their lines.
        """
        self._fold()
        going = {rank for rank, now in ranks.items() if now.ended is None and not is_over}
        screens = self._view.screens
        opened = {rank for (rank, _), screen in screens.items() if any(screen.rows)}
        ended = opened if is_over else opened & (ranks.keys() - going)
        self._view = fold(self._view, *(RankDone(run=0, rank=rank) for rank in sorted(ended)))
        entries = self._view.entries
        count = len(entries) if is_over else min(self._seen, len(entries))
        while count < len(entries) and going.issubset(entries[count].ranks):
            count += 1
        return self._taken(count)

    def overflow(self) -> tuple[Entry, ...]:
        """All lines that have ended."""
        self._fold()
        return self._taken(len(self._view.entries))

    def _fold(self) -> None:
        self._view = fold(self._view, *self._events)
        self._events.clear()

    def _taken(self, count: int) -> tuple[Entry, ...]:
        taken, rest = self._view.entries[:count], self._view.entries[count:]
        cursors = {rank: max(0, at - count) for rank, at in self._view.cursors.items()}
        self._view = replace(
            self._view, entries=rest, cursors=cursors, text_size=0, rich_size=0, shown=0
        )
        self._seen = len(rest)
        self.size = 0
        return taken


def _labelled(entries: Iterable[Entry]) -> Iterator[tuple[str, str]]:
    """Lines with their streams, and with their ranks before them."""
    for entry in entries:
        if isinstance(entry, OutputLine):
            yield entry.stream, _after(entry.ranks, entry.text)
        else:
            for row in feed(Screen(), f"{entry.data['text/plain']}\n", lambda: None)[1]:
                yield "stdout", _after(entry.ranks, row)


def _own(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Words of this side, not of ranks, as lines with their stream."""
    return (("stderr", printable(row)) for text in texts for row in text.splitlines())


def _after(ranks: tuple[int, ...], text: str) -> str:
    return f"{_label(ranks)} {text}" if text else _label(ranks)


@lru_cache(maxsize=1024)
def _label(ranks: tuple[int, ...]) -> str:
    return f"[{count_ranks(ranks)}]"
