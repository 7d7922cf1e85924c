"""`%sky logs`: the whole of what ranks printed in a run, which its picture shows in part."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterator, Set
from pathlib import Path

from skyward_nb.pool.logfiles import Kept
from skyward_nb.pool.logreader import LogLine, read
from skyward_nb.pool.terminal import Screen, feed, seen
from skyward_nb.words.errors import OptionError, spell_size
from skyward_nb.words.ranks import count_ranks

_MOST_NAMED = 1000
MOST_SHOWN = 2_000_000
"""Characters that are printed into a notebook; more is better saved to a file."""


def print_log(kept: Kept, ranks: Collection[int] | None, count: int | None) -> None:
    """Print the lines of a run, of some ranks if asked, or the last `count` of them."""
    shown: deque[str] = deque()
    size = left_out = 0
    spoke: set[int | None] = set()
    for rank, line in _lines(kept, ranks):
        spoke.add(rank)
        shown.append(line)
        size += len(line) + 1
        while (count is not None and len(shown) > count) or size > MOST_SHOWN:
            size -= len(shown.popleft()) + 1
            left_out += 1
    if left_out and count is None:
        print(
            f"… {left_out:,} lines before these are not printed into the notebook: "
            f"%sky logs run={kept.name} save=FILE writes all {spell_size(kept.size)}"
        )
    sys.stdout.writelines(f"{line}\n" for line in shown)
    if silent := _silent(kept, ranks, spoke):
        print(silent)


def spell_run(kept: Kept, now: float) -> str:
    """Which run it is, and how long ago it last printed: `run default-3fa2b1/7, 12 s ago`."""
    seconds = max(0, int(now - kept.when))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"run {kept.name}, {seconds // size} {unit} ago"
    return f"run {kept.name}, just now"


def _silent(kept: Kept, ranks: Collection[int] | None, spoke: Set[int | None]) -> str:
    """That of some of these ranks there is nothing, unless others of them spoke for `all`."""
    if ranks is None:
        return "" if spoke else f"nothing is kept of run {kept.name}"
    silent = [rank for rank in ranks if rank not in spoke]
    if len(silent) <= _MOST_NAMED:
        return f"nothing of {count_ranks(silent)} in run {kept.name}" if silent else ""
    # As many as that are not meant one by one: `all`, or a slice without an end.
    return "" if len(silent) < len(ranks) else f"nothing of these ranks in run {kept.name}"


def save_log(kept: Kept, ranks: Collection[int] | None, path: Path) -> str:
    """Write the lines of a run to a new file; how much that was, in words.

    Raises `OptionError` when there is such a file, or it cannot be written.
    """
    count = 0
    try:
        with path.expanduser().open("x", encoding="utf-8", errors="backslashreplace") as file:
            for _, line in _lines(kept, ranks):
                file.write(f"{line}\n")
                count += 1
            size = file.tell()
    except FileExistsError:
        raise OptionError("save", f"save={path}: there is such a file already") from None
    except OSError as error:
        raise OptionError("save", f"save={path}: {error.strerror}") from None
    return f"{count:,} lines, {spell_size(size)}, of run {kept.name} are in {path}"


def _lines(kept: Kept, ranks: Collection[int] | None) -> Iterator[tuple[int | None, str]]:
    """(rank, text) of each line; what is said of the run as a whole is of no rank."""
    for line in read(kept.pool_id, kept.run, ranks):
        if line.stream == "note":
            yield None, f"… {line.text} …"
            continue
        for text in _as_seen(line):
            yield line.rank, f"[{line.rank}] {text}".rstrip()


def _as_seen(line: LogLine) -> list[str]:
    """A line as a terminal leaves it."""
    screen, ended = feed(Screen(), line.text, lambda: None)
    return [*ended, *seen(screen)] or [""]
