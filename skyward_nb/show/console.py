"""stdout and stderr of this process, as all logs share them: whole lines, and one line below them.

In a terminal the line below says what goes on and is written anew in place; it stands on stderr, and
is wiped before lines are printed. What cannot be written, as to a pipe that nobody reads, is let go:
no run ends for want of a reader.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import unicodedata
import weakref
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TextIO

from skyward_nb.view.sgr import plain

_WIPE = "\r\x1b[2K"
_USUAL_WIDTH = 80
_PLAINER = {"·": "-", "–": "-", "…": "...", "✓": "ok", "█": "#", "░": "."} | dict(
    zip("▁▂▃▄▅▆▇", "1234567", strict=True)
)


class Console:
    """Prints for any number of logs, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._going: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
        self._below = ""

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal in which a line can be written anew."""
        return _is_terminal(sys.stderr)

    def show(self, log: object, lines: Iterable[tuple[str, str]], going: str = "") -> None:
        """Print lines, each with its stream; of `log` then goes on what `going` says, or nothing."""
        with self._lock:
            if going:
                self._going[log] = going
            else:
                self._going.pop(log, None)
            groups = [
                (name, [text for _, text in each]) for name, each in groupby(lines, itemgetter(0))
            ]
            below = self._line_below()
            if not groups and below == self._below:
                return
            wipe, self._below = _WIPE if self._below else "", below
            if wipe and groups:
                _write(sys.stderr, wipe)
                wipe = ""
            for name, texts in groups:
                _print(sys.stderr if name == "stderr" else sys.stdout, texts)
            if wipe or below:
                _write(sys.stderr, wipe + below)

    def _line_below(self) -> str:
        """The line on what goes on, as wide as the terminal; "" without a terminal."""
        if not self._going or not self.is_live:
            return ""
        count = f"{len(self._going)} runs: " if len(self._going) > 1 else ""
        words = count + " | ".join(self._going.values())
        # In the last column some terminals begin a new row.
        return clipped(printable(words), _columns() - 1)


CONSOLE = Console()
"""The one that all logs of this process print to."""


def printable(text: str) -> str:
    """Text in one line without colours, and with nothing that a terminal would act on."""
    return "".join(letter if letter.isprintable() else " " for letter in plain(text))


def clipped(text: str, most: int) -> str:
    """Text without escapes in so many columns of a terminal at most."""
    taken = 0
    for at, letter in enumerate(text):
        taken += _width(letter)
        if taken > most:
            return f"{_head(text[:at], most - 1)}…" if most > 0 else ""
    return text


def _head(text: str, most: int) -> str:
    """The beginning of what takes one column more than `most` at most."""
    while text and sum(map(_width, text)) > most:
        text = text[:-1]
    return text


def _width(letter: str) -> int:
    """How many columns a letter takes: 2 for wide ones, 0 for marks combined with it."""
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at it who can see a line change."""
    if stream is None or os.environ.get("TERM") == "dumb":
        return False
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        return False
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH


def _print(stream: TextIO | None, texts: Iterable[str]) -> None:
    """Print lines; their colours only where they can be seen, and are wanted."""
    if os.environ.get("NO_COLOR") or not _is_terminal(stream):
        texts = map(plain, texts)
    _write(stream, "".join(f"{text}\n" for text in texts))


def _write(stream: TextIO | None, text: str) -> None:
    """Write and flush as far as possible."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError, ValueError):
        stream.write(text if _has(encoding, text) else _plainer(text, encoding))
        stream.flush()


def _plainer(text: str, encoding: str) -> str:
    """Text with something alike in place of letters that an encoding does not have."""
    letters = {letter for letter in set(text) if not _has(encoding, letter)}
    return "".join(_PLAINER.get(each, "?") if each in letters else each for each in text)


def _has(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
