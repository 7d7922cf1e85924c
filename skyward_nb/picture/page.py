"""A view as HTML that needs no script: what the notebook keeps, and the parts of it shown live.

It reads well without its style sheet, too, as where a site strips it: tables, details and images
carry the meaning. Colours of text are the page's own; the others suit light and dark. Pure.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby

from skyward_nb.picture.colours import coloured
from skyward_nb.picture.curves import curve, suits_log, title
from skyward_nb.picture.figure_grid import in_grid, stretches, turns
from skyward_nb.picture.rank_table import gauge, ranks, tells_memory, wide
from skyward_nb.picture.record import anchor, group
from skyward_nb.picture.rich import rich_html
from skyward_nb.picture.style_sheet import EDGE, LEFT, STYLE, TONES
from skyward_nb.picture.wording import (
    MANIFEST_COLUMNS,
    bar_row,
    cut_words,
    headline,
    label,
    manifest_rows,
    peak_words,
    ready_words,
    step_rows,
    time_words,
)
from skyward_nb.view.run_view import (
    DisplayedObject,
    NoteTable,
    OutputLine,
    RunView,
)
from skyward_nb.view.series import Series
from skyward_nb.words.ranks import count_ranks

MOST_CURVES = 12
MOST_TABS = 128
_TD = f"<td {LEFT}>"


def as_html(view: RunView) -> str:
    """The whole view, self-contained."""
    return framed(head(view), ranks(view), curves(view), output(view), foot(view))


def framed(*parts: str) -> str:
    """Parts in one frame, with the style sheet."""
    return f'{STYLE}<div class="sky-run">{"".join(parts)}</div>'


def head(view: RunView) -> str:
    """The headline, the time, and the progress of nodes."""
    about = f'<span class="m">{html.escape(view.about)}</span>' if view.about else ""
    bar = (
        f'<div class="bar"><div class="ti"><span style="color:{TONES[view.state]}" '
        f'aria-hidden="true">●</span><div><b>{html.escape(view.short_headline or headline(view))}</b> {about}</div></div> '
        f'<span class="m r">{time_words(view)}</span></div>'
    )
    if view.bar is not None and view.ended is None:
        row = bar_row([view.bar], "running", 0.0)
        bar += f"<table><tr>{_TD}{gauge(row.part or 0.0)}</td>{_TD}{html.escape(row.words)}</td></tr></table>"
    if view.state != "starting" or view.ended is not None:
        return bar
    rows = "".join(
        "<tr>" + "".join(f"{_TD}{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in step_rows(view)
    )
    return f"{bar}<table>{rows}</table>" if rows else bar


# ── curves ──────────────────────────────────────────────────────────────────────────────


def curves(view: RunView) -> str:
    """A picture of each metric that has more than one point."""
    figures = metric_series(view)
    drawn = [_figure(view, name, by_rank) for name, by_rank in figures[:MOST_CURVES]]
    if not drawn:
        return ""
    more = len(figures) - MOST_CURVES
    rest = f'<div class="m small">{more} more metrics are not drawn</div>' if more > 0 else ""
    return f'<div class="curves">{"".join(drawn)}{rest}</div>'


def metric_series(view: RunView) -> list[tuple[str, dict[int, Series]]]:
    """Metrics worth a curve, with the series of each rank that has one."""
    found: dict[str, dict[int, Series]] = {}
    for rank, now in sorted(view.ranks.items()):
        for name, series in now.series.items():
            found.setdefault(name, {})[rank] = series
    return [
        (name, by_rank)
        for name, by_rank in found.items()
        if any(len(series.steps) > 1 for series in by_rank.values())
    ]


@lru_cache(maxsize=64)
def _drawn(name: str, by_rank: tuple[tuple[int, Series], ...], is_log: bool) -> str:
    return curve(name, dict(by_rank), is_log=is_log)


def _figure(view: RunView, name: str, by_rank: dict[int, Series]) -> str:
    each = tuple(by_rank.items())
    is_log = suits_log(by_rank)
    caption = f'<div class="m small">{html.escape(title(name, by_rank))}</div>'
    other = ""
    is_positive = all(value > 0 for series in by_rank.values() for value in series.means)
    if view.ended is not None and is_positive:
        words = "linear scale" if is_log else "log scale"
        drawn = _drawn(name, each, not is_log)
        other = f'<details><summary class="m small">{words}</summary>{drawn}</details>'
    return f"<div>{caption}{_drawn(name, each, is_log)}{other}</div>"


# ── output ──────────────────────────────────────────────────────────────────────────────


def output(view: RunView) -> str:
    """All output and displayed objects, with a tab for each rank when there are several."""
    entries = _entries(view)
    if not entries:
        return ""
    there = sorted(view.ranks)
    body = _scrolled(entries)
    if not 1 < len(there) <= MOST_TABS:
        return f'<div style="border-top:{EDGE}">{body}</div>'
    rules = "".join(
        f'.sky-run .tabs:has(input[value="{rank}"]:checked) .g:not(.a):not(.r{rank})'
        "{display:none}"
        for rank in there
    ) + _marks(view, group(view))
    tabs = _tabs(there, group(view))
    return f'<style>{rules}</style><div class="tabs">{tabs}{body}</div>'


def _scrolled(entries: str) -> str:
    """Output in a box that scrolls, and begins at its end."""
    return (
        '<div class="out" role="region" tabindex="0" aria-label="output">'
        f"<div>{entries}</div></div>"
    )


def live_tabs(view: RunView) -> str:
    """Tabs for panes that are other widgets of the same box."""
    there = sorted(view.ranks)
    rules = "".join(
        f'.sky-live:has(input[value="{each}"]:checked) .sky-pane:not(.sky-pane-{each})'
        "{display:none}"
        for each in ("all", *there)
    )
    tabs = _tabs(there, f"{group(view)}-live")
    return f'<style>{rules}</style><div class="tabs">{tabs}</div>'


def live_marks(view: RunView) -> str:
    """A style sheet that marks the live tabs of failed ranks."""
    rules = _marks(view, f"{group(view)}-live")
    return f"<style>{rules}</style>" if rules else ""


def _marks(view: RunView, name: str) -> str:
    """Rules that put a red dot into the tabs of failed ranks."""
    failed = [rank for rank, now in sorted(view.ranks.items()) if now.state in ("failed", "lost")]
    tabs = ",".join(f'input[name="{name}"][value="{rank}"]' for rank in failed)
    # A browser that does not know alternative texts leaves out the second content.
    dot = f'content:" ●";content:" ●"/" failed";color:{TONES["failed"]}'
    return f".sky-run label:has({tabs})::after{{{dot}}}" if failed else ""


def _tabs(there: Sequence[int], name: str) -> str:
    """Radio buttons that look like tabs; in JupyterLab the arrow keys are theirs, not the notebook's."""
    attributes = f'type="radio" name="{name}" data-lm-suppress-shortcuts="true"'
    tabs = "".join(f'<label><input {attributes} value="{rank}">{rank}</label>' for rank in there)
    # Hidden but for the style sheet: without it nothing can be chosen.
    return (
        '<div class="who" style="display:none"><fieldset aria-label="whose output is shown">'
        f'<label><input {attributes} value="all" checked>all ranks</label>{tabs}</fieldset></div>'
    )


def _entries(view: RunView) -> str:
    """Lines as preformatted text in groups of the same ranks, figures between them."""
    everybody = tuple(sorted(view.ranks))
    parts: list[str] = []
    for stretch in stretches(view):
        if stretch.lines:
            parts.append(f"<pre>{_text(view, stretch.lines, everybody)}</pre>")
        names = {id(entry): anchor(view, index) for index, entry in stretch.figures}
        for turn in turns(entry for _, entry in stretch.figures):
            each = [shown(one, _classes(one.ranks, everybody), names[id(one)]) for one in turn]
            parts.append(in_grid(each))
    return "".join(parts)


def _text(view: RunView, lines: Iterable[OutputLine | None], everybody: tuple[int, ...]) -> str:
    groups: list[str] = []
    for of, each in groupby(lines, lambda line: line and line.ranks):
        if of is None:
            groups.append(_cut(view))
        else:
            text = "".join(_line(line) for line in each if line)
            groups.append(f'<span class="g {_classes(of, everybody)}">{text}</span>')
    return "".join(groups)


def _cut(view: RunView) -> str:
    return f'<span class="m">{html.escape(cut_words(view))}\n</span>'


@lru_cache(maxsize=4096)
def _classes(of: tuple[int, ...], everybody: tuple[int, ...]) -> str:
    return "a" if of == everybody else " ".join(f"r{rank}" for rank in of)


def _line(line: OutputLine) -> str:
    text = coloured(line.text)
    if line.stream == "stderr":
        text = f'<span class="e">{text}</span>'
    return f"<b>{label(line.ranks)}</b> {text}\n"


def shown(entry: DisplayedObject, classes: str = "", name: str = "") -> str:
    """An object that ranks displayed, under their label, in an element with the id `name`."""
    body = _rich(tuple(entry.data.items()), f"figure of {count_ranks(entry.ranks)}")
    known = f' id="{html.escape(name)}"' if name else ""
    return f'<div class="g {classes} fig"{known}><b>{label(entry.ranks)}</b> {body}</div>'


@lru_cache(maxsize=8)
def _rich(data: tuple[tuple[str, str], ...], what: str) -> str:
    return rich_html(dict(data), what)


def lines_html(lines: Iterable[OutputLine | str]) -> str:
    """Lines alone, and remarks between them, as they are shown live."""
    return (
        '<div class="out"><div><pre>'
        + "".join(
            f'<span class="m">{html.escape(line)}\n</span>'
            if isinstance(line, str)
            else _line(line)
            for line in lines
        )
        + "</pre></div></div>"
    )


# ── the end ─────────────────────────────────────────────────────────────────────────────


def foot(view: RunView) -> str:
    """Notes, and in small print what was sent, with the manifest folded away."""
    told = () if view.short_headline else view.error_notes
    notes = "".join(map(_note_table, view.tables)) + _notes((*view.notes, *told))
    if view.manifest_open:
        return notes + _manifest(view)
    peak = () if tells_memory(view) else peak_words(view)
    words = [*view.foot, *ready_words(view), *peak]
    if not words:
        return notes
    small = " · ".join(map(html.escape, words))
    if table := _manifest(view):
        small = f"<details><summary>{small}</summary>{table}</details>"
    return f'{notes}<div class="sec small m">{small}</div>'


def _manifest(view: RunView) -> str:
    if not view.manifest:
        return ""
    return _table("names", MANIFEST_COLUMNS, manifest_rows(view))


def _notes(notes: Iterable[str]) -> str:
    return "".join(f'<div class="sec">{html.escape(note)}</div>' for note in notes)


def _note_table(table: NoteTable) -> str:
    if not table.rows:
        return _notes(table.remarks)
    rows = _table(table.title, table.columns, table.rows)
    return f'<div style="border-top:{EDGE}">{rows}</div>{_notes(table.remarks)}'


def _table(what: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = "".join(f'<th scope="col" {LEFT}>{html.escape(column)}</th>' for column in columns)
    cells = ("".join(f"{_TD}{html.escape(text)}</td>" for text in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return wide(what, f"<tr>{heads}</tr>{body}")
