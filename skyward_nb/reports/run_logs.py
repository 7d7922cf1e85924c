"""The whole output of a run, of which its picture shows a part: read, printed, saved."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from skyward_nb.logs.log_files import StoredRun, find, runs
from skyward_nb.logs.log_reader import LogLine, follow, read
from skyward_nb.words.errors import OptionError, spell_size
from skyward_nb.words.ranks import count_ranks

_MOST_NAMED = 1000
MOST_SHOWN = 2_000_000
"""Characters that are printed into a notebook; more is better saved to a file."""


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose output is on disk: `written` in seconds since 1970, `size` in bytes."""

    run: str
    pool: str
    number: int
    written: float
    size: int


def row_of(kept: StoredRun) -> LogRow:
    """The row of a run."""
    return LogRow(
        run=kept.name, pool=kept.pool_id, number=kept.run, written=kept.when, size=kept.size
    )


def runs_of(pool: str | None = None) -> list[StoredRun]:
    """The runs whose output is on disk, newest first, of a pool's name or id if asked."""
    return [
        kept for kept in runs() if pool in (None, kept.pool_id, kept.pool_id.rpartition("-")[0])
    ]


def find_run(run: str, pool: str | None = None) -> StoredRun:
    """The run that is meant by `7` or `default-3fa2b1/7`, or the newest; raises `OptionError`."""
    return find(run, list(dict.fromkeys(kept.pool_id for kept in runs_of(pool))))


def log_lines(kept: StoredRun, ranks: Collection[int] | None) -> Iterator[LogLine]:
    """The lines of a run as a terminal leaves them; words on the whole run have no rank."""
    from skyward_nb.view.terminal import is_plain

    for line in read(kept.pool_id, kept.run, ranks):
        # Most are, and a log may have millions.
        if is_plain(line.text):
            yield line
        else:
            yield from _as_seen(line)


def _as_seen(line: LogLine) -> Iterator[LogLine]:
    from skyward_nb.view.terminal import Screen, feed, seen

    if line.stream == "note":
        yield line
        return
    screen, ended = feed(Screen(), line.text, lambda: None)
    for text in [*ended, *seen(screen)] or [""]:
        yield LogLine(line.rank, line.stream, text)


class _HasText(Protocol):
    @property
    def text(self) -> str: ...


L = TypeVar("L", bound=_HasText)


def last_lines(lines: Iterable[L], count: int | None, most: int | None) -> tuple[Iterable[L], int]:
    """The last `count` of them, of at most so many characters, and how many were before.

    Without either bound they are passed on as they come.
    """
    if count is None and most is None:
        return lines, 0
    shown: deque[L] = deque()
    size = left_out = 0
    for line in lines:
        shown.append(line)
        size += len(line.text) + 1
        while (count is not None and len(shown) > count) or (most is not None and size > most):
            size -= len(shown.popleft().text) + 1
            left_out += 1
    return shown, left_out


def print_log(
    kept: StoredRun, ranks: Collection[int] | None, count: int | None, most: int | None = MOST_SHOWN
) -> None:
    """Print the lines of a run, of some ranks if asked, or the last `count` of them."""
    spoke: set[int | None] = set()

    def noted() -> Iterator[LogLine]:
        for line in log_lines(kept, ranks):
            spoke.add(line.rank)
            yield line

    shown, left_out = last_lines(noted(), count, most)
    _print_left_out(kept, left_out if count is None else 0)
    sys.stdout.writelines(f"{spell_line(line)}\n" for line in shown)
    if silent := _silent(kept, ranks, spoke):
        print(silent)


def _print_left_out(kept: StoredRun, lines: int) -> None:
    if lines:
        print(
            f"… {lines:,} lines before these are not printed into the notebook: "
            f"%sky logs run={kept.name} save=FILE writes all {spell_size(kept.size)}"
        )


def follow_log(
    kept: StoredRun,
    ranks: Collection[int] | None,
    count: int | None,
    pause: Callable[[], None],
    most: int | None = MOST_SHOWN,
) -> None:
    """Print the lines of a run that there are, the last `count` if asked, and then what comes, until it is over.

    `pause` is called before it is looked again.
    """
    lines = follow(kept.pool_id, kept.run, ranks, pause)
    there = (seen for line in iter(lambda: next(lines, None), None) for seen in _as_seen(line))
    shown, left_out = last_lines(there, count, most)
    _print_left_out(kept, left_out if count is None else 0)
    sys.stdout.writelines(f"{spell_line(line)}\n" for line in shown)
    sys.stdout.flush()
    for line in lines:
        sys.stdout.writelines(f"{spell_line(seen)}\n" for seen in (_as_seen(line) if line else ()))
        if line is None:
            sys.stdout.flush()


def log_json(kept: StoredRun, ranks: Collection[int] | None, count: int | None) -> Iterator[str]:
    """The same as one JSON document, in pieces: a log may be large."""
    shown, left_out = last_lines(log_lines(kept, ranks), count, None)
    head = msgspec.json.encode(row_of(kept)).decode().removesuffix("}")
    yield f'{head},"left_out":{left_out},"lines":['
    for number, line in enumerate(shown):
        yield ("," if number else "") + msgspec.json.encode(line).decode()
    yield "]}"


def spell_line(line: LogLine) -> str:
    """A line with its rank, as it is printed."""
    return f"… {line.text} …" if line.rank is None else f"[{line.rank}] {line.text}".rstrip()


def spell_run(kept: StoredRun, now: float) -> str:
    """Which run it is, and how long ago it last printed: `run default-3fa2b1/7, 12 s ago`."""
    return f"run {kept.name}, {spell_ago(now - kept.when)}"


def spell_ago(passed: float) -> str:
    """`12 s ago`."""
    seconds = max(0, int(passed))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def _silent(kept: StoredRun, ranks: Collection[int] | None, spoke: Set[int | None]) -> str:
    """That of some of these ranks there is nothing, unless others of them spoke for `all`."""
    if ranks is None:
        return "" if spoke else f"no output is kept of run {kept.name}"
    silent = [rank for rank in ranks if rank not in spoke]
    if len(silent) <= _MOST_NAMED:
        return f"no output of {count_ranks(silent)} in run {kept.name}" if silent else ""
    # As many as that are not meant one by one: `all`, or a slice without an end.
    return "" if len(silent) < len(ranks) else f"no output of these ranks in run {kept.name}"


def save_log(kept: StoredRun, ranks: Collection[int] | None, path: Path) -> str:
    """Write the lines of a run to a new file; how much that was, in words.

    Raises `OptionError` when there is such a file, or it cannot be written.
    """
    count, size = save_lines(map(spell_line, log_lines(kept, ranks)), path)
    return f"{count:,} lines, {spell_size(size)}, of run {kept.name} are in {path}"


def save_lines(lines: Iterable[str], path: Path) -> tuple[int, int]:
    """Write lines to a new file; how many, and how many bytes.

    Raises `OptionError` when there is such a file, or it cannot be written.
    """
    count = 0
    try:
        with path.expanduser().open("x", encoding="utf-8", errors="backslashreplace") as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
            return count, file.tell()
    except FileExistsError:
        raise OptionError("save", f"save={path}: this file exists already") from None
    except OSError as error:
        raise OptionError("save", f"save={path}: {error.strerror}") from None
