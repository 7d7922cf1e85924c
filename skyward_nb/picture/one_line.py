"""A run in one line: what is going on, for how long, and how far its ranks are. Pure.

What matters most comes first, so that the line can be cut to any width.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from skyward_nb.picture.colours import plain
from skyward_nb.picture.wording import bar_row, clock, headline, label, spread, step_rows
from skyward_nb.protocol.events import Progress
from skyward_nb.view.run_view import RankView, RunView, open_lines
from skyward_nb.view.slow_ranks import slow_in, times
from skyward_nb.view.stragglers import behind, current
from skyward_nb.words.ranks import count_ranks

_HEIGHTS = "▁▂▃▄▅▆▇█"
_MOST_HEIGHTS = 32
_GAUGE = 12
_MOST_METRICS = 3


def of_the_run(view: RunView) -> RunView:
    """The view with its clock begun when ranks did; bringing them up has a time of its own."""
    return replace(view, began=view.ran_from) if view.ranks else view


def one_line(view: RunView) -> str:
    """The view in one line, without colours."""
    words = [headline(view), clock(max(0.0, of_the_run(view).took))]
    if view.bar is not None and view.ended is None:
        row = bar_row([view.bar], "running", 0.0)
        words.insert(1, f"{_drawn([view.bar], row.part or 0.0)} {row.words}")
    words += _of_ranks(view) if view.ranks else _of_nodes(view)
    words.append(view.bill.rate_words() if view.bill is not None else "")
    return " · ".join(word for word in words if word)


def _of_nodes(view: RunView) -> list[str]:
    """The steps that nodes are in, and how many ranks are ready."""
    return [
        " ".join([cells[0], *(cell.replace(" ▸", "") for cell in cells[1:] if "▸" in cell)])
        for cells in step_rows(view)
        if len(cells) == 1 or any("▸" in cell for cell in cells)
    ]


def _of_ranks(view: RunView) -> list[str]:
    going = {rank: now for rank, now in sorted(view.ranks.items()) if now.state == "running"}
    words = [_loop(going, view.now)]
    if len(going) < len(view.ranks):
        words.append(f"{len(going)} of {len(view.ranks)} ranks still running")
    if late := behind(going):
        how = late[next(iter(late))] if len(late) == 1 else "behind the others"
        words.append(f"{count_ranks(late)} {how}")
    if slow := slow_in(going):
        words.append(f"{count_ranks(slow)} computing {times(max(slow.values()))} as long")
    words += _metrics(going)
    if not words[0] and (lines := open_lines(view)):
        words.append(f"{label(lines[-1].ranks)} {plain(lines[-1].text)}")
    return words


def _loop(going: dict[int, RankView], now: float) -> str:
    """The loop that most ranks are in: how far each is, or all on average."""
    loops: dict[tuple[str, float | None], list[tuple[Progress, float]]] = {}
    for each in going.values():
        if (bar := current(each)) is not None:
            loops.setdefault((bar.text, bar.total), []).append((bar, now - each.told))
    if not loops:
        return ""
    most = max(loops.values(), key=len)
    bars = [bar for bar, _ in most]
    row = bar_row(bars, "running", min(idle for _, idle in most))
    if row.part is None:
        return row.words
    return f"{_drawn(bars, row.part)} {row.words}"


def _drawn(bars: Sequence[Progress], part: float) -> str:
    """A column for each of a few ranks, or one gauge."""
    if not 1 < len(bars) <= _MOST_HEIGHTS:
        filled = int(part * _GAUGE)
        return "█" * filled + "░" * (_GAUGE - filled)
    parts = [min(1.0, max(0.0, bar.done / bar.total if bar.total else 1.0)) for bar in bars]
    return "".join(_HEIGHTS[int(each * (len(_HEIGHTS) - 1))] for each in parts)


def _metrics(going: dict[int, RankView]) -> list[str]:
    names = list(dict.fromkeys(name for now in going.values() for name in now.metrics))
    return [
        f"{name} {spread([now.metrics[name] for now in going.values() if name in now.metrics])}"
        for name in names[:_MOST_METRICS]
    ]
