"""Targets, and the table that says how they were met. Nothing here can fail a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from contenders import OURS
from where_time_goes import chart, count


@dataclass(frozen=True)
class Target:
    """What a group aims at: a ratio to a peer (or the best of them), or seconds, or both less
    the bare cost of a `baseline`."""

    text: str
    ratio: float | None = None
    to: str | None = None
    seconds: float | None = None
    beyond: str | None = None
    inverse: bool = False


TARGETS = {
    "warm cell x = 1, 4 ranks": Target("≤ 0.7 × the best peer", ratio=0.7),
    "nothing running → one DDP step": Target("≤ 0.3 × torchrun", ratio=0.3, to="torchrun"),
    "torchrun on a warm pool → first step, 4 workers": Target(
        "≤ 0.4 × torchrun", ratio=0.4, to="torchrun"
    ),
    "2,000 small files to a host, first time": Target("≤ 1.5 × rsync -a", ratio=1.5, to="rsync"),
    "2,000 small files to a host, unchanged": Target("≤ 0.3 s", seconds=0.3),
    "restart → torch ready, 4 ranks": Target("≤ 0.2 s", seconds=0.2),
    "restart → jax ready, 4 ranks": Target("≤ 1 s", seconds=1.0),
    "new pool → first result": Target("≤ 1 s", seconds=1.0),
    "DDP training of the demo": Target(
        "throughput ≥ 0.98 × torchrun", ratio=1 / 0.98, to="torchrun", inverse=True
    ),
    "FSDP training of the demo": Target(
        "throughput ≥ 0.98 × torchrun", ratio=1 / 0.98, to="torchrun", inverse=True
    ),
    "f() >> pool, warm, 4 ranks": Target("≤ 1.2 ms", seconds=0.0012),
    "pool.map of 1,000 small functions, 4 ranks": Target(
        "≥ 2,000/s, and ahead of the best peer", ratio=1.0, seconds=0.5
    ),
    "pool.map of 100,000 small functions, 4 ranks": Target("ahead of the best peer", ratio=1.0),
    "pool.map of 1,000 functions of 10 ms, 4 ranks": Target("ahead of the best peer", ratio=1.0),
    "256 MB argument of f(x) @ pool, 4 ranks, first time": Target(
        "≤ 0.6 × Ray", ratio=0.6, to="ray"
    ),
    "256 MB argument of f(x) @ pool, 4 ranks, unchanged": Target("≤ 0.06 s", seconds=0.06),
    "1 GB to a host": Target("≥ 0.9 × OpenSSH", ratio=1 / 0.9, to="openssh", inverse=True),
    "1 GB from a host": Target("≥ 0.9 × OpenSSH", ratio=1 / 0.9, to="openssh", inverse=True),
    "256 MB array read by 4 ranks, first time": Target("≤ 0.6 × Ray", ratio=0.6, to="ray"),
    "256 MB array read by 4 ranks, changed": Target("≤ Ray", ratio=1.0, to="ray"),
    "256 MB array read by 4 ranks, unchanged": Target("≤ 0.06 s", seconds=0.06),
    "4 × 256 MB back": Target("≤ 0.6 × Ray", ratio=0.6, to="ray"),
    "10,000 names in the notebook, the cell reads 3": Target(
        "no slower than with 3 names (≤ 1.05 ×)", ratio=1.05, to="with 3 names"
    ),
    "100 MB dict of small objects": Target(
        "≤ 1.3 × one dump and 4 loads", ratio=1.3, to="one dump + 4 loads"
    ),
    "sky.shard of 10 M rows, shuffled": Target(
        "≤ 1.2 × the NumPy indexing that does it", ratio=1.2, to="x[permutation(n)[r::world]]"
    ),
    "sky.shard of 10 M rows of 8, shuffled": Target(
        "≤ 1.2 × the NumPy indexing that does it", ratio=1.2, to="x[permutation(n)[r::world]]"
    ),
    "sky.shard of 10 M rows, copied": Target(
        "≤ 1.2 × the NumPy slice", ratio=1.2, to="x[r::world]"
    ),
    "4 ranks × 100,000 printed lines": Target("≤ 0.5 × ipyparallel", ratio=0.5, to="ipyparallel"),
    "names of a 400-line cell": Target("≤ 40 ms", seconds=0.04),
    "import skyward_nb": Target("≤ 50 ms beyond the interpreter", seconds=0.05, beyond="python"),
    "%load_ext skyward_nb": Target("≤ 100 ms beyond IPython", seconds=0.1, beyond="ipython"),
}


FIGURES: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "draw who computes in our cases, and how long the client waits, there (SVG)"
    parser.addoption("--where-time-goes", metavar="FILE", type=Path, help=words)


@pytest.fixture
def benchmark(benchmark: Any, request: pytest.FixtureRequest) -> Any:
    """The fixture of pytest-benchmark; of a case of ours the CPU time is counted, too."""
    if request.node.callspec.params.get("who") == OURS:
        count(benchmark)
    return benchmark


@pytest.fixture
def figure() -> Callable[[str, str, str, bool], None]:
    """Note a figure that is no time: what it is, its value, the target, whether that is met."""

    def note(what: str, value: str, target: str, met: bool) -> None:
        verdict = "met" if met else "MISSED"
        FIGURES.append(f"{what}\n    {value}\n    target ≤ {target}: {verdict}")

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each group's medians, and ours against its target."""
    session = getattr(terminalreporter.config, "_benchmarksession", None)
    if session is None or not (session.benchmarks or FIGURES):
        return
    data: dict[str, dict[str, list[float]]] = {}
    for bench in session.benchmarks:
        times = data.setdefault(bench.group, {}).setdefault(bench.params["who"], [])
        times += bench.stats.data
    groups = {
        group: {who: median(times) for who, times in each.items() if times}  # else it has failed
        for group, each in data.items()
    }
    out = terminalreporter
    out.section("medians, side by side in this run")
    for group, medians in groups.items():
        target = TARGETS[group]
        others = "  ".join(
            f"{who} {_time(value)}" for who, value in sorted(medians.items(), key=lambda p: p[1])
        )
        out.line(f"{group}")
        out.line(f"    {others}")
        if OURS in medians:  # `-k` may have left us, or all peers, out
            out.line(f"    target {target.text}: {_verdict(target, medians)}")
    for each in FIGURES:
        out.line(each)
    file: Path | None = out.config.getoption("--where-time-goes")
    if file is not None:
        ours = {group: medians[OURS] for group, medians in groups.items() if OURS in medians}
        file.write_text(chart(ours, _time))


def _verdict(target: Target, medians: dict[str, float]) -> str:
    ours = medians[OURS]
    peers = {who: value for who, value in medians.items() if who != OURS}
    found: list[tuple[str, bool]] = []
    if target.ratio is not None and (target.to or next(iter(peers), None)) in peers:
        who = target.to or min(peers, key=peers.__getitem__)
        ratio = ours / peers[who]
        shown = 1 / ratio if target.inverse else ratio
        found.append((f"{shown:.2f} × {who}", ratio <= target.ratio))
    if target.seconds is not None and (target.beyond is None or target.beyond in medians):
        value = ours - (medians[target.beyond] if target.beyond else 0)
        found.append((_time(value), value <= target.seconds))
    shown = "; ".join(f"{shown}, {'met' if met else 'MISSED'}" for shown, met in found)
    return shown or "what it is compared with was left out"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"
