"""What the renderer of a run's record asks: how the run is by now, and pages of its log."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Literal

import msgspec

from skyward_nb.logs.log_reader import LogLine
from skyward_nb.pool import registry
from skyward_nb.reports.run_logs import find_run, last_lines, log_lines
from skyward_nb.show.kept_pictures import find_picture, find_value
from skyward_nb.show.run_progress import ask_for_picture, read_progress
from skyward_nb.view.sgr import plain
from skyward_nb.words.errors import OptionError

MOST_LINES = 5000
_MOST_TEXT = 4_000_000


class RunNow(msgspec.Struct, frozen=True):
    """A run and its bundle: `live`, or `over`; one that has `begun` has no picture yet, of what is `gone` none is kept.

    `value` is the bundle of what its cell has shown below the picture, written a moment after it.
    """

    state: Literal["live", "begun", "over", "gone"]
    data: dict[str, object] | None = None
    value: dict[str, object] | None = None


class LogPage(msgspec.Struct, frozen=True):
    """Lines of a log, from line `first` on; `next` is what to ask `from`, None where it ends."""

    lines: tuple[LogLine, ...]
    next: int | None
    first: int = 0


def run_now(pool_id: str, number: int) -> RunNow:
    """How a run is, as its display writes it, or wrote it in the end."""
    for entry in registry.entries():
        if entry.pool_id != pool_id:
            continue
        if read_progress(entry, number) is not None:
            picture = ask_for_picture(entry, number)
            return RunNow("live", picture.data) if picture is not None else RunNow("begun")
    try:
        run = f"{pool_id}/{number}"
        return RunNow("over", find_picture(run, ()), find_value(run))
    except OptionError:
        return RunNow("gone")


def log_page(
    run: str,
    begin: int,
    count: int,
    ranks: Collection[int] | None,
    sought: str,
    before: int | None = None,
) -> LogPage:
    """`count` lines of ranks in which something is sought, from line `begin` of those on; fewer where they are long.

    From -1 the last, of those before line `before`. Raises `OptionError` where the run has no log.
    """
    lines = log_lines(find_run(run), ranks)
    if sought:
        lines = (line for line in lines if sought in plain(line.text).lower())
    most = min(max(1, count), MOST_LINES)
    if begin < 0:
        last, left_out = last_lines(islice(lines, before), most, _MOST_TEXT)
        return LogPage(tuple(last), before, left_out)
    found: list[LogLine] = []
    size = 0
    for line in islice(lines, begin, None):
        if len(found) == most or size > _MOST_TEXT:
            return LogPage(tuple(found), begin + len(found), begin)
        found.append(line)
        size += len(line.text)
    return LogPage(tuple(found), None, begin)
