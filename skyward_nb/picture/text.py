"""A view as plain text, for terminals, logs and `text/plain`. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from skyward_nb.picture.colours import plain
from skyward_nb.picture.one_line import of_the_run
from skyward_nb.picture.wording import (
    EACH_RANK,
    MANIFEST_COLUMNS,
    clock,
    columns,
    cut_words,
    headline,
    label,
    manifest_rows,
    peak_words,
    rank_rows,
    ready_words,
    remarks,
    row_text,
    step_rows,
    time_words,
)
from skyward_nb.view.run_view import Entry, OutputLine, RunView, all_notes, laid_out


def as_text(view: RunView, most: int | None = None) -> str:
    """The whole view as plain text; of its output the last lines, of `most` letters."""
    about = f" · {view.about}" if view.about else ""
    lines = [f"{headline(view)} · {time_words(view)}{about}"]
    if view.state == "starting" and view.ended is None:
        lines += ["  " + "   ".join(row) for row in step_rows(view)]
    lines += rank_text(view)
    lines += [f"  {remark}" for remark in remarks(view)]
    lines += output_text(view) if most is None else _last_output(view, most)
    lines += manifest_text(view)
    lines += all_notes(view)
    if not view.manifest_open:
        lines += (*ready_words(view), *peak_words(view))
    return "\n".join(lines)


def rank_text(view: RunView) -> list[str]:
    """A line for each row of ranks, its loops and figures."""
    return [f"  {row_text(row)}" for row in rank_rows(view)]


def output_text(view: RunView) -> list[str]:
    """Every line with its ranks, and a word on what was displayed."""
    return [cut_words(view) if entry is None else _entry_text(entry) for _, entry in laid_out(view)]


def _last_output(view: RunView, most: int) -> list[str]:
    """The last lines, of so many letters in all, and how many are above."""
    lines = output_text(view)
    first = len(lines)
    while first and (most := most - len(lines[first - 1]) - 1) >= 0:
        first -= 1
    if not first:
        return lines
    how = f": {view.logs}" if view.logs else ""
    return [f"… {first + max(0, view.cut - 1):,} lines above{how} …", *lines[first:]]


def _entry_text(entry: Entry) -> str:
    if isinstance(entry, OutputLine):
        return f"{label(entry.ranks)} {plain(entry.text)}".rstrip()
    return f"{label(entry.ranks)} {entry.data.get('text/plain') or kinds(entry.data)}"


def kinds(data: dict[str, str]) -> str:
    """What is said of a rich object without a text."""
    return f"({', '.join(data) or 'nothing'})"


def manifest_text(view: RunView) -> list[str]:
    """The manifest as lines, when it is what was asked for."""
    if not view.manifest_open or not view.manifest:
        return []
    return [f"  {line}" for line in columns([MANIFEST_COLUMNS, *manifest_rows(view)])]


def closing_text(view: RunView) -> list[str]:
    """What is to be said when lines were printed as they came: how it ended, and notes.

    Of an error that follows, only its kind.
    """
    rows = [f"  {row_text(row)}" for row in rank_rows(view) if row.bars or row.metrics]
    if len(rows) > EACH_RANK:
        rows[EACH_RANK:] = [f"  … {len(rows) - EACH_RANK:,} more"]
    notes = all_notes(replace(view, error_notes=()) if view.short_headline else view)
    told = [f"  {line}" for words in (remarks(view), notes) for line in words]
    return [_ending(view), *rows, *manifest_text(view), *told]


def _ending(view: RunView) -> str:
    """How it ended, and after what time."""
    words = view.short_headline or headline(view)
    seconds = clock(max(0.0, of_the_run(view).took))
    if view.state == "finished" and view.ranks and words.endswith(" finished"):
        return f"finished in {seconds} on {words.removesuffix(' finished')}"
    if view.state == "failed":
        return f"failed after {seconds}: {words}"
    return words if view.manifest_open else f"{words} · {seconds}"
