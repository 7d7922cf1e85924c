"""The place of a rank in the user's code, by the stacks of its threads. Pure.

Decides which frames are shown; `hang` speaks of several ranks together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from skyward_nb.hangs import stacks
from skyward_nb.hangs.stacks import ThreadStack
from skyward_nb.plugins.collectives import waits_in
from skyward_nb.words.source_code import is_library

_HERE = str(Path(__file__).parent.parent)
_OURS = re.compile(
    rf"^{re.escape(_HERE)}[\\/]|-packages[\\/](skyward_nb|IPython|ipykernel)[\\/]|[\\/]importlib[\\/]|^<(%sky|frozen .*)>"
)
_LIBRARIES = re.compile(r"(?:site|dist)-packages[\\/]|[\\/]lib[\\/]python3[^\\/]*[\\/]")
_INNERMOST = 3
_MOST_FRAMES = 16
_MOST_THREADS = 3
_MOST_TEXT = 120
_OUR_WORK = {
    ("mailbox.py", "next_gather"): "at the cell's end, where it waited to gather what is spread",
    ("result_packer.py", "with_values"): "at the cell's end, returning values",
    ("rank_shell.py", "keep_traceback"): "at an exception, which it made readable",
    ("rank.py", "_arrive"): "taking in what was sent, before the cell's first line",
    ("mailbox.py", "next"): "done with the cell",
    ("function_calls.py", "__call__"): "native code that was called",
    ("elastic_agent.py", "_launch"): "torchrun's agent, whose workers run",
}
"""The work of a rank without the notebook's code on its stack, by frames of this package."""

Source = Callable[[str, int], tuple[str, str] | None]
"""File name and line → the file's name in the notebook (`Cell In[3]`), and the text of the line.

None for an unknown file, or one that is not the user's.
"""


@dataclass(frozen=True)
class SourceLocation:
    """A frame to be shown: `where` is `Cell In[3]` or a file, `text` its line, if known.

    `is_users`: it is code of the notebook or its project.
    """

    where: str
    line: int
    function: str
    text: str = ""
    is_users: bool = False

    def __str__(self) -> str:
        place = f"{self.where}, line {self.line}"
        if self.function and not self.function.startswith("<"):
            place += f", in {self.function}"
        return f"{place}: {self.text}" if self.text else place


@dataclass(frozen=True)
class RankLocation:
    """The place of a rank: the collective it `waits_in`, or "", and its frames, innermost first.

    `more` outer frames are left out. `busy` is its work where no code of the user is on its stack.
    `threads` are the other threads that run the user's code. All are empty if the rank did not answer.
    """

    spots: tuple[SourceLocation, ...] = ()
    waits_in: str = ""
    busy: str = ""
    more: int = 0
    threads: tuple[tuple[SourceLocation, ...], ...] = ()

    @property
    def answered(self) -> bool:
        """Whether anything is known."""
        return bool(self.spots or self.waits_in or self.busy)

    @property
    def place(self) -> str:
        """Its place in the user's code, in short: `Cell In[4], line 7: time.sleep(60)`."""
        own = next((spot for spot in self.spots if spot.is_users), None)
        if own is not None:
            place = f"{own.where}, line {own.line}"
            return f"{place}: {own.text}" if own.text else place
        return self.busy or (str(self.spots[0]) if self.spots else "")


def whereabouts(text: str, source: Source, told: str = "") -> RankLocation:
    """The place of a rank, by its stacks in the format of `faulthandler`.

    `told` is the collective that the rank itself reported: a stack does not contain the name of native
    code that the user calls.
    """
    threads = stacks.threads(text)
    main = next((thread for thread in threads if thread.is_main), None)
    if main is None or not main.frames:
        return RankLocation(waits_in=told)
    spots, more = shown(main.frames, source)
    others = [shown(thread.frames, source)[0] for thread in threads if not thread.is_main]
    users = [each for each in others if any(spot.is_users for spot in each)]
    busy = "" if any(spot.is_users for spot in spots) else _our_work(main.frames)
    return RankLocation(
        spots=() if busy else spots,
        waits_in=_collective(main, spots, told),
        busy=busy,
        more=0 if busy else more,
        threads=tuple(users[:_MOST_THREADS]),
    )


def _collective(main: ThreadStack, spots: Sequence[SourceLocation], told: str) -> str:
    """The collective by the frames; else the reported one, if the innermost line calls it."""
    found = waits_in((frame.file, frame.function) for frame in main.frames)
    called = f"{told.rpartition('.')[2]}("
    if found or not told or not spots or not spots[0].is_users:
        return found
    return told if called in spots[0].text else ""


def shown(
    frames: Iterable[stacks.StackFrame], source: Source
) -> tuple[tuple[SourceLocation, ...], int]:
    """The frames that are useful to the user, innermost first, and the number of further ones.

    Frames of this package and of IPython are left out; frames of libraries count only as the
    innermost few of all.
    """
    theirs = [frame for frame in frames if not _OURS.search(frame.file)]
    spots: list[SourceLocation] = []
    users = 0
    for frame in theirs:
        spot = _spot(frame, source)
        users += spot.is_users
        if spot.is_users or (not users and len(spots) < _INNERMOST):
            spots.append(spot)
    return tuple(spots[:_MOST_FRAMES]), max(0, len(spots) - _MOST_FRAMES)


def _spot(frame: stacks.StackFrame, source: Source) -> SourceLocation:
    known = source(frame.file, frame.line)
    if known is not None:
        where, text = known
        return SourceLocation(where, frame.line, frame.function, _cut(text.strip()), is_users=True)
    if is_library(frame.file):
        # Without the folders that all libraries are in.
        short = _LIBRARIES.split(frame.file)[-1]
        return SourceLocation(short, frame.line, frame.function)
    return SourceLocation(PurePath(frame.file).name, frame.line, frame.function, is_users=True)


def _our_work(frames: Iterable[stacks.StackFrame]) -> str:
    by_name = {(PurePath(frame.file).name, frame.function) for frame in frames}
    return next((words for key, words in _OUR_WORK.items() if key in by_name), "")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1].rstrip()}…"
