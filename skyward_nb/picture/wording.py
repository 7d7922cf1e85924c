"""A view in words and rows, for whatever draws it: clocks, loops, figures of ranks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from skyward_nb.picture.scales import compact
from skyward_nb.protocol.events import Progress
from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.view.loop_rows import shown_done
from skyward_nb.view.run_view import MOST_METRICS, RankView, RunView, cost_words
from skyward_nb.view.slow_ranks import slow_in, slow_words
from skyward_nb.view.stragglers import behind, current, imbalance
from skyward_nb.words.errors import spell_size
from skyward_nb.words.ranks import spell_ranks
from skyward_nb.words.units import clock

if TYPE_CHECKING:
    from skyward_nb.names.plan import ManifestRow

EACH_RANK = 16
"""Up to so many running ranks have a row each; of more, ranks with the same words share one."""
MOST_ROWS = 100
_MOST_NAMES = 6
_RESTS = 3.0
"""A loop that has not gone on for so many seconds, and three of its steps, is said to rest."""


@dataclass(frozen=True)
class BarRow:
    """A loop as it is drawn: `part` of it is done, from 0 to 1 (None: not known), and in words."""

    part: float | None
    words: str
    level: int
    over: bool


@dataclass(frozen=True)
class RankSummary:
    """The words on a rank, or on several with the same words; loops took at most `loop_rows` rows so far."""

    ranks: tuple[int, ...]
    node: str
    state: str
    bars: tuple[BarRow, ...]
    metrics: dict[str, str]
    cpu: str
    memory: str
    gpu: str
    remark: str
    is_late: bool = False
    loop_rows: int = 0


def headline(view: RunView) -> str:
    """What is going on, in a few words."""
    if view.headline:
        return view.headline
    stage = view.phase or _stages(view)
    return f"{view.title}: {stage}" if stage and view.ended is None else view.title


def _stages(view: RunView) -> str:
    """The work of ranks before the cell, if it is the same for all running ranks."""
    going = [now for now in view.ranks.values() if now.state == "running"]
    stages = {now.stage for now in going}
    return stages.pop() if len(stages) == 1 else ""


def time_words(view: RunView) -> str:
    """How long it took, or has taken, how long it may still take, and what the pool costs."""
    going = [
        (now, bar)
        for now in view.ranks.values()
        if now.state == "running" and (bar := current(now)) and bar.total and bar.stepped > 0
    ]
    costs = [cost_words(view)] if view.bill is not None else []
    left = [bar.seconds / bar.stepped * (bar.total - bar.done) for _, bar in going if bar.total]
    stuck = any(_rests(bar, view.now - now.told) for now, bar in going)
    if view.ended is None and not stuck and left and max(left) >= 1:
        return " · ".join((clock(view.took), f"about {clock(max(left))} left", *costs))
    return " · ".join((clock(view.took), *costs))


@lru_cache(maxsize=4096)
def label(ranks: tuple[int, ...]) -> str:
    """Ranks before what they say: `[0-3]`."""
    return f"[{spell_ranks(ranks)}]"


# ── ranks ───────────────────────────────────────────────────────────────────────────────


def rank_rows(view: RunView, *, each: bool = False) -> list[RankSummary]:
    """A row for each rank with something to show; ranks with the same words share one.

    While few ranks run each has its own; if `each`, of few ranks also in the end, with the most memory that
    it was seen to use.
    """
    late = behind(view.ranks) if view.ended is None else {}
    together: dict[object, list[int]] = {}
    alone = (each or view.ended is None) and len(view.ranks) <= EACH_RANK
    for rank, now in sorted(view.ranks.items()):
        if now.bars or now.metrics or now.telemetry or now.state in ("lost", "failed"):
            loops = tuple((bar.text, bar.total, bar.level, bar.over) for bar in now.bars)
            dones = () if view.ended is None else tuple(bar.done for bar in now.bars)
            key = rank if alone else (now.state, loops, dones, rank in late)
            together.setdefault(key, []).append(rank)
    rows = [_rank_row(view, tuple(ranks), late, each=each) for ranks in together.values()]
    if view.ended is not None and not each:
        rows = [row for row in rows if row.bars or row.metrics or row.state]
    return rows


def row_text(row: RankSummary, between: str = "  ") -> str:
    """A row of ranks in one line."""
    words = [bar.words for bar in row.bars]
    words += [f"{name} {value}" for name, value in row.metrics.items()]
    words += [
        f"{name} {value}" for name, value in (("cpu", row.cpu), ("memory", row.memory)) if value
    ]
    words += [part for part in (row.gpu, row.remark) if part]
    state = f" {row.state}" if row.state else ""
    return f"{label(row.ranks)}{state} {between.join(words)}".rstrip()


def _rank_row(
    view: RunView, ranks: tuple[int, ...], late: dict[int, str], *, each: bool
) -> RankSummary:
    views = [view.ranks[rank] for rank in ranks]
    nodes = {view.nodes.get(rank, 0) for rank in ranks}
    names = list(dict.fromkeys(name for now in views for name in now.metrics))
    state = views[0].state
    samples = [now.telemetry for now in views if now.telemetry and view.ended is None]
    cpus = [sample.cpu for sample in samples if sample.cpu is not None]
    gpus = [sample.gpu for sample in samples if sample.gpu]
    memory = max((sample.rss for sample in samples), default=0)
    if each and view.ended is not None:
        memory = max(now.peak for now in views)
    return RankSummary(
        ranks=ranks,
        node=spell_ranks(nodes) if len(set(view.nodes.values())) > 1 else "",
        state="" if state in ("done", "running") else state,
        bars=_bar_rows(views, view.now),
        metrics={
            name: spread([now.metrics[name] for now in views if name in now.metrics])
            for name in names
        },
        cpu=f"{sum(cpus) / len(cpus):.0f} %" if cpus else "",
        memory=spell_size(memory) if memory else "",
        gpu=_gpu_words(gpus),
        remark=views[0].stage or next((late[rank] for rank in ranks if rank in late), ""),
        is_late=any(rank in late for rank in ranks),
        loop_rows=max(now.loop_rows for now in views),
    )


def _gpu_words(gpus: Sequence[Gpu]) -> str:
    """How GPUs are used: the mean, the most memory, the hottest."""
    if not gpus:
        return ""
    busy = [gpu.busy for gpu in gpus if gpu.busy is not None]
    heat = [gpu.celsius for gpu in gpus if gpu.celsius is not None]
    words = [f"{sum(busy) / len(busy):.0f} %"] if busy else []
    words.append(f"{spell_size(max(gpu.used for gpu in gpus))} of {spell_size(gpus[0].total)}")
    words += [f"{max(heat)} °C"] if heat else []
    return " · ".join(words)


def spread(values: Sequence[float]) -> str:
    """A metric of some ranks: the value, or the mean with the lowest and the highest."""
    if any(map(math.isnan, values)):
        return "nan"
    low, high = min(values), max(values)
    if low == high:
        return f"{low:.4g}"
    return f"{sum(values) / len(values):.4g} ({low:.4g} – {high:.4g})"


def _bar_rows(views: Sequence[RankView], now: float) -> tuple[BarRow, ...]:
    """The loops of ranks that are in the same ones; of many finished ones but the last."""
    idle = min(now - view.told for view in views) if views[0].state == "running" else 0.0
    rows = [
        bar_row(bars, views[0].state, idle) for bars in zip(*(v.bars for v in views), strict=False)
    ]
    done = [row for row in rows if row.over]
    gone = max(view.bars_done for view in views)
    more = max(len(view.bars_hidden) for view in views)
    others = len(rows) - len(done) + (more > 0)
    shown = shown_done(len(done), gone, others, max(view.loop_rows for view in views))
    folded = done[: len(done) - shown]
    if count := len(folded) + gone:
        words = f"{count:,} loop{'s' * (count > 1)} done"
        rows = [BarRow(1.0, words, 0, over=True), *(row for row in rows if row not in folded)]
    if more:
        rows.append(BarRow(None, f"and {more:,} more loop{'s' * (more > 1)}", 1, over=False))
    return tuple(rows)


def _rests(bar: Progress, idle: float) -> bool:
    """Whether a loop has not gone on for much longer than its steps take."""
    return idle > max(_RESTS, 3 * bar.seconds / bar.stepped if bar.stepped else 0.0)


def bar_row(bars: Sequence[Progress], state: str, idle: float) -> BarRow:
    """A loop that ranks in this state are in, which has not gone on for `idle` seconds."""
    first = bars[0]
    name = f"{first.text} " if first.text else ""
    stepped = sum(bar.stepped for bar in bars) / len(bars)
    done = sum(bar.done for bar in bars) / len(bars)
    seconds = sum(bar.seconds for bar in bars) / len(bars)
    rate = f" · {_rate(stepped / seconds, first.unit)}" if stepped > 0 and seconds > 0.05 else ""
    note = f" · {first.note}" if first.note and {bar.note for bar in bars} == {first.note} else ""
    low, high = min(bar.done for bar in bars), max(bar.done for bar in bars)
    counts = _count(low, first.unit)
    counts += f" to {_count(high, first.unit)}" if low != high else ""
    if first.total is None or first.total < 0:
        return BarRow(None, f"{name}{counts} done{rate}{note}", first.level, first.over)
    part = done / first.total if first.total else 1.0
    left = ""
    if first.over or state != "running" or stepped <= 0 or not 0 < done < first.total:
        pass
    elif _rests(first, idle):
        left = f" · no step for {clock(idle)}"
    else:
        rest = seconds / stepped * (first.total - done)
        left = f" · {clock(rest)} left" if rest >= 1 else ""
    total = _count(first.total, first.unit)
    words = f"{name}{counts}/{total} · {int(part * 100)}%{rate}{left}{note}"
    return BarRow(min(1.0, max(0.0, part)), words, first.level, first.over)


def _rate(speed: float, unit: str) -> str:
    if unit == "B":
        return f"{spell_size(speed)}/s"
    return f"{compact(speed)} {unit}/s" if speed >= 1 else f"{compact(1 / speed)} s/{unit}"


def _count(value: float, unit: str) -> str:
    if unit == "B":
        return spell_size(value)
    return f"{int(value):,}" if value == int(value) else f"{value:,.4g}"


def remarks(view: RunView) -> tuple[str, ...]:
    """Sentences on the ranks as a whole."""
    found: list[str] = []
    if slow := slow_words(slow_in(view.ranks), over=view.ended is not None):
        found.append(slow)
    if view.ended is not None:
        if slow := imbalance(view.ranks, view.ran_from):
            found.append(slow)
    else:
        if view.hang:
            found.append(view.hang)
        if view.bill is not None and (budget := view.bill.warning(view.wall + view.now)):
            found.append(budget)
        if len(view.ranks) > EACH_RANK and (late := behind(view.ranks)):
            found.append(f"behind the others: rank{'s' * (len(late) > 1)} {spell_ranks(late)}")
    if view.unshown:
        found.append(f"{view.unshown:,} objects that ranks displayed are left out")
    if any(now.logs_more for now in view.ranks.values()):
        found.append(f"each rank keeps {MOST_METRICS} metrics; the others are left out")
    return tuple(found)


def peak_words(view: RunView) -> tuple[str, ...]:
    """The most memory that a rank was seen to use, told in the end."""
    if view.ended is None:
        return ()
    peak = max((now.peak for now in view.ranks.values()), default=0)
    return (f"memory of a rank at most {spell_size(peak)}",) if peak else ()


def ready_words(view: RunView) -> tuple[str, ...]:
    """What readying nodes took, step by step, each as long as it took them all; told once it is over."""
    if view.bill is None or (view.state == "starting" and view.ended is None):
        return ()
    ways: dict[str, tuple[float, float]] = {}
    for steps in view.steps.values():
        for step in steps:
            if step.ended is not None:
                began, ended = ways.get(step.name, (step.began, step.ended))
                ways[step.name] = min(began, step.began), max(ended, step.ended)
    if not ways:
        return ()
    each = [f"{name} {clock(ended - began)}" for name, (began, ended) in ways.items()]
    return (", ".join(each),)


# ── nodes ───────────────────────────────────────────────────────────────────────────────


def step_rows(view: RunView) -> list[tuple[str, ...]]:
    """How far nodes are on the way to ranks: a row for those of one machine, a cell for each step."""
    rows: list[tuple[str, ...]] = []
    for nodes, steps in sorted(view.steps.items()):
        cells = [f"node{'s' * (len(nodes) > 1)} {spell_ranks(nodes)}"]
        for step in steps:
            if step.ended is not None:
                cells.append(f"{step.name} ✓ {clock(step.ended - step.began)}")
            else:
                words = f" {step.text}" if step.text else ""
                cells.append(f"{step.name} ▸{words} … {clock(max(0.0, view.now - step.began))}")
        rows.append(tuple(cells))
    if view.awaited:
        waiting = view.awaited - view.ready
        words = f"{view.ready} of {view.awaited} ranks ready" if waiting else "ranks ready ✓"
        rows.append((words,))
    return rows


def sent_words(rows: Sequence[ManifestRow], size: int) -> tuple[str, ...]:
    """What of a manifest was sent, `size` bytes in all, and how many names were not, and why."""
    by_status: dict[str, list[ManifestRow]] = {}
    for row in rows:
        by_status.setdefault(row.status, []).append(row)
    words: list[str] = []
    if sent := sorted(by_status.get("sent", ()), key=lambda row: -row.size):
        names = ", ".join(row.name for row in sent[:_MOST_NAMES])
        more = f" and {len(sent) - _MOST_NAMES} more" if len(sent) > _MOST_NAMES else ""
        words.append(f"sent {names}{more} ({spell_size(size)})")
    others = ("unchanged", "kept on ranks", "removed")
    words += [f"{len(by_status[status])} {status}" for status in others if status in by_status]
    return tuple(words)


# ── manifest ────────────────────────────────────────────────────────────────────────────

MANIFEST_COLUMNS = ("name", "type", "size", "what happens", "packed in")


def manifest_rows(view: RunView) -> list[tuple[str, ...]]:
    """Cells of the manifest, largest first, with a remark where some are left out."""
    rows: list[ManifestRow] = sorted(view.manifest, key=lambda row: (-row.size, row.name))
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


def columns(table: Iterable[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, each column as wide as it must be."""
    rows = list(table)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def cut_words(view: RunView) -> str:
    """The words in place of omitted lines."""
    how = f": {view.logs}" if view.logs else ""
    return f"… {count_lines(view.cut)} not shown{how} …"


def count_lines(number: int) -> str:
    """`1 line`, `2,871 lines`."""
    return f"{number:,} line{'' if number == 1 else 's'}"
