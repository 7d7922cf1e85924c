"""A view as HTML that needs no script: what the notebook keeps, and the parts of it shown live.

It reads well without its style sheet, too, as where a site strips it: tables, details and images
carry the meaning. Colours of text are the page's own; the others suit light and dark. Pure.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from skyward_nb.picture.colours import coloured
from skyward_nb.picture.curves import curve, suits_log, title
from skyward_nb.picture.record import anchor, group
from skyward_nb.picture.rich import rich_html
from skyward_nb.picture.wording import (
    MANIFEST_COLUMNS,
    BarRow,
    RankRow,
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
from skyward_nb.pool.series import Series
from skyward_nb.pool.view import Line, Shown, View, laid_out
from skyward_nb.words.ranks import count_ranks

MOST_CURVES = 12
MOST_METRIC_COLUMNS = 12
MOST_TABS = 128

_LEFT = 'style="text-align:left"'
_PLAIN = 'style="text-align:left;font-weight:inherit"'
_TD = f"<td {_LEFT}>"

_EDGE = "1px solid var(--jp-border-color2,rgba(128,128,128,.35))"
_STYLE = f"""
.sky-run{{border:{_EDGE};border-radius:6px;overflow:hidden;max-width:960px;font-size:13px;line-height:1.45;font-variant-numeric:tabular-nums}}
.sky-run .bar{{display:flex;gap:4px 10px;align-items:baseline;flex-wrap:wrap;padding:6px 12px;background:rgba(128,128,128,.1)}}
.sky-run.live{{border:0;border-radius:0;max-width:none}}
.sky-live .widget-html,.sky-live .widget-html-content{{width:auto;max-width:none;margin:0;line-height:inherit}}
.sky-run .m{{opacity:.7}}
.sky-run .r{{margin-left:auto}}
.sky-run .sec{{padding:5px 12px;border-top:{_EDGE}}}
.sky-run .small{{font-size:12px}}
.sky-run table{{border-collapse:collapse;margin:4px 0;font-size:13px;border:0;color:inherit}}
.sky-run table th,.sky-run table td{{padding:2px 9px;text-align:left;vertical-align:top;white-space:nowrap;border:0;background:none}}
.sky-run table th{{font-weight:500;font-size:12px;opacity:.7}}
.sky-run table tr>:first-child{{padding-left:12px!important}}
.sky-run table th[scope=row]{{font-size:inherit;opacity:1}}
.sky-run tr{{background:none!important}}
.sky-run .t{{margin:5px 0 3px;border-radius:4px;overflow:hidden}}
.sky-run .tag{{display:inline-block;font-size:11px;line-height:1.4;border-radius:9px;padding:1px 7px;border:1px solid #bf8700;color:inherit;background:rgba(191,135,0,.15)}}
.sky-run .wide{{overflow-x:auto}}
.sky-run .curves{{display:flex;flex-wrap:wrap;gap:6px 24px;padding:6px 12px;border-top:{_EDGE}}}
.sky-run .tabs{{margin:0;border-top:{_EDGE}}}
.sky-run .who{{display:block!important}}
.sky-run fieldset{{display:flex;flex-wrap:wrap;gap:2px;margin:0;padding:6px 12px 0;border:0;min-width:0}}
.sky-run label{{padding:2px 10px;margin:0;font-size:12.5px;border:1px solid transparent;border-bottom:0;border-radius:5px 5px 0 0;cursor:pointer;opacity:.7}}
.sky-run label:has(:checked){{border-color:rgba(128,128,128,.5);opacity:1;font-weight:600}}
.sky-run label:has(:focus-visible){{outline:2px solid #2f81f7;outline-offset:-2px}}
.sky-run label input{{position:absolute;opacity:0;width:1px;height:1px;margin:0}}
.sky-run .out{{max-height:32em;overflow:auto;padding:6px 12px}}
.sky-run pre{{margin:0;padding:0;border:0;background:none;color:inherit;font:12.5px/1.45 var(--jp-code-font-family,ui-monospace,SFMono-Regular,Menlo,Consolas,monospace);white-space:pre-wrap;overflow-wrap:anywhere}}
.sky-run .out b{{color:#8957e5;color:color-mix(in srgb,#8957e5 70%,currentColor);font-weight:400}}
.sky-run .e{{color:#b35900;color:color-mix(in srgb,#b35900 70%,currentColor)}}
.sky-run .fig{{padding:4px 0}}
.sky-run .fig img{{max-width:100%;vertical-align:top}}
.sky-run summary{{cursor:pointer}}
@media (max-width:640px){{.sky-run table th,.sky-run table td{{padding:2px 6px}}.sky-run .t{{width:48px!important}}.sky-run table td.w{{white-space:normal;min-width:9em}}}}
"""
STYLE = "<style>" + "".join(line.strip() for line in _STYLE.splitlines()) + "</style>"

_DOTS = {
    "starting": "#2f81f7",
    "running": "#2f81f7",
    "finished": "#2da44e",
    "failed": "#d1242f",
    "interrupted": "#bf8700",
}


def as_html(view: View) -> str:
    """The whole view, self-contained."""
    return framed(head(view), ranks(view), curves(view), output(view), foot(view))


def framed(*parts: str) -> str:
    """Parts in one frame, with the style sheet."""
    return f'{STYLE}<div class="sky-run">{"".join(parts)}</div>'


def head(view: View) -> str:
    """What is going on, since when, and how far nodes are on their way."""
    about = f'<span class="m">{html.escape(view.about)}</span>' if view.about else ""
    bar = (
        f'<div class="bar"><span style="color:{_DOTS[view.state]}" aria-hidden="true">●</span>'
        f"<b>{html.escape(headline(view))}</b> {about} "
        f'<span class="m r">{time_words(view)}</span></div>'
    )
    if view.state != "starting" or view.ended is not None:
        return bar
    rows = "".join(
        "<tr>" + "".join(f"{_TD}{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in step_rows(view)
    )
    return f"{bar}<table>{rows}</table>" if rows else bar


# ── ranks ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Column:
    """A column of the table of ranks: its header, and what it says of a rank, as HTML."""

    title: str
    cell: Callable[[RankRow], str]
    css: str = ""


def ranks(view: View) -> str:
    """A table of ranks with loops and figures, and what is to be remarked of them."""
    rows = rank_rows(view)
    said = [*remarks(view)]
    if not rows:
        return _sentences(said)
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    more = len(metrics) - MOST_METRIC_COLUMNS
    if more > 0:
        said.insert(0, f"{more} more metric{'s are' if more > 1 else ' is'} not in this table")
    columns = list(_columns(view, rows, metrics[:MOST_METRIC_COLUMNS]))
    heads = "".join(
        f'<th scope="col" {_LEFT}>{html.escape(column.title)}</th>' for column in columns
    )
    body = "".join(_rank_row(row, columns) for row in rows)
    return _wide("ranks", f"<tr>{heads}</tr>{body}") + _sentences(said)


def _sentences(said: Iterable[str]) -> str:
    return "".join(f'<div class="sec small">{html.escape(each)}</div>' for each in said)


def _wide(what: str, rows: str) -> str:
    """A table in a box that scrolls, by the keyboard, too."""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{what}">'
        f"<table>{rows}</table></div>"
    )


def _columns(view: View, rows: Sequence[RankRow], metrics: Iterable[str]) -> Iterator[_Column]:
    yield _Column("rank", _who)
    # With a node for each rank the numbers would stand there twice.
    if any(view.nodes.get(rank, 0) != rank for rank in view.ranks):
        yield from _figures(rows, "node")
    if any(bar.part is not None for row in rows for bar in row.bars):
        yield _Column("progress", lambda row: "".join(_bar(bar, row) for bar in row.bars))
    if any(row.bars for row in rows):
        yield _Column("loop", lambda row: "<br>".join(map(_bar_words, row.bars)), "w")
    # What is remarked stands by the loop that it is about: what is to the right may be out of sight.
    if any(row.remark for row in rows):
        yield _Column("remark", _remark)
    for name in metrics:
        yield _Column(name, partial(_metric, name))
    yield from _figures(rows, "cpu", "memory", "gpu")


def _figures(rows: Sequence[RankRow], *names: str) -> Iterator[_Column]:
    """Columns of fields of rows, those that any row has."""
    for name in names:
        if any(getattr(row, name) for row in rows):
            yield _Column(name, partial(_field, name))


def _field(name: str, row: RankRow) -> str:
    return html.escape(getattr(row, name))


def _metric(name: str, row: RankRow) -> str:
    return html.escape(row.metrics.get(name, ""))


def _who(row: RankRow) -> str:
    head = ' <span class="m">· head</span>' if row.ranks == (0,) else ""
    state = f" <i>{row.state}</i>" if row.state else ""
    return f"{html.escape(label(row.ranks)[1:-1])}{head}{state}"


def _remark(row: RankRow) -> str:
    return f'<span class="tag">{html.escape(row.remark)}</span>' if row.remark else ""


def _rank_row(row: RankRow, columns: Sequence[_Column]) -> str:
    first, *others = columns
    cells = [f'<th scope="row" {_PLAIN}>{first.cell(row)}</th>']
    for column in others:
        css = f'class="{column.css}" ' if column.css else ""
        cells.append(f"<td {css}{_LEFT}>{column.cell(row)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _bar_words(bar: BarRow) -> str:
    words = html.escape(bar.words)
    return f'<span class="m small">{words}</span>' if bar.level else words


def _bar(bar: BarRow, row: RankRow) -> str:
    if bar.part is None:
        return ""
    colour = _DOTS[
        "finished"
        if bar.part >= 1
        else "failed"
        if row.state
        else "interrupted"
        if row.is_late
        else "running"
    ]
    height = 4 if bar.level else 8
    percent = int(bar.part * 100)
    # Hidden from who listens: the words beside it say the same. Styled in place: so it is a bar
    # also where a notebook is not trusted.
    return (
        '<div class="t" aria-hidden="true" '
        f'style="width:140px;height:{height}px;background:rgba(128,128,128,.25)">'
        f'<div style="width:{percent}%;height:{height}px;background:{colour}"></div></div>'
    )


# ── curves ──────────────────────────────────────────────────────────────────────────────


def curves(view: View) -> str:
    """A picture of each metric that has more than one point."""
    figures = metric_series(view)
    drawn = [_figure(view, name, by_rank) for name, by_rank in figures[:MOST_CURVES]]
    if not drawn:
        return ""
    more = len(figures) - MOST_CURVES
    rest = f'<div class="m small">{more} more metrics are not drawn</div>' if more > 0 else ""
    return f'<div class="curves">{"".join(drawn)}{rest}</div>'


def metric_series(view: View) -> list[tuple[str, dict[int, Series]]]:
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


def _figure(view: View, name: str, by_rank: dict[int, Series]) -> str:
    each = tuple(by_rank.items())
    is_log = suits_log(by_rank)
    caption = f'<div class="m small">{html.escape(title(name, by_rank))}</div>'
    other = ""
    if view.ended is not None and _is_positive(by_rank.values()):
        words = "linear scale" if is_log else "log scale"
        drawn = _drawn(name, each, not is_log)
        other = f'<details><summary class="m small">{words}</summary>{drawn}</details>'
    return f"<div>{caption}{_drawn(name, each, is_log)}{other}</div>"


def _is_positive(series: Iterable[Series]) -> bool:
    return all(value > 0 for each in series for value in each.means)


# ── output ──────────────────────────────────────────────────────────────────────────────


def output(view: View) -> str:
    """Everything printed and displayed, with a tab for each rank when there are several."""
    entries = _entries(view)
    if not entries:
        return ""
    there = sorted(view.ranks)
    body = f'<div class="out" role="region" tabindex="0" aria-label="output">{entries}</div>'
    if not 1 < len(there) <= MOST_TABS:
        return f'<div style="border-top:{_EDGE}">{body}</div>'
    rules = "".join(
        f'.sky-run .tabs:has(input[value="{rank}"]:checked) .g:not(.a):not(.r{rank})'
        "{display:none}"
        for rank in there
    )
    tabs = _tabs(there, group(view))
    return f'<style>{rules}</style><div class="tabs">{tabs}{body}</div>'


def live_tabs(view: View) -> str:
    """Tabs for panes that are other widgets of the same box."""
    there = sorted(view.ranks)
    rules = "".join(
        f'.sky-live:has(input[value="{each}"]:checked) .sky-pane:not(.sky-pane-{each})'
        "{display:none}"
        for each in ("all", *there)
    )
    tabs = _tabs(there, f"{group(view)}-live")
    return f'<style>{rules}</style><div class="tabs">{tabs}</div>'


def _tabs(there: Sequence[int], name: str) -> str:
    """Radio buttons that look like tabs; in JupyterLab the arrow keys are theirs, not the notebook's."""
    attributes = f'type="radio" name="{name}" data-lm-suppress-shortcuts="true"'
    tabs = "".join(f'<label><input {attributes} value="{rank}">{rank}</label>' for rank in there)
    # Hidden but for the style sheet: without it nothing can be chosen.
    return (
        '<div class="who" style="display:none"><fieldset aria-label="whose output is shown">'
        f'<label><input {attributes} value="all" checked>all ranks</label>{tabs}</fieldset></div>'
    )


def _entries(view: View) -> str:
    """Lines as preformatted text in groups of the same ranks, figures between them."""
    parts: list[str] = []
    group: list[str] = []
    groups: list[str] = []
    of: tuple[int, ...] = ()
    everybody = tuple(sorted(view.ranks))

    def end_group() -> None:
        if group:
            groups.append(f'<span class="g {_classes(of, everybody)}">{"".join(group)}</span>')
            group.clear()

    def end_text() -> None:
        end_group()
        if groups:
            parts.append(f"<pre>{''.join(groups)}</pre>")
            groups.clear()

    for index, entry in laid_out(view):
        if entry is None:
            end_group()
            groups.append(_cut(view))
        elif isinstance(entry, Line):
            if entry.ranks != of:
                end_group()
                of = entry.ranks
            group.append(_line(entry))
        else:
            end_text()
            parts.append(shown(entry, _classes(entry.ranks, everybody), anchor(view, index)))
    end_text()
    return "".join(parts)


def _cut(view: View) -> str:
    return f'<span class="m">{html.escape(cut_words(view))}\n</span>'


@lru_cache(maxsize=4096)
def _classes(of: tuple[int, ...], everybody: tuple[int, ...]) -> str:
    return "a" if of == everybody else " ".join(f"r{rank}" for rank in of)


def _line(line: Line) -> str:
    text = coloured(line.text)
    if line.stream == "stderr":
        text = f'<span class="e">{text}</span>'
    return f"<b>{label(line.ranks)}</b> {text}\n"


def shown(entry: Shown, classes: str = "", name: str = "") -> str:
    """What ranks displayed, as their own, in an element with a `name` to be found by."""
    body = _rich(tuple(entry.data.items()), f"figure of {count_ranks(entry.ranks)}")
    known = f' id="{html.escape(name)}"' if name else ""
    return f'<div class="g {classes} fig"{known}><b>{label(entry.ranks)}</b> {body}</div>'


@lru_cache(maxsize=8)
def _rich(data: tuple[tuple[str, str], ...], what: str) -> str:
    return rich_html(dict(data), what)


def lines_html(lines: Iterable[Line | str]) -> str:
    """Lines alone, and remarks between them, as they are shown live."""
    return (
        '<div class="out"><pre>'
        + "".join(
            f'<span class="m">{html.escape(line)}\n</span>'
            if isinstance(line, str)
            else _line(line)
            for line in lines
        )
        + "</pre></div>"
    )


# ── the end ─────────────────────────────────────────────────────────────────────────────


def foot(view: View) -> str:
    """Notes, and in small print what was sent, with the manifest folded away."""
    notes = "".join(f'<div class="sec">{html.escape(note)}</div>' for note in view.notes)
    if view.manifest_open:
        return notes + _manifest(view)
    words = [*view.foot, *(peak_words(view) if view.ended is not None else ())]
    if not words:
        return notes
    small = " · ".join(map(html.escape, words))
    if table := _manifest(view):
        small = f"<details><summary>{small}</summary>{table}</details>"
    return f'{notes}<div class="sec small m">{small}</div>'


def _manifest(view: View) -> str:
    if not view.manifest:
        return ""
    heads = "".join(f'<th scope="col" {_LEFT}>{column}</th>' for column in MANIFEST_COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"{_TD}{html.escape(text)}</td>" for text in row) + "</tr>"
        for row in manifest_rows(view)
    )
    return _wide("names", f"<tr>{heads}</tr>{rows}")
