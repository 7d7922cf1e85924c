"""`%sky logs`: the whole of what ranks printed in a run, which its picture shows in part."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path

from skyward_nb.pool.logfiles import Kept
from skyward_nb.pool.logreader import LogLine, read
from skyward_nb.pool.terminal import Screen, feed, seen
from skyward_nb.words.errors import OptionError, spell_size

MOST_SHOWN = 2_000_000
"""Characters that are printed into a notebook; more is better saved to a file."""


def print_log(kept: Kept, ranks: Collection[int] | None, count: int | None) -> None:
    """Print the lines of a run, of some ranks if asked, or the last `count` of them."""
    shown: deque[str] = deque()
    size = left_out = 0
    for line in _lines(kept, ranks):
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


def save_log(kept: Kept, ranks: Collection[int] | None, path: Path) -> str:
    """Write the lines of a run to a new file; how much that was, in words.

    Raises `OptionError` when there is such a file, or it cannot be written.
    """
    count = 0
    try:
        with path.expanduser().open("x", encoding="utf-8", errors="backslashreplace") as file:
            for line in _lines(kept, ranks):
                file.write(f"{line}\n")
                count += 1
            size = file.tell()
    except FileExistsError:
        raise OptionError("save", f"save={path}: there is such a file already") from None
    except OSError as error:
        raise OptionError("save", f"save={path}: {error.strerror}") from None
    return f"{count:,} lines, {spell_size(size)}, of run {kept.name} are in {path}"


def _lines(kept: Kept, ranks: Collection[int] | None) -> Iterator[str]:
    for line in read(kept.pool_id, kept.run, ranks):
        if line.stream == "note":
            yield f"… {line.text} …"
            continue
        for text in _as_seen(line):
            yield f"[{line.rank}] {text}".rstrip()


def _as_seen(line: LogLine) -> list[str]:
    """A line as a terminal leaves it."""
    screen, ended = feed(Screen(), line.text, lambda: None)
    return [*ended, *seen(screen)] or [""]
