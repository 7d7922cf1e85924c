"""How far a run is, in files that other processes read: the Lab extension, while the notebook is busy.

Its display writes them once a second, if the run is longer than that, and removes them in the end. The whole
picture is written only while somebody has asked for it within the last seconds, which costs a mark.

    run.now-7           how far run 7 is: several may go on at once
    run.now-7.asked     when it was last asked for the picture: the file's time
    run.now-7.picture   the picture, as a bundle for front ends of their own
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import replace

from skyward_nb.picture import page
from skyward_nb.picture.record import MIME, as_json
from skyward_nb.picture.wording import bar_row, headline
from skyward_nb.pool.registry import PoolEntry, progress_file
from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.view.run_view import DisplayedObject, OutputLine, RunView
from skyward_nb.words.decoding import from_json

PERIOD = 1.0
STALE = 20.0
"""Seconds after which a file is not believed any more: its process has ended, or is stopped."""
ASKED = 5.0
"""Seconds for which the picture is written after it was asked for."""
_ENTRIES = 300
"""Lines and figures of the picture, the last so many."""


class RankFigures(msgspec.Struct, frozen=True):
    """What a rank uses: `cpu` in percent of a core, `memory` in bytes; None where not known."""

    rank: int
    cpu: float | None
    memory: int | None
    gpu: Gpu | None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its picture shows it: words on its bars, and the part that is done, from 0 to 1.

    `written` in seconds since 1970. `words` is empty, and `part` None, where no loop has a bar.
    """

    written: float
    headline: str
    words: str = ""
    part: float | None = None
    ranks: tuple[RankFigures, ...] = ()


class RunPicture(msgspec.Struct, frozen=True, kw_only=True):
    """The picture of a run that goes on, as a bundle."""

    data: dict[str, object]


class ProgressFile:
    """The files of one run of a pool; another kernel may have written some of one that `was_shown`."""

    def __init__(self, entry: PoolEntry, number: int, *, was_shown: bool = False) -> None:
        self._entry = entry
        self._number = number
        self._due = time.monotonic() + PERIOD
        self._is_written = was_shown

    @cached_property
    def _path(self) -> Path:
        """Most runs are over before it is needed."""
        return _path_of(self._entry, self._number)

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() >= self._due

    def write(self, view: RunView) -> None:
        """Write how far the run is; where nothing can be written, the panel shows no progress."""
        began = time.monotonic()
        self._due = began + PERIOD
        # The folder is gone once the pool is.
        with contextlib.suppress(OSError):
            _replace(self._path, msgspec.json.encode(progress_of(view)))
            self._is_written = True
            if _is_asked_for(self._path):
                picture = RunPicture(data=picture_of(view))
                _replace(_picture_of(self._path), msgspec.json.encode(picture))
                # A picture of many ranks is work: never more than a tenth of the time.
                self._due = began + max(PERIOD, 10 * (time.monotonic() - began))

    def remove(self) -> None:
        """The run is over."""
        if self._is_written:
            for path in (self._path, _picture_of(self._path), _asked_of(self._path)):
                path.unlink(missing_ok=True)
            self._is_written = False


def _replace(path: Path, data: bytes) -> None:
    """Put a file in the place of another one, for this user alone; raises OSError."""
    new = path.with_name(f"{path.name}.new{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    new.replace(path)


def _path_of(entry: PoolEntry, number: int) -> Path:
    first = progress_file(entry)
    return first.with_name(f"{first.name}-{number}")


def _picture_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.picture")


def _asked_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.asked")


def _is_asked_for(path: Path) -> bool:
    try:
        return abs(time.time() - _asked_of(path).stat().st_mtime) < ASKED
    except OSError:
        return False


def picture_of(view: RunView) -> dict[str, object]:
    """The record of a view with the last of its output, and the HTML of figures in that."""
    last = view.entries[-_ENTRIES:]
    before = view.entries[:-_ENTRIES]
    hidden = sum(len(each.ranks) for each in before if isinstance(each, OutputLine))
    recent = replace(view, entries=last, cut=view.cut + hidden, gap=0) if before else view
    has_figures = any(isinstance(each, DisplayedObject) for each in last)
    # Its lines stand in the record, with or without the HTML.
    return {"text/html": page.output(recent) if has_figures else "", MIME: as_json(recent)}


def progress_of(view: RunView) -> RunProgress:
    """How far a run is; of loops in loops the outermost counts, of several ranks all that are in it."""
    bars = [next(iter(now.bars), None) for now in view.ranks.values()]
    first = next((bar for bar in bars if bar is not None), None)
    row = first and bar_row(
        [bar for bar in bars if bar is not None and bar.text == first.text], "running", 0.0
    )
    return RunProgress(
        written=time.time(),
        headline=headline(view),
        words=row.words if row else "",
        part=row.part if row else None,
        ranks=tuple(
            RankFigures(rank, now.telemetry.cpu, now.telemetry.rss, now.telemetry.gpu)
            for rank, now in sorted(view.ranks.items())
            if now.telemetry is not None
        ),
    )


def read_progress(entry: PoolEntry, number: int) -> RunProgress | None:
    """How far a run of a pool is, as its display wrote it last; None where there is none."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = from_json(_path_of(entry, number).read_bytes(), RunProgress)
        if abs(time.time() - found.written) < STALE:
            return found
    return None


def newest_progress(entry: PoolEntry) -> RunProgress | None:
    """How far the newest run of a pool is that goes on; None where there is none."""
    first = progress_file(entry)
    paths = first.parent.glob(f"{first.name}-*")
    names = (path.name.removeprefix(f"{first.name}-") for path in paths)
    numbers = sorted((int(name) for name in names if name.isdecimal()), reverse=True)
    return next(filter(None, (read_progress(entry, number) for number in numbers)), None)


def ask_for_picture(entry: PoolEntry, number: int) -> RunPicture | None:
    """The picture of a run that goes on; None where it is not written yet. It is from now on, for some seconds."""
    path = _path_of(entry, number)
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        os.close(os.open(_asked_of(path), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        os.utime(_asked_of(path))
        return from_json(_picture_of(path).read_bytes(), RunPicture)
    return None
