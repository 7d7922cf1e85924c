"""How far a run is, in a file that other processes read: the panel in JupyterLab, while the notebook is busy.

Its display writes it once a second, if the run is longer than that, and removes it in the end.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import cached_property
from pathlib import Path

import msgspec

from skyward_nb.picture.wording import bar_row, headline
from skyward_nb.pool.registry import PoolEntry, progress_file
from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.view.run_view import RunView

PERIOD = 1.0
STALE = 20.0
"""Seconds after which a file is not believed any more: its process has ended, or is stopped."""


class RankFigures(msgspec.Struct, frozen=True):
    """What a rank uses: `cpu` in percent of a core, `memory` in bytes; None where not known."""

    rank: int
    cpu: float | None
    memory: int | None
    gpu: Gpu | None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its picture shows it: `number`, words on its bars, and the part that is done, from 0 to 1.

    `written` in seconds since 1970. `words` is empty, and `part` None, where no loop has a bar.
    """

    number: int
    written: float
    headline: str
    words: str = ""
    part: float | None = None
    ranks: tuple[RankFigures, ...] = ()


class ProgressFile:
    """The file of one run of a pool."""

    def __init__(self, entry: PoolEntry, number: int) -> None:
        self._entry = entry
        self._number = number
        self._due = time.monotonic() + PERIOD
        self._is_written = False

    @cached_property
    def _path(self) -> Path:
        """Most runs are over before it is needed."""
        return progress_file(self._entry)

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() >= self._due

    def write(self, view: RunView) -> None:
        """Write how far the run is; where nothing can be written, the panel shows no progress."""
        self._due = time.monotonic() + PERIOD
        new = self._path.with_name(f"{self._path.name}.new{os.getpid()}")
        # The folder is gone once the pool is.
        with contextlib.suppress(OSError):
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(progress_of(view, self._number)))
            new.replace(self._path)
            self._is_written = True

    def remove(self) -> None:
        """The run is over."""
        if self._is_written:
            self._path.unlink(missing_ok=True)
            self._is_written = False


def progress_of(view: RunView, number: int) -> RunProgress:
    """How far a run is; of loops in loops the outermost counts, of several ranks all that are in it."""
    bars = [next(iter(now.bars), None) for now in view.ranks.values()]
    first = next((bar for bar in bars if bar is not None), None)
    row = first and bar_row(
        [bar for bar in bars if bar is not None and bar.text == first.text], "running", 0.0
    )
    return RunProgress(
        number=number,
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


def read_progress(entry: PoolEntry) -> RunProgress | None:
    """How far the run of a pool is, as its display wrote it last; None where there is none."""
    path: Path = progress_file(entry)
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(path.read_bytes(), type=RunProgress)
        if abs(time.time() - found.written) < STALE:
            return found
    return None
