"""A view as plain text, for terminals, logs and `text/plain`. Pure."""

from __future__ import annotations

from skyward_nb.picture.colours import plain
from skyward_nb.picture.wording import (
    MANIFEST_COLUMNS,
    columns,
    cut_words,
    headline,
    label,
    manifest_rows,
    peak_words,
    rank_rows,
    remarks,
    step_rows,
    time_words,
)
from skyward_nb.pool.view import Entry, Line, View, laid_out


def as_text(view: View) -> str:
    """The whole view as plain text."""
    about = f" · {view.about}" if view.about else ""
    lines = [f"{headline(view)} · {time_words(view)}{about}"]
    if view.state == "starting" and view.ended is None:
        lines += ["  " + "   ".join(row) for row in step_rows(view)]
    lines += rank_text(view)
    lines += [f"  {remark}" for remark in remarks(view)]
    lines += output_text(view)
    lines += manifest_text(view)
    lines += view.notes
    return "\n".join([*lines, *(() if view.manifest_open else peak_words(view))])


def rank_text(view: View) -> list[str]:
    """A line for each row of ranks, its loops and figures."""
    lines: list[str] = []
    for row in rank_rows(view):
        words = [bar.words for bar in row.bars]
        words += [f"{name} {value}" for name, value in row.metrics.items()]
        words += [
            f"{name} {value}" for name, value in (("cpu", row.cpu), ("memory", row.memory)) if value
        ]
        words += [part for part in (row.gpu, row.remark) if part]
        state = f" {row.state}" if row.state else ""
        lines.append(f"  {label(row.ranks)}{state} {'  '.join(words)}".rstrip())
    return lines


def output_text(view: View) -> list[str]:
    """Every line with its ranks, and a word on what was displayed."""
    return [cut_words(view) if entry is None else _entry_text(entry) for _, entry in laid_out(view)]


def _entry_text(entry: Entry) -> str:
    if isinstance(entry, Line):
        return f"{label(entry.ranks)} {plain(entry.text)}".rstrip()
    return f"{label(entry.ranks)} {entry.data.get('text/plain') or _kinds(entry.data)}"


def _kinds(data: dict[str, str]) -> str:
    return f"({', '.join(data) or 'nothing'})"


def manifest_text(view: View) -> list[str]:
    """The manifest as lines, when it is what was asked for."""
    if not view.manifest_open or not view.manifest:
        return []
    return [f"  {line}" for line in columns([MANIFEST_COLUMNS, *manifest_rows(view)])]


def closing_text(view: View) -> list[str]:
    """What is to be said when lines were printed as they came: little, when all went well."""
    if view.state == "finished" and not view.notes and not view.manifest_open:
        return rank_text(view)
    return [headline(view), *rank_text(view), *manifest_text(view), *view.notes]
