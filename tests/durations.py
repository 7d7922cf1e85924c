"""How long tests take: a pytest plugin that measures, orders and limits, and the table of CONTRIBUTING.md.

Each run writes `durations.json` into `build` (with `--all` `durations-all.json`) and prints the slowest tests;
a file above its limit is an error, but for `--all`.
An environment below `build`, such as that of another Python, has its own such file in its own folder.
`python tests/durations.py` (`make durations`) keeps the last run's figures in `tests/durations.json`,
which decides the order of files, and draws the table anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_HERE = Path(__file__).parent
_BUILD = _HERE.parent / "build"


def last_in(prefix: Path) -> Path:
    """Where the environment at this prefix leaves its figures: those of one never replace another's."""
    return (prefix if prefix.is_relative_to(_BUILD) else _BUILD) / "durations.json"


LAST = last_in(Path(sys.prefix).resolve())
"""Seconds of each test of the last run, its fixtures included."""
EXPECTED = _HERE / "durations.json"
"""Seconds of each file when the table was last drawn."""
CONTRIBUTING = _HERE.parent / "CONTRIBUTING.md"
SLOWEST = 50
FILE_LIMIT = 60.0
"""Seconds that the tests of one file may take, on a machine whose processors are its own."""
_PURE = 1.0
"""A file that takes less starts nothing; such files run first."""
MATRICES = frozenset({"tests/faults/test_matrix.py", "tests/cloud/test_leftovers.py"})
"""Files of hundreds of cases under `--all`, which are divided among processes."""
IN_PARTS = {"tests/bootstrap": 1, "tests/lab": 1, "tests/cloud": 2}
"""Folders whose files so many processes take: each of these starts what takes seconds, once."""
TOGETHER = frozenset(
    f"tests/{each}.py"
    for each in (
        "compat/test_jax_names",
        "compat/test_torch_names",
        "pickling/test_keras_objects",
        "pickling/test_made_by_packages",
        "pickling/test_plain_values",
        "pickling/test_reducers",
        "pickling/test_sizes",
        "plugins/test_torch_simulation",
        "runtime/test_keras_bars",
        "runtime/test_sampler",
        "runtime/test_shard",
        "runtime/test_transformers_bars",
    )
)
"""Files that one process takes: their tests use frameworks themselves, whose imports take it some fifteen seconds."""
BLOCK = 50
"""Neighbouring cases of a matrix that one process takes, as their pools are alike."""

STARTS = {
    "bootstrap": "`uv`, an index of packages on loopback",
    "chaos": "kernels, and pools whose parts are killed by chance",
    "cli": "`skyward-nb` as a process, pools",
    "cloud": "an API server of EC2, machines that boot",
    "cluster": "hosts: namespaces with an sshd each",
    "compat": "Python, and groups of torch",
    "docs": "a kernel, and pools of local ranks",
    "dialects": "scripts for other tools, with torch and JAX",
    "faults": "pools whose parts are killed, stopped and cut off",
    "functions": "pools of local ranks",
    "frontends": "Notebook, nbclassic, JupyterLab 4.4, papermill",
    "gate": "pytest, and processes that are traced",
    "kernel": "a kernel and its pools",
    "lab": "JupyterLab and Chromium",
    "node": "agents, forges and ranks by themselves",
    "notebook": "kernels and pools",
    "plugins": "pools with torch, JAX, Keras and TensorFlow",
    "pool": "pools of local ranks",
    "ray_pools": "two raylets on loopback, pools on them",
    "skypilot": "recorded answers of SkyPilot, an sshd on loopback",
    "slurm": "Slurm on loopback, pools on it",
    "kubernetes": "a Kubernetes cluster in namespaces, pools on it",
    "sources": "pools with torch, JAX and Hugging Face",
    "providers": "an sshd on loopback",
    "runtime": "ranks with torch, in some files",
    "store": "stores on tmpfs, sockets",
    "training": "torchrun and JAX here and on hosts",
    "vscode": "VS Code in a browser",
}
"""What the tests of a folder start; of the others nothing."""


def by(tests: dict[str, float], key: Any) -> dict[str, float]:
    """Seconds summed under a key of each test's id, the most first."""
    found: Counter[str] = Counter()
    for nodeid, seconds in tests.items():
        found[key(nodeid)] += seconds
    return dict(found.most_common())


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def folder_of(nodeid: str) -> str:
    inside = Path(file_of(nodeid)).relative_to("tests")
    return inside.parts[0] if len(inside.parts) > 1 else "."


def order(files: set[str], expected: dict[str, float]) -> dict[str, int]:
    """Each file's place: those that start nothing first, then the longest, so that processes end together.

    A file that was never timed counts as a long one.
    """
    seconds = {each: expected.get(each, FILE_LIMIT) for each in files}
    ordered = sorted(files, key=lambda each: (seconds[each] > _PURE, -seconds[each], each))
    return {each: place for place, each in enumerate(ordered)}


def too_long(tests: dict[str, float], limit: float) -> dict[str, float]:
    """Files whose tests took longer."""
    return {name: seconds for name, seconds in by(tests, file_of).items() if seconds > limit}


def table(tests: dict[str, float]) -> str:
    """Tests and seconds of each folder, and what they start, as Markdown."""
    counts = Counter(map(folder_of, tests))
    lines = ["| folder | tests | seconds | starts |", "|---|---:|---:|---|"]
    for name, seconds in by(tests, folder_of).items():
        starts = STARTS.get(name, "nothing")
        lines.append(f"| `tests/{name}/` | {counts[name]:,} | {seconds:,.0f} | {starts} |")
    lines.append(f"| all | {len(tests):,} | {sum(tests.values()):,.0f} | |")
    return "\n".join(lines)


# ── the plugin ──────────────────────────────────────────────────────────────────────────


class Durations:
    """Adds up what pytest reports; with pytest-xdist in the process that hears of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: Counter[str] = Counter()
        self._processors = _processors()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += report.duration

    def _limit(self) -> float:
        """The limit of a file; longer where this machine's own host took processors away meanwhile."""
        ticks, stolen = (
            now - then for now, then in zip(_processors(), self._processors, strict=True)
        )
        return FILE_LIMIT / max(0.1, 1 - stolen / max(1, ticks))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        LAST.parent.mkdir(exist_ok=True)
        rounded = {nodeid: round(seconds, 3) for nodeid, seconds in self._tests.items()}
        # The table is of `make test`: extensive tests have figures of their own.
        is_all = self._config.getoption("--all", False)
        kept = LAST.with_stem(f"{LAST.stem}-all") if is_all else LAST
        if rounded:  # of a run that only collects nothing is known
            kept.write_text(json.dumps(rounded, indent=0))
        self._long = {} if is_all else too_long(self._tests, self._limit())
        if self._long and self._config.getoption("--file-limit") and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if len(self._tests) >= SLOWEST:
            self._tell_the_slowest(terminalreporter)
        for name, seconds in self._long.items():
            words = f"takes {seconds:.0f} s, and may take {FILE_LIMIT:.0f}: divide it, or make it quicker"
            terminalreporter.write_line(f"ERROR {name} {words}", red=True)

    def _tell_the_slowest(self, terminalreporter: Any) -> None:
        terminalreporter.section(f"the {SLOWEST} slowest tests")
        for nodeid, seconds in self._tests.most_common(SLOWEST):
            if seconds >= 0.1:
                terminalreporter.write_line(f"{seconds:7.1f} s  {nodeid}")
        terminalreporter.section("seconds by folder")
        for name, seconds in by(self._tests, folder_of).items():
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}/")


def _processors() -> tuple[int, int]:
    """Ticks of all processors since the boot, and those of them that this machine's host took away."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks), ticks[7]


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "a file whose tests take more than a minute is an error"
    parser.addoption("--file-limit", action="store_true", help=words)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config), "durations-of-tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    places = order({file_of(each.nodeid) for each in items}, expected)
    items.sort(key=lambda item: places[file_of(item.nodeid)])


class ByFile(LoadFileScheduling):
    """Gives each process whole files, and of matrices blocks of cases."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._seen: Counter[str] = Counter()
        self._scopes: dict[str, str] = {}
        self._files: dict[str, list[str]] = {}
        """Those of folders that are given out in parts, in their order."""

    def _split_scope(self, nodeid: str) -> str:
        """What is given to a process as one; asked of all tests in their order first."""
        if nodeid not in self._scopes:
            name = file_of(nodeid)
            block = self._seen[name] // BLOCK if name in MATRICES else 0
            self._seen[name] += 1
            folder = name.rpartition("/")[0]
            self._scopes[nodeid] = "frameworks" if name in TOGETHER else f"{name} {block}"
            # The hundreds of cases of a matrix are for all.
            if folder in IN_PARTS and block == 0:
                files = self._files.setdefault(folder, [])
                if name not in files:
                    files.append(name)
                self._scopes[nodeid] = f"{folder} {files.index(name) % IN_PARTS[folder]}"
        return self._scopes[nodeid]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


# ── make durations ──────────────────────────────────────────────────────────────────────


def _is_extensive(text: str) -> bool:
    """Whether all tests of a file are for `--all` alone."""
    if re.search(r"^pytestmark = (\[[^\]]*|.*)pytest\.mark\.extensive", text, re.MULTILINE):
        return True
    tests = re.findall(r"^((?:@.*\n|    .*\n|\)\n)*)def test_", text, re.MULTILINE)
    return bool(tests) and all("@pytest.mark.extensive\n" in marks for marks in tests)


def main() -> None:
    tests = json.loads(LAST.read_text())
    files = [path for path in _HERE.rglob("test_*.py") if not _is_extensive(path.read_text())]
    there = {str(path.relative_to(_HERE.parent)) for path in files}
    lacks = sorted(each for each in there - set(map(file_of, tests)) if "/benchmarks/" not in each)
    if lacks:
        sys.exit(f"the last run was not of all tests: {', '.join(lacks[:3])} … were not run")
    files = {name: round(seconds, 1) for name, seconds in sorted(by(tests, file_of).items())}
    EXPECTED.write_text(json.dumps(files, indent=0) + "\n")
    text = CONTRIBUTING.read_text()
    before, drawn = re.subn(r"\| folder \|.*?\n\| all \|[^\n]*", table(tests), text, flags=re.S)
    if drawn != 1:
        sys.exit("CONTRIBUTING.md has no table that begins with `| folder |`")
    CONTRIBUTING.write_text(before)


if __name__ == "__main__":
    main()
