"""A view drawn: as plain text, and as HTML that needs no style sheet and no script. Pure."""

from __future__ import annotations

import html
from collections.abc import Sequence

from skyward_nb.pool.view import Entry, Line, RankView, Shown, View, open_lines
from skyward_nb.words.errors import spell_size
from skyward_nb.words.ranks import spell_ranks

LIVE_LINES = 30

_DOTS = {
    "starting": "#0969da",
    "running": "#0969da",
    "finished": "#1a7f37",
    "failed": "#cf222e",
    "interrupted": "#9a6700",
}
_MUTED = "color:var(--jp-ui-font-color2,#656d76)"
_EDGE = "var(--jp-border-color2,#d8dee4)"
_MONO = (
    "margin:0;padding:8px 12px;background:transparent;color:inherit;font:12.5px/1.45 "
    "var(--jp-code-font-family,ui-monospace,SFMono-Regular,Menlo,monospace);white-space:pre-wrap"
)


def clock(seconds: float) -> str:
    """Seconds as a person reads them: `8 ms`, `3.1 s`, `12:07`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def headline(view: View) -> str:
    """What is going on, in a few words."""
    if view.headline:
        return view.headline
    return f"{view.title}: {view.phase}" if view.phase and not view.ended else view.title


def grouped(view: View) -> list[tuple[list[int], RankView]]:
    """Ranks with something to tell, those that tell the same together."""
    groups: list[tuple[list[int], RankView]] = []
    for rank, now in sorted(view.ranks.items()):
        if not now.bars and not now.metrics and now.state != "lost":
            continue
        same = next((ranks for ranks, known in groups if _alike(known, now)), None)
        if same is None or view.state != "finished":
            groups.append(([rank], now))
        else:
            same.append(rank)
    return groups


def _alike(a: RankView, b: RankView) -> bool:
    bars = [[(bar.done, bar.total, bar.text) for bar in v.bars.values()] for v in (a, b)]
    return bars[0] == bars[1] and a.metrics == b.metrics and a.state == b.state


def _bar_words(now: RankView) -> tuple[float | None, str]:
    """(fraction, words) of the loop a rank began last."""
    if not now.bars:
        return None, ""
    bar = now.bars[max(now.bars)]
    rate = f" · {bar.done / bar.seconds:.3g} it/s" if bar.done and bar.seconds > 0.05 else ""
    name = f"{bar.text} " if bar.text else ""
    if bar.total is None:
        return None, f"{name}{bar.done} done{rate}"
    part = bar.done / bar.total if bar.total else 1.0
    left = ""
    if now.state == "running" and 0 < bar.done < bar.total:
        left = f" · {clock(bar.seconds / bar.done * (bar.total - bar.done))} left"
    return part, f"{name}{bar.done}/{bar.total} · {part:.0%}{rate}{left}"


def _metric_words(now: RankView) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in now.metrics.items())


def _entries(view: View, *, live: bool) -> list[Entry | str]:
    """Output in order, with a remark where some is left out."""
    entries: list[Entry | str] = [*view.entries, *open_lines(view)]
    if live and len(entries) > LIVE_LINES:
        hidden = len(entries) - LIVE_LINES + view.cut
        return [f"… {hidden:,} lines above, shown when the cell ends", *entries[-LIVE_LINES:]]
    if view.cut:
        entries.insert(view.gap, f"… {view.cut:,} lines not shown …")
    return entries


def as_text(view: View, now: float) -> str:
    """The view as plain text, for terminals, logs and `text/plain`."""
    took = clock((view.ended or now) - view.began)
    lines = [f"{headline(view)} · {took}" + (f" · {view.about}" if view.about else "")]
    for ranks, each in grouped(view):
        words = [part for part in (_bar_words(each)[1], _metric_words(each)) if part]
        state = f" {each.state}" if each.state != "done" and view.ended else ""
        lines.append(f"  [{spell_ranks(ranks)}]{state} {'  '.join(words)}".rstrip())
    for entry in _entries(view, live=view.ended is None):
        if isinstance(entry, str):
            lines.append(entry)
        elif isinstance(entry, Line):
            lines.append(f"[{spell_ranks(entry.ranks)}] {entry.text}".rstrip())
        else:
            lines.append(f"[{entry.rank}] {entry.data.get('text/plain', '(no text)')}")
    return "\n".join([*lines, *manifest_text(view), *view.notes])


_COLUMNS = ("name", "type", "size", "what happens", "packed in")
MOST_ROWS = 100


def _manifest_rows(view: View) -> list[tuple[str, ...]]:
    """Cells of the manifest, largest first, with a remark where some are left out."""
    rows = sorted(view.manifest, key=lambda row: (-row.size, row.name))
    would = {"sent": "would be sent", "removed": "would be removed"} if view.manifest_open else {}
    cells = [
        (
            row.name,
            row.type_name,
            spell_size(row.size) if row.size else "",
            would.get(row.status, row.status),
            clock(row.seconds) if row.seconds >= 0.0005 else "",
        )
        for row in rows[:MOST_ROWS]
    ]
    if len(rows) > MOST_ROWS:
        cells.append((f"… {len(rows) - MOST_ROWS} more", "", "", "", ""))
    return cells


def manifest_text(view: View) -> list[str]:
    """The manifest as lines, when it is what was asked for."""
    if not view.manifest_open or not view.manifest:
        return []
    return [f"  {line}" for line in columns([_COLUMNS, *_manifest_rows(view)])]


def columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, each column as wide as it must be."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _manifest_html(view: View) -> str:
    """The manifest as a table, folded away unless it is what was asked for."""
    if not view.manifest:
        return ""
    cell = 'style="padding:1px 12px;text-align:left;white-space:nowrap"'
    heads = "".join(f"<th {cell}>{column}</th>" for column in _COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td {cell}>{html.escape(text)}</td>" for text in row) + "</tr>"
        for row in _manifest_rows(view)
    )
    return (
        '<table style="border-collapse:collapse;font-size:12px;margin:4px 0;'
        f'font-variant-numeric:tabular-nums"><tr style="{_MUTED}">{heads}</tr>{rows}</table>'
    )


def as_html(view: View, now: float) -> str:
    """The view as self-contained HTML; what ranks print is escaped, what they display is theirs."""
    took = clock((view.ended or now) - view.began)
    dot = _DOTS[view.state]
    about = f'<span style="{_MUTED}">{html.escape(view.about)}</span>' if view.about else ""
    head = (
        '<div style="display:flex;gap:10px;align-items:baseline;flex-wrap:wrap;padding:6px 12px;'
        'background:var(--jp-layout-color2,rgba(128,128,128,.1));font-size:13px">'
        f'<span style="color:{dot}" aria-hidden="true">●</span>'
        f"<b>{html.escape(headline(view))}</b> {about} "
        f'<span style="margin-left:auto;{_MUTED}">{took}</span></div>'
    )
    body = [head, _table(view), _output(view)]
    body += [
        f'<div style="padding:4px 12px;font-size:12.5px">{html.escape(note)}</div>'
        for note in view.notes
    ]
    if view.manifest_open:
        body.append(_manifest_html(view))
    elif view.foot:
        words = " · ".join(html.escape(part) for part in view.foot)
        if table := _manifest_html(view):
            words = f"<details><summary>{words}</summary>{table}</details>"
        body.append(
            f'<div style="border-top:1px solid {_EDGE};padding:4px 12px;font-size:12px;{_MUTED}">'
            f"{words}</div>"
        )
    frame = f"border:1px solid {_EDGE};border-radius:6px;overflow:hidden;max-width:900px"
    return f'<div class="skyward-run" style="{frame}">{"".join(body)}</div>'


def _table(view: View) -> str:
    groups = grouped(view)
    if not groups:
        return ""
    names = list(dict.fromkeys(name for _, now in groups for name in now.metrics))
    cell = 'style="padding:2px 12px;text-align:left;white-space:nowrap"'
    heads = "".join(f"<th {cell}>{html.escape(name)}</th>" for name in names)
    rows: list[str] = []
    for ranks, now in groups:
        part, words = _bar_words(now)
        figures = "".join(
            f"<td {cell}>{now.metrics[name]:.4g}</td>"
            if name in now.metrics
            else f"<td {cell}></td>"
            for name in names
        )
        state = "" if now.state in ("done", "running") else f" <i>{now.state}</i>"
        rows.append(
            f"<tr><td {cell}>{spell_ranks(ranks)}{state}</td>"
            f"<td {cell}>{_bar(part, now)}</td><td {cell}>{html.escape(words)}</td>{figures}</tr>"
        )
    return (
        '<table style="border-collapse:collapse;font-size:13px;margin:4px 0;'
        'font-variant-numeric:tabular-nums">'
        f'<tr style="{_MUTED}"><th {cell}>rank</th><th {cell}>progress</th><th></th>{heads}</tr>'
        f"{''.join(rows)}</table>"
    )


def _bar(part: float | None, now: RankView) -> str:
    if part is None:
        return ""
    colour = "#1a7f37" if part >= 1 else "#cf222e" if now.state in ("failed", "lost") else "#0969da"
    return (
        '<div style="width:180px;height:8px;border-radius:4px;overflow:hidden;'
        'background:rgba(128,128,128,.25)">'
        f'<div style="height:8px;width:{min(part, 1):.0%};background:{colour}"></div></div>'
    )


def _output(view: View) -> str:
    """Lines as preformatted text, displayed objects between them."""
    parts: list[str] = []
    lines: list[str] = []

    def end_lines() -> None:
        if lines:
            text = "\n".join(lines)
            parts.append(f'<pre style="{_MONO};border-top:1px solid {_EDGE}">{text}</pre>')
            lines.clear()

    for entry in _entries(view, live=view.ended is None):
        if isinstance(entry, str):
            lines.append(f'<span style="{_MUTED}">{html.escape(entry)}</span>')
        elif isinstance(entry, Line):
            label = f'<span style="color:#8250df">[{spell_ranks(entry.ranks)}]</span>'
            text = html.escape(entry.text)
            if entry.stream == "stderr":
                text = f'<span style="color:#9a6700">{text}</span>'
            lines.append(f"{label} {text}")
        else:
            end_lines()
            parts.append(_shown(entry))
    end_lines()
    return "".join(parts)


def _shown(entry: Shown) -> str:
    data = entry.data
    for mime in ("image/png", "image/jpeg", "image/gif"):
        if mime in data:
            source = f"data:{mime};base64,{html.escape(''.join(data[mime].split()))}"
            body = f'<img alt="figure of rank {entry.rank}" style="max-width:100%" src="{source}">'
            break
    else:
        if "image/svg+xml" in data:
            body = data["image/svg+xml"]
        elif "text/html" in data:
            body = data["text/html"]
        else:
            body = f'<pre style="{_MONO}">{html.escape(data.get("text/plain", ""))}</pre>'
    return (
        f'<div style="border-top:1px solid {_EDGE};padding:6px 12px">'
        f'<span style="color:#8250df;font-size:12px">[{entry.rank}]</span> {body}</div>'
    )
