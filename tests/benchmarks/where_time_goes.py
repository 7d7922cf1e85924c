"""Who computes while a case of ours runs, and how long its caller waits; drawn as a chart by `make bench`.

The CPU time of three kinds of processes is read before and after the rounds of a case: of the client (this
process, or the kernel of a notebook), of agents with their forges, and of ranks. What of the client's time is
left, it waits.
"""

from __future__ import annotations

import html
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

_KINDS = {"sky-agent": "agents", "sky-forge": "agents", "sky-rank": "ranks"}
_COLOURS = {"client": "#3b6fb6", "waits": "#c9d6e8", "agents": "#8f6bb3", "ranks": "#3f9c6d"}
_LEFT, _SPAN, _ROW, _BAR = 380, 460, 46, 13
"""Pixels of labels, of as much time as the case takes, of a row, of a bar."""
_LEGEND = {
    "client": "the client computes",
    "waits": "the client waits",
    "agents": "agents compute",
    "ranks": "ranks compute",
}


@dataclass
class Shares:
    """Seconds that rounds of a case took, and of processors that each kind of process had in them."""

    seconds: float = 0.0
    cpu: Counter[str] = field(default_factory=Counter)
    has_ranks: bool = False

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is done within."""
        before, began = _cpu_of_each(), time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began
        after = _cpu_of_each()
        # What has ended is among the times of its parent, as a whole: what it had before is taken off.
        for found, sign in ((after, 1), (before, -1)):
            for (kind, _), spent in found.items():
                self.cpu[kind] += sign * spent
                self.has_ranks |= kind == "ranks"

    def part(self, kind: str) -> float:
        """The part of the time for which such processes had one processor; of several it may be above 1."""
        if kind == "waits":
            return max(0.0, 1 - self.part("client"))
        return max(0.0, self.cpu[kind]) / self.seconds


SHARES: dict[str, Shares] = {}
"""By the group of the case."""


def count(benchmark: Any) -> None:
    """From now on the CPU time of rounds of this fixture is counted, but not that of what prepares them."""
    pedantic = benchmark.pedantic

    def counted(target: Callable[..., Any], *args: Any, setup: Any = None, **how: Any) -> Any:
        shares = SHARES.setdefault(benchmark.group, Shares())
        with ExitStack() as counting:
            if setup is None:
                counting.enter_context(shares.counting())
                return pedantic(target, *args, **how)

            def prepared() -> Any:
                counting.close()  # the round before has ended
                given = setup()
                counting.enter_context(shares.counting())
                return given

            return pedantic(target, *args, setup=prepared, **how)

    benchmark.pedantic = counted


def _cpu_of_each() -> dict[tuple[str, object], float]:
    """Seconds of processors, by the kind of process and what tells it from others."""
    times = os.times()
    # The pool is a child: what of it has ended counts here, with all below it.
    found: dict[tuple[str, object], float] = {
        ("client", "this"): times.user + times.system,
        ("agents", "ended"): times.children_user + times.children_system,
    }
    for each in psutil.process_iter(["name", "cmdline", "cpu_times"]):
        name, spent = each.info["name"] or "", each.info["cpu_times"]
        kind = _KINDS.get(name.rpartition("-")[0] if name.startswith("sky-rank") else name)
        if kind is None and any("ipykernel" in word for word in each.info["cmdline"] or ()):
            kind = "client"
        if kind is not None and spent is not None:
            found[kind, each] = spent.user + spent.system
            if name == "sky-forge":
                found["ranks", ("below", each)] = spent.children_user + spent.children_system
    return found


def chart(medians: dict[str, float], spelled: Callable[[float], str]) -> str:
    """An SVG with two bars for each of these cases in which ranks were there from beginning or at the end."""
    cases = [each for each in medians if each in SHARES and SHARES[each].has_ranks]
    widest = max([1.0, *(sum(_parts(each, "agents", "ranks")) for each in cases)])
    width, height = _LEFT + int(_SPAN * widest) + 30, 70 + _ROW * len(cases)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>Where the time goes: who computes while a case runs, and how long the client waits</title>",
        "<style>text{fill:#24292f} line{stroke:#8c959f} "
        "@media (prefers-color-scheme: dark){text{fill:#d0d7de}}</style>",
        *_legend(),
    ]
    for number, case in enumerate(cases):
        top = 44 + _ROW * number
        out += [
            f'<text x="{_LEFT - 12}" y="{top + 11}" text-anchor="end">{html.escape(case)}</text>',
            f'<text x="{_LEFT - 12}" y="{top + 27}" text-anchor="end" opacity="0.75">{spelled(medians[case])}</text>',
            *_bar(case, top, "client", "waits"),
            *_bar(case, top + _BAR + 2, "agents", "ranks"),
        ]
    at, bottom = _LEFT + _SPAN, 44 + _ROW * len(cases)
    out += [
        f'<line x1="{at}" x2="{at}" y1="36" y2="{bottom}" stroke-dasharray="3 3"/>',
        f'<text x="{at}" y="{bottom + 14}" text-anchor="middle">one processor, all of the time</text>',
        "</svg>",
    ]
    return "\n".join(out) + "\n"


def _parts(case: str, *kinds: str) -> list[float]:
    return [SHARES[case].part(kind) for kind in kinds]


def _legend() -> Iterator[str]:
    at = _LEFT - 200
    for kind, words in _LEGEND.items():
        yield f'<rect x="{at}" y="8" width="12" height="12" fill="{_COLOURS[kind]}"/>'
        yield f'<text x="{at + 17}" y="18">{words}</text>'
        at += 36 + 7 * len(words)


def _bar(case: str, top: int, *kinds: str) -> Iterator[str]:
    """Parts of one bar, each of which says its percentage to who points at it."""
    at = float(_LEFT)
    for kind, part in zip(kinds, _parts(case, *kinds), strict=True):
        width = part * _SPAN
        yield (
            f'<rect x="{at:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[kind]}">'
            f"<title>{_LEGEND[kind]}: {part:.0%}</title></rect>"
        )
        at += width
