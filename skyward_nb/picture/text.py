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
    count_lines,
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
from skyward_nb.view.run_view import (
    DisplayedObject,
    Entry,
    OutputLine,
    RunView,
    all_notes,
    laid_out,
)


def as_text(view: RunView, most: int | None = None) -> str:
    """The whole view as plain text; of its output the last lines, of `most` characters."""
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
    """The last of the output, of so many characters in all, and a word on what came before."""
    entries = [entry for _, entry in laid_out(view)]
    kept: list[str] = []
    while entries:
        text = cut_words(view) if entries[-1] is None else _entry_text(entries[-1])
        if len(text) >= most:
            part = _end_of(entries[-1], most, may_cut_a_line=not kept)
            if part:
                entries.pop()
                kept.append(part)
            break
        most -= len(text) + 1
        entries.pop()
        kept.append(text)
    return [*_words_on(entries, view), *reversed(kept)]


def _end_of(entry: Entry | None, most: int, *, may_cut_a_line: bool) -> str:
    """The last lines of an entry that is too long, or the end of its last one; nothing where neither fits."""
    if entry is None:
        return ""
    whole = _body(entry)
    end = whole[-most:] if most > 0 else ""
    _, newline, lines = end.partition("\n")
    if newline and lines:
        return f"{label(entry.ranks)} …\n{lines}"
    return f"{label(entry.ranks)} … {end}" if may_cut_a_line else ""


def _words_on(entries: list[Entry | None], view: RunView) -> list[str]:
    """How much these entries are, which the text leaves out; lines count for each rank, as in logs."""
    lines = sum(len(entry.ranks) for entry in entries if isinstance(entry, OutputLine))
    lines += view.cut if None in entries else 0
    shown = sum(isinstance(entry, DisplayedObject) for entry in entries)
    parts = [count_lines(lines)] if lines else []
    parts += [f"{shown:,} displayed object{'' if shown == 1 else 's'}"] if shown else []
    if not parts:
        return []
    what = " and ".join(parts).replace(" ", " earlier ", 1)
    how = f"; {view.logs} prints all of them" if view.logs else ""
    if lines + shown == 1:
        return [f"… {what} is not in this text{how.replace('all of them', 'it')} …"]
    return [f"… {what} are not in this text{how} …"]


def _entry_text(entry: Entry) -> str:
    return f"{label(entry.ranks)} {_body(entry)}".rstrip()


def _body(entry: Entry) -> str:
    if isinstance(entry, OutputLine):
        return plain(entry.text)
    return entry.data.get("text/plain") or kinds(entry.data)


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
