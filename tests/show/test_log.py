"""A run as lines: whose they are, what is said on the way up, how far ranks are, how it ended."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from picture import views
from show.terminals import VARIABLES, Terminal, looked_at
from waiting import until

from skyward_nb.protocol.events import (
    Display,
    Output,
    Phase,
    Progress,
    RankDone,
    RankReady,
    Step,
)
from skyward_nb.show import display as displays
from skyward_nb.show.canvas import BundleCanvas
from skyward_nb.show.console import Console
from skyward_nb.show.display import RunDisplay
from skyward_nb.show.log import LogCanvas
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import RankView, RunView
from skyward_nb.words.errors import StartError

TESTS = Path(__file__).parent.parent


class Kept:
    """A console that keeps what it is to show."""

    is_live = False

    def __init__(self, *, is_live=False):
        self.is_live = is_live
        self.lines, self.going = [], ""

    def show(self, log, lines, going=""):
        self.lines += lines
        self.going = going

    def said(self):
        """What ranks printed."""
        return [text for stream, text in self.lines if stream == "stdout"]

    def told(self):
        """What went to stderr."""
        return [text for stream, text in self.lines if stream == "stderr"]


def begun(ranks=4):
    """A run that has just begun, its canvas, and what that shows."""
    console = Kept()
    title = f"Running on {ranks} ranks"
    view = RunView(title=title, state="running", ranks={rank: RankView() for rank in range(ranks)})
    return replace(view, now=0.2), LogCanvas(console), console


def ended(view, **changes):
    """The run at its end, after three seconds."""
    changes = {"state": "finished", "headline": f"{len(view.ranks)} ranks finished", **changes}
    return replace(view, now=3.0, ended=3.0, **changes)


# ── what ranks print ────────────────────────────────────────────────────────────────────


def test_equal_lines_of_ranks_are_one_though_drawn_in_between():
    view, canvas, console = begun()
    canvas.output(Output(0, "stdout", "hello\n"))
    canvas.draw(view)
    assert console.lines == []
    assert canvas.waits
    for rank in (1, 2, 3):
        canvas.output(Output(rank, "stdout", "hello\n"))
    canvas.draw(view)
    assert console.lines == [("stdout", "[ranks 0-3] hello")]
    assert not canvas.waits


def test_a_line_of_one_rank_alone_waits_for_one_drawing():
    view, canvas, console = begun()
    canvas.output(Output(2, "stdout", "mine\n"))
    canvas.draw(view)
    canvas.draw(view)
    assert console.said() == ["[rank 2] mine"]
    canvas.output(Output(0, "stdout", "mine\n"))
    canvas.draw(view)
    canvas.draw(view)
    assert console.said() == ["[rank 2] mine", "[rank 0] mine"]


def test_nobody_waits_for_ranks_that_have_ended_or_do_not_run():
    view, canvas, console = begun()
    view = replace(view, ranks={1: RankView(), 2: RankView(state="done", ended=1.0)})
    canvas.output(Output(1, "stdout", "the last\n"))
    canvas.draw(view)
    assert console.said() == ["[rank 1] the last"]


def test_streams_are_kept_apart_and_in_order():
    view, canvas, console = begun(1)
    for stream, text in (("stdout", "a\n"), ("stderr", "b\n"), ("stdout", "\nc\n")):
        canvas.output(Output(0, stream, text))
    canvas.draw(view)
    assert console.lines == [
        ("stdout", "[rank 0] a"),
        ("stderr", "[rank 0] b"),
        ("stdout", "[rank 0]"),
        ("stdout", "[rank 0] c"),
    ]


def test_what_is_typed_over_is_one_line_and_one_left_open_ends_with_its_rank():
    view, canvas, console = begun(2)
    for part in ("10 %", "\r50 %", "\r100 %\n", "and "):
        canvas.output(Output(0, "stdout", part))
        canvas.draw(view)
    canvas.draw(view)
    assert console.said() == ["[rank 0] 100 %"]
    canvas.output(Output(0, "stdout", "then"))
    canvas.draw(fold(view, RankDone(run=1, rank=0)))
    canvas.draw(view)
    assert console.said() == ["[rank 0] 100 %", "[rank 0] and then"]
    canvas.output(Output(1, "stderr", "open"))
    canvas.draw(ended(view))
    assert console.told()[0] == "[rank 1] open"


def test_of_rich_objects_there_is_text():
    view, canvas, console = begun(2)
    table = {"text/html": "<table>", "text/plain": "  a  b\n0  1  \x1b[1m2\x1b[0m"}
    for rank in (0, 1):
        canvas.output(Display(rank, table))
    canvas.output(Display(0, {"image/png": "iVBO"}))
    canvas.output(Display(0, {"text/plain": "one"}, "name"))
    canvas.output(Display(0, {"text/plain": "two"}, "name", update=True))
    canvas.draw(ended(view))
    assert console.said() == [
        "[ranks 0-1]   a  b",
        "[ranks 0-1] 0  1  \x1b[1m2\x1b[0m",
        "[rank 0] (image/png)",
        "[rank 0] two",
    ]


def test_much_is_printed_before_it_is_drawn_and_none_is_left_out():
    view, canvas, console = begun(2)
    for number in range(30_000):
        canvas.output(Output(number % 2, "stdout", f"{number} {'x' * 100}\n"))
    assert len(console.lines) > 15_000
    canvas.draw(ended(view))
    found = [int(line.split()[2]) for line in console.said()]
    assert sorted(found) == list(range(30_000))


def test_what_comes_after_the_end_is_printed_and_the_end_told_once():
    view, canvas, console = begun(2)
    canvas.output(Output(0, "stdout", "in time\n"))
    canvas.draw(ended(view))
    canvas.output(Output(0, "stdout", "late\n"))
    canvas.draw(ended(view))
    canvas.draw(ended(view))
    assert console.said() == ["[rank 0] in time", "[rank 0] late"]
    assert console.told() == ["finished in 3.0 s on 2 ranks"]


texts = st.lists(st.sampled_from(["a", "b", "c", "", "d e"]), max_size=12)


@given(st.data())
def test_every_line_of_each_rank_is_printed_once_and_in_order(data):
    ranks = data.draw(st.integers(1, 3))
    view, canvas, console = begun(ranks)
    said = {rank: data.draw(texts) for rank in range(ranks)}
    left = {rank: list(lines) for rank, lines in said.items() if lines}
    while left:
        rank = data.draw(st.sampled_from(sorted(left)))
        for _ in range(data.draw(st.integers(1, len(left[rank])))):
            canvas.output(Output(rank, "stdout", f"{left[rank].pop(0)}\n"))
        if not left[rank]:
            del left[rank]
        if data.draw(st.booleans()):
            canvas.draw(view)
    canvas.draw(ended(view))
    found = defaultdict(list)
    for line in console.said():
        label, text = re.fullmatch(r"\[ranks? ([\d,-]+)\] ?(.*)", line).groups()
        for part in label.split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                found[rank].append(text)
    assert found == {rank: lines for rank, lines in said.items() if lines}


# ── the way up ──────────────────────────────────────────────────────────────────────────


def test_steps_on_the_way_up_are_told_once_each():
    console = Kept()
    canvas = LogCanvas(console)
    view = replace(views.starting(), about="")
    canvas.draw(view)
    canvas.draw(view)
    assert console.told() == ["Starting 4 ranks", "nodes 0-3: agent, 500 ms"]
    view = fold(
        view, Step((0, 1, 2, 3), "imports", done=True), *(RankReady(1, r, 7) for r in (1, 2, 3))
    )
    canvas.draw(view)
    view = replace(view, state="running", ranks={0: RankView()}, ran_from=2.0, now=2.5)
    canvas.draw(view)
    assert console.told()[2:] == ["nodes 0-3: imports torch, 1.5 s", "4 ranks ready in 2.0 s"]


def test_steps_that_nodes_take_alike_are_one_line():
    console = Kept()
    view = RunView(title="Starting", began=0.0, now=0.0)
    view = fold(view, Step((0,), "agent"), Step((1,), "agent"))
    view = fold(replace(view, now=0.3), Step((0,), "agent", done=True))
    view = fold(replace(view, now=0.5), Step((1,), "agent", done=True))
    LogCanvas(console).draw(view)
    assert console.told() == ["Starting", "nodes 0-1: agent, 500 ms"]


def test_a_pool_that_is_up_or_is_not_is_told_of():
    console = Kept()
    canvas = LogCanvas(console)
    canvas.draw(replace(views.starting(), state="finished", headline="Pool a is up", ended=2.0))
    assert console.told() == ["Pool a is up · 2.0 s"]
    canvas = LogCanvas(console)
    canvas.draw(replace(views.starting(), state="failed", headline="no agent", ended=2.0))
    assert console.told()[1:] == ["failed after 2.0 s: no agent"]


def test_what_takes_a_moment_is_told_where_there_is_no_terminal_though_it_counts():
    view, canvas, console = begun()
    for words in (
        "packing x",
        "sending 12 MB",
        "cut; trying again for 1 s",
        "",
        "cut; trying again for 2 s",
    ):
        canvas.draw(fold(view, Phase(words)))
    assert console.told() == ["packing x", "sending 12 MB", "cut; trying again for 1 s"]
    console = Kept(is_live=True)
    LogCanvas(console).draw(fold(view, Phase("packing x")))
    assert console.lines == []
    assert console.going == "Running on 4 ranks: packing x · 200 ms"


# ── how far ranks are ───────────────────────────────────────────────────────────────────


def test_how_far_ranks_are_stands_below_in_a_terminal():
    console = Kept(is_live=True)
    canvas = LogCanvas(console)
    canvas.draw(views.running())
    assert console.going.startswith("Running on 4 ranks · 20.0 s · ▅▅▄▅ epoch 51 to 66/100 · 62%")
    assert console.lines == []
    canvas.draw(views.finished())
    assert console.going == ""


def test_elsewhere_it_is_told_every_ten_seconds_at_most_and_ever_less_often():
    view, canvas, console = begun()
    at = []
    for second in range(10_000):
        count = len(console.lines)
        canvas.draw(replace(view, now=float(second)))
        if len(console.lines) > count:
            at.append(second)
    assert at[:4] == [10, 20, 30, 40]
    assert console.told()[0] == "Running on 4 ranks · 10.0 s"
    between = [after - before for before, after in pairwise(at)]
    assert (min(between), max(between)) == (10, 300)


# ── the end ─────────────────────────────────────────────────────────────────────────────


def test_the_end_has_loops_and_metrics_remarks_and_notes():
    console = Kept()
    LogCanvas(console).draw(views.finished())
    assert console.told() == [
        "finished in 32.0 s on 4 ranks",
        "  [0-3] epoch 100/100 · 100% · 5 it/s  loss 0.01943 (0.01887 – 0.02)",
        "  rank 2 took 1.5 times as long as the others (32.0 s, 21.0 s)",
        "  a note <of ours>",
    ]


@pytest.mark.parametrize(
    ("state", "headline", "words"),
    [
        ("failed", "ValueError on rank 2 of 4: bad\x1b[2J", "failed after 3.0 s: ValueError on rank 2 of 4: bad [2J"),
        ("interrupted", "Interrupted on ranks 0-3", "Interrupted on ranks 0-3 · 3.0 s"),
        ("finished", "ranks 0-1 of 4 finished", "finished in 3.0 s on ranks 0-1 of 4"),
        ("finished", "Something else", "Something else · 3.0 s"),
    ],
)  # fmt: skip
def test_how_it_ended(state, headline, words):
    view, canvas, console = begun()
    canvas.draw(ended(view, state=state, headline=headline, notes=("first\nsecond",)))
    assert console.told() == [words, "  first", "second"]


def test_the_time_is_that_of_the_run_without_its_start():
    view, canvas, console = begun()
    canvas.draw(ended(view, ran_from=1.0))
    assert console.told() == ["finished in 2.0 s on 4 ranks"]


def test_a_short_run_that_says_nothing_is_not_told_of_unless_it_failed():
    view, canvas, console = begun()
    brief = replace(ended(view), now=0.3, ended=0.3)
    canvas.draw(brief)
    assert console.lines == []
    LogCanvas(console).draw(replace(brief, notes=("a note",)))
    assert console.told() == ["finished in 300 ms on 4 ranks", "  a note"]
    LogCanvas(console).draw(replace(brief, state="failed", headline="bad"))
    assert console.told()[2:] == ["failed after 300 ms: bad"]
    canvas = LogCanvas(console)
    canvas.output(Output(0, "stdout", "a\n"))
    canvas.draw(brief)
    assert console.told()[3:] == ["finished in 300 ms on 4 ranks"]


def test_of_many_ranks_that_end_differently_some_have_rows():
    view, canvas, console = begun(40)
    bars = [Progress(rank, 1, rank, 100, "epoch", over=True) for rank in range(40)]
    canvas.draw(ended(fold(view, *bars)))
    assert len(console.told()) == 18
    assert console.told()[-1] == "  … 24 more"


# ── drawn by a display ──────────────────────────────────────────────────────────────────


def test_what_waits_is_drawn_though_nothing_more_comes(monkeypatch):
    clock = 100.0
    monkeypatch.setattr(
        displays, "time", SimpleNamespace(monotonic=lambda: clock, time=lambda: clock)
    )
    console = Kept()
    display = RunDisplay(LogCanvas(console), "")
    display.running((0, 1), "Running", "", run="a/1", number=1, nodes={})
    display.watch(Output(0, "stdout", "mine\n", 1))
    clock += 0.3
    display.watch(None)
    assert console.lines == []
    clock += 0.2
    display.watch(None)
    assert console.said() == ["[rank 0] mine"]
    assert not BundleCanvas().waits


def test_what_ends_within_a_moment_is_drawn_once(monkeypatch):
    clock, drawn = 100.0, []
    monkeypatch.setattr(
        displays, "time", SimpleNamespace(monotonic=lambda: clock, time=lambda: clock)
    )
    canvas = LogCanvas(Kept())
    monkeypatch.setattr(canvas, "draw", drawn.append)
    for took, times in ((0.19, 1), (0.21, 2)):
        drawn.clear()
        clock = 100.0
        display = RunDisplay(canvas, "")
        display.running((0, 1), "Running", "", run="a/1", number=1, nodes={})
        display.watch(Output(0, "stdout", "mine\n", 1))
        clock += took
        display.watch(None)
        display.end("finished", "2 ranks finished")
        assert len(drawn) == times


@pytest.mark.parametrize("follows", [True, False])
def test_an_error_that_follows_is_not_told_before_it(follows):
    console = Kept()
    display = RunDisplay(LogCanvas(console), "Starting pool default")
    display.change(notes=("a note",))
    display.error_follows = follows
    display.fail(StartError("default", "no agent here"), notes=("another note",))
    told = " | ".join(console.told())
    assert ("no agent here" in told) == (not follows)
    assert ("StartError" in told) == follows
    assert "a note" in told and "another note" in told
    display = RunDisplay(LogCanvas(console := Kept()), "Running")
    display.error_follows = follows
    display.end("failed", "bad on rank 1", short="ValueError", error_notes=("its place",))
    assert ("its place" in " ".join(console.told())) == (not follows)


def test_lines_and_the_line_below_in_a_terminal(monkeypatch):
    with looked_at(monkeypatch, columns=60) as terminal:
        canvas = LogCanvas(Console())
        view = views.running()
        canvas.output(Output(0, "stdout", "saved \x1b[32mit\x1b[0m\n"))
        canvas.draw(view)
        canvas.draw(view)
        first, below = terminal.rows()
        assert first == "[rank 0] saved \x1b[32mit\x1b[0m"
        assert below == "Running on 4 ranks · 20.0 s · ▅▅▄▅ epoch 51 to 66/100 · 62…"
        canvas.draw(views.finished())
        assert terminal.rows()[1:] == [
            "finished in 32.0 s on 4 ranks",
            "  [0-3] epoch 100/100 · 100% · 5 it/s  loss 0.01943 (0.01887 – 0.02)",
            "  rank 2 took 1.5 times as long as the others (32.0 s, 21.0 s)",
            "  a note <of ours>",
        ]


# ── a real pool in a plain process ──────────────────────────────────────────────────────

SCRIPT = """
import sys
import pools
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.local import LocalProvider
from skyward_nb.reports.execution import execute
from skyward_nb.show.display import RunDisplay
from skyward_nb.show.log import LogCanvas
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.words.spec import PoolSpec

BODY = '''
import os, sys, time
import skyward_nb as sky
for turn in sky.progress(range(5), desc="turn"):
    time.sleep(0.2)
    while turn == 3 and not os.path.exists({seen!r}):
        time.sleep(0.02)
print("all say this")
print("to stderr", file=sys.stderr)
if sky.is_head():
    print("the head alone, unended", end="")
'''

if __name__ == "__main__":
    spec = PoolSpec(nodes=2, grace=1.0)
    display = RunDisplay(LogCanvas(), f"Starting {spec}")
    display.change(awaited=2)
    pool = Pool(spec, LocalProvider(), lambda _: None)
    try:
        pool.start(display.watch)
        display.end("finished", "The pool is up")
        display = RunDisplay(LogCanvas(), "")
        execute(PoolDisplays(pool), pools.request(pool, BODY), display, "Running on 2 ranks")
        display.end("finished", "2 ranks finished")
        print("the script goes on")
    finally:
        pool.close()
"""


def labels(lines):
    """For each text in order the ranks that said it, as one."""
    found = defaultdict(set)
    for line in lines:
        label, text = re.fullmatch(r"\[ranks? ([\d-]+)\] (.*)", line).groups()
        found[text] |= set(label.split("-"))
    return {text: sorted(ranks) for text, ranks in found.items()}


@pytest.fixture
def script(tmp_path):
    """A script that runs on a pool, its environment, and its command line."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("{seen!r}", repr(str(tmp_path / "seen"))))
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent), kept.get("PYTHONPATH", "")])
    return [sys.executable, str(file)], {**kept, "PYTHONPATH": paths}


def test_a_script_has_lines_of_ranks_on_stdout_and_ours_on_stderr(no_leaks, script, tmp_path):
    command, environment = script
    (tmp_path / "seen").touch()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    *said, last = done.stdout.splitlines()
    assert last == "the script goes on"
    assert labels(said) == {"all say this": ["0", "1"], "the head alone, unended": ["0"]}
    assert "\x1b" not in done.stdout + done.stderr
    own = [line for line in done.stderr.splitlines() if "to stderr" not in line]
    patterns = [
        r"Starting 2 ranks \(local\)",
        r"nodes 0-1: agent, .*",
        r"nodes 0-1: imports .*",
        r"The pool is up · .*",
        r"finished in .* on 2 ranks",
        r"  \[0-1\] turn 5/5 · 100% .*",
    ]
    held_up = r"  rank \d took .* times as long as the others .*|(Starting|Running) .* · .*"
    own = [line for line in own if not re.fullmatch(held_up, line)]
    told = [next((p for p in patterns if re.fullmatch(p, line)), line) for line in own]
    assert [each for each in told if each in patterns[3:]] == patterns[3:]
    assert {each for each in told if "ready in" not in each} <= set(patterns), own


def test_a_script_in_a_terminal_has_a_line_below_that_goes(no_leaks, script, tmp_path):
    command, environment = script
    terminal = Terminal(columns=100)
    goes = re.compile(r"\r\x1b\[2KRunning on 2 ranks · [^\r]*turn [1-5]/5")
    try:
        with subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=terminal.writer,
            stderr=terminal.writer,
        ) as running:
            until(lambda: running.poll() is not None or goes.search(terminal.raw()))
            (tmp_path / "seen").touch()
            assert running.wait(60) == 0
        rows, raw = terminal.rows(), terminal.raw()
    finally:
        terminal.close()
    assert goes.search(raw)
    assert not [row for row in rows if row.startswith("Running")]
    at = next(index for index, row in enumerate(rows) if row.startswith("finished in"))
    said = [row for row in rows[:at] if row.startswith("[rank")]
    assert labels(said) == {
        "all say this": ["0", "1"],
        "to stderr": ["0", "1"],
        "the head alone, unended": ["0"],
    }
    assert rows[-1] == "the script goes on"
