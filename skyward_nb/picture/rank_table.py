"""The table of ranks: their loops and figures, as HTML. Pure."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from skyward_nb.picture.style_sheet import LEFT, LINE, TONES
from skyward_nb.picture.wording import (
    BarRow,
    RankSummary,
    label,
    peak_words,
    rank_rows,
    remarks,
    row_text,
)
from skyward_nb.view.run_view import RunView

MOST_METRIC_COLUMNS = 12
_PLAIN = 'style="text-align:left;font-weight:inherit"'


@dataclass(frozen=True)
class _Column:
    """A column of the table of ranks: its header, and its cell for a rank, as HTML."""

    title: str
    cell: Callable[[RankSummary], str]
    css: str = ""


def ranks(view: RunView) -> str:
    """A table of ranks with loops and figures, and remarks on them.

    What ranks had a row each for while they ran keeps its height in the end, and folds by a click.
    """
    rows = rank_rows(view)
    summary = ""
    if each := _kept_rows(view, len(rows)):
        words = [*(row_text(row, ", ") for row in rows), *peak_words(view)]
        summary, rows = "; ".join(words), each
    said = [*remarks(view)]
    if not rows:
        return _sentences(said)
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    more = len(metrics) - MOST_METRIC_COLUMNS
    if more > 0:
        said.insert(0, f"{more} more metric{'s are' if more > 1 else ' is'} not in this table")
    columns = list(_columns(view, rows, metrics[:MOST_METRIC_COLUMNS]))
    heads = "".join(
        f'<th scope="col" {LEFT}>{html.escape(column.title)}</th>' for column in columns
    )
    body = "".join(_rank_row(row, columns) for row in rows)
    table = wide("ranks", f"<tr>{heads}</tr>{body}")
    if summary:
        head = f'<summary class="small m">{html.escape(summary)}</summary>'
        table = f'<details class="each" open>{head}{table}</details>'
    return table + _sentences(said)


def _kept_rows(view: RunView, few: int) -> list[RankSummary]:
    """A row for each rank of a run that has ended, where they had such rows before, and would now have `few`."""
    if view.ended is None:
        return []
    each = rank_rows(view, each=True)
    had_rows = any(row.bars or row.metrics or row.memory for row in each)
    return each if had_rows and len(each) > few else []


def tells_memory(view: RunView) -> bool:
    """Whether the table has the most memory that each rank used."""
    return any(row.memory for row in _kept_rows(view, len(rank_rows(view))))


def _sentences(said: Iterable[str]) -> str:
    return "".join(f'<div class="sec small">{html.escape(each)}</div>' for each in said)


def wide(what: str, rows: str) -> str:
    """A table in a box that scrolls, by the keyboard, too."""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{what}">'
        f"<table>{rows}</table></div>"
    )


def _columns(
    view: RunView, rows: Sequence[RankSummary], metrics: Iterable[str]
) -> Iterator[_Column]:
    yield _Column("rank", _who)
    # With a node for each rank the numbers would stand there twice.
    if any(view.nodes.get(rank, 0) != rank for rank in view.ranks):
        yield from _figures(rows, "node")
    if any(row.bars for row in rows):
        yield _Column("progress", _loops, "w")
    # A remark stands by its loop: columns further right may be out of sight.
    if any(row.remark for row in rows):
        yield _Column("remark", _remark)
    for name in metrics:
        yield _Column(name, partial(_metric, name))
    yield from _figures(rows, "cpu")
    if any(row.memory for row in rows):
        yield _Column(
            "memory" if view.ended is None else "memory at most", partial(_field, "memory")
        )
    yield from _figures(rows, "gpu")


def _figures(rows: Sequence[RankSummary], *names: str) -> Iterator[_Column]:
    """Columns of fields of rows, those that any row has."""
    for name in names:
        if any(getattr(row, name) for row in rows):
            yield _Column(name, partial(_field, name))


def _field(name: str, row: RankSummary) -> str:
    return html.escape(getattr(row, name))


def _metric(name: str, row: RankSummary) -> str:
    return html.escape(row.metrics.get(name, ""))


def _who(row: RankSummary) -> str:
    head = ' <span class="m">· head</span>' if row.ranks == (0,) else ""
    state = f" <i>{row.state}</i>" if row.state else ""
    return f"{html.escape(label(row.ranks)[1:-1])}{head}{state}"


def _remark(row: RankSummary) -> str:
    return f'<span class="tag">{html.escape(row.remark)}</span>' if row.remark else ""


def _rank_row(row: RankSummary, columns: Sequence[_Column]) -> str:
    first, *others = columns
    cells = [f'<th scope="row" {_PLAIN}>{first.cell(row)}</th>']
    for column in others:
        css = f'class="{column.css}" ' if column.css else ""
        cells.append(f"<td {css}{LEFT}>{column.cell(row)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _loops(row: RankSummary) -> str:
    """Each loop's bar beside its words, as high as they were; words without a bar begin where the others do."""
    has_bars = any(bar.part is not None for bar in row.bars)
    loops = "".join(f'<div class="lp">{_loop(bar, row, has_bars)}</div>' for bar in row.bars)
    if row.loop_rows <= max(1, len(row.bars)):
        return loops
    return f'<div style="min-height:{row.loop_rows * LINE:g}em">{loops}</div>'


def _loop(bar: BarRow, row: RankSummary, has_bars: bool) -> str:
    words = html.escape(bar.words)
    said = f'<span class="m small">{words}</span>' if bar.level else f"<span>{words}</span>"
    if bar.part is None:
        return (_NO_GAUGE if has_bars else "") + said
    return gauge(bar.part, TONES[_tone(bar, row)], 4 if bar.level else 8) + said


_NO_GAUGE = '<div class="t" aria-hidden="true" style="width:140px;display:inline-block"></div>'


def gauge(part: float, colour: str = TONES["running"], height: int = 8) -> str:
    """A bar that is filled so far, from 0 to 1; words may follow it on its line."""
    percent = int(part * 100)
    # Hidden from screen readers: the words beside it say the same. Styled in place: so it is a bar
    # also where a notebook is not trusted.
    return (
        '<div class="t" aria-hidden="true" '
        f'style="width:140px;height:{height}px;display:inline-block;vertical-align:middle;'
        'margin-right:9px;background:rgba(128,128,128,.25)">'
        f'<div style="width:{percent}%;height:{height}px;background:{colour}"></div></div>'
    )


def _tone(bar: BarRow, row: RankSummary) -> str:
    """The state whose colour a loop has."""
    if bar.part is not None and bar.part >= 1:
        return "finished"
    if row.state:
        return "interrupted" if row.state == "stopped" else "failed"
    return "interrupted" if row.is_late else "running"
