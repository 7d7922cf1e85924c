"""The debugger of a front end stops ranks in cells: its own protocol, with a real kernel and real debugpy."""

import time

import pytest
from kernels import kernel
from later import needs
from notebook.front_end_debugger import debugging
from tiers import few
from waiting import until

STEP = """%%sky_remote nodes=2 timeout={}
import skyward_nb as sky
def step(batch):
    scale = batch * 10
    scale += 1
    return scale
step(sky.rank() + 4)
"""


LOOP = """%%sky_remote nodes=2
import pathlib, time
import skyward_nb as sky
def inner(n):
    more = n + 1
    return more
def step(n):
    a = inner(n)
    b = a * 2
    return b
turns, most = 0, 0
print("it turns")
while not pathlib.Path({go!r}).exists():
    turns += 1
    most = max(most, step(0))
    pathlib.Path({seen!r} + str(sky.rank())).write_text(str(turns))
    time.sleep(0.05)
most
"""
CAUGHT = """%%sky_remote nodes=2
import skyward_nb as sky
def odd(n):
    if n:
        raise ValueError("odd")
    return n
def guarded():
    try:
        odd(sky.rank())
    except ValueError:
        return "caught"
print(guarded())
odd(sky.rank())
"""


@pytest.fixture(scope="module")
def notebook():
    with kernel() as running:
        yield running


@pytest.fixture
def debugger(notebook):
    with debugging(notebook) as on:
        yield on


def by_rank(frames):
    """The innermost frame of each rank."""
    return {frame["name"].split(":")[0]: frame for frame in reversed(frames)}


def stopped(debugger, ranks=2):
    """The frames of ranks, once so many stand, and the thread that is looked at."""
    threads = until(lambda: debugger.stopped_threads(at_least=ranks))
    return by_rank(debugger.frames(threads[0])), threads[0]


def test_a_breakpoint_in_a_cell_stops_both_ranks_and_continue_frees_them(notebook, debugger):
    cell = STEP.format("6s")
    path = debugger.break_at(cell, 5)
    message = notebook.begin(cell)
    first, thread = stopped(debugger)
    assert sorted(first) == ["rank 0", "rank 1"]
    assert {frame["source"]["path"] for frame in first.values()} == {path}
    assert first["rank 0"]["line"] == first["rank 1"]["line"] == 5
    assert debugger.variables(first["rank 1"]) == {"batch": "5", "scale": "50"}
    assert debugger.variables(first["rank 0"])["scale"] == "40"
    value = debugger.ask("evaluate", expression="scale * 2", frameId=first["rank 0"]["id"])
    assert value["body"]["result"] == "80"
    named = [each["name"] for each in debugger.ask("threads")["body"]["threads"]]
    assert {"rank 0", "rank 1"} <= {*named}
    assert debugger.event("stopped")["threadId"] == thread
    time.sleep(7)  # longer than the run may take
    debugger.ask("next", threadId=thread)
    first, thread = stopped(debugger)
    assert first["rank 0"]["line"] == first["rank 1"]["line"] == 6
    assert debugger.variables(first["rank 1"])["scale"] == "51"
    debugger.ask("continue", threadId=thread)
    ran = notebook.finish(message)
    assert ran.result == "[0] 41\n[1] 51"
    assert "ranks 0-1 stand at a breakpoint" in "".join(ran.live)


@pytest.mark.extensive
def test_the_stop_button_ends_a_run_whose_ranks_stand(notebook, debugger):
    cell = STEP.format("60s") + "kept = 1\n"
    debugger.break_at(cell, 5)
    message = notebook.begin(cell)
    stopped(debugger)
    notebook.interrupt()
    ran = notebook.finish(message)
    assert ran.error[0] == "KeyboardInterrupt"
    assert notebook.run("%%sky_remote\n'step' in globals()").result == "[0-1] True", (
        "no rank was ended"
    )


@pytest.mark.extensive
def test_a_condition_stops_one_rank_and_turning_the_debugger_off_frees_it(notebook):
    cell = STEP.format("61s")
    with debugging(notebook) as debugger:
        debugger.break_at(cell, 5, condition="batch == 5")
        message = notebook.begin(cell)
        first, _ = stopped(debugger, ranks=1)
        assert list(first) == ["rank 1"]
    ran = notebook.finish(message)
    assert ran.result == "[0] 41\n[1] 51"
    assert notebook.run(cell).result == "[0] 41\n[1] 51", "nothing stops any more"


def test_a_run_that_goes_on_takes_breakpoints_steps_and_values(notebook, debugger, tmp_path):
    cell = LOOP.format(go=str(tmp_path / "go"), seen=str(tmp_path / "seen"))
    path = debugger.break_at(cell)
    message = notebook.begin(cell)

    def breaks_at(*lines):
        points = [{"line": line} for line in lines]
        reply = debugger.ask("setBreakpoints", source={"path": path}, breakpoints=points)
        assert [each["verified"] for each in reply["body"]["breakpoints"]] == [True] * len(lines)

    def stands_at(line, count=2):
        def at():
            threads = debugger.stopped_threads(at_least=2)
            frames = debugger.frames(threads[0]) if threads else []
            first = by_rank(frames)
            there = [each["line"] for each in first.values()] == [line] * count
            return (first, threads[0]) if there else None

        return until(at)

    def turns():
        files = [tmp_path / f"seen{rank}" for rank in (0, 1)]
        return [int(each.read_text() or 0) if each.exists() else 0 for each in files]

    until(lambda: min(turns()) > 2)
    breaks_at(9)
    first, thread = stands_at(9)
    scopes = debugger.ask("scopes", frameId=first["rank 1"]["id"])["body"]["scopes"]
    local = next(each for each in scopes if each["name"] == "Locals")["variablesReference"]
    refused = debugger.ask("setVariable", variablesReference=local, name="a", value="missing(")
    assert not refused["success"]
    assert refused["message"].startswith("rank 1: Unable to change: a. Evaluate the value there")
    changed = debugger.ask("setVariable", variablesReference=local, name="a", value="500 + n")
    assert (changed["success"], changed["body"]["value"]) == (True, "500")
    assert debugger.variables(first["rank 1"])["a"] == "500"
    breaks_at(8)
    debugger.ask("continue", threadId=thread)
    _, thread = stands_at(8)
    debugger.ask("stepIn", threadId=thread)
    first, thread = stands_at(5)
    assert first["rank 0"]["name"] == "rank 0: inner"
    debugger.ask("stepOut", threadId=thread)
    _, thread = stands_at(8)
    breaks_at()
    before = turns()
    debugger.ask("continue", threadId=thread)
    until(lambda: all(now > was + 5 for now, was in zip(turns(), before, strict=True)))
    assert not debugger.stopped_threads(at_least=1)
    (tmp_path / "go").touch()
    assert notebook.finish(message).result == "[0] 2\n[1] 1000"


@pytest.mark.parametrize(
    ("asked", "lines"),
    few(1, [("raised", [5, 9, 5, 13]), ("uncaught", [5]), ("userUnhandled", [5])]),
)
def test_exceptions_of_the_cell_stop_ranks_and_no_others(notebook, debugger, asked, lines):
    """Those that this package and its libraries catch, in the kernel and on ranks, stop nothing."""
    notebook.run("%sky up nodes=2")
    debugger.break_at(CAUGHT)
    assert debugger.ask("setExceptionBreakpoints", filters=[asked])["success"]
    message = notebook.begin(CAUGHT)
    for line in lines:
        threads = until(lambda: debugger.stopped_threads(at_least=1))
        frames = debugger.frames(threads[0])
        assert (frames[0]["name"].split(":")[0], frames[0]["line"]) == ("rank 1", line)
        said = debugger.ask("exceptionInfo", threadId=threads[0])["body"]
        assert said["description"] == "odd"
        debugger.ask("continue", threadId=threads[0])
    # Then the kernel raises it in the cell, and stands there, too, as with any exception that IPython catches.
    if asked != "uncaught":
        threads = until(lambda: debugger.stopped_threads(at_least=1))
        names = [each["name"] for each in debugger.frames(threads[0])]
        assert "<module>" in names
        assert not [name for name in names if name.startswith("rank")]
        debugger.ask("setExceptionBreakpoints", filters=[])
        debugger.ask("continue", threadId=threads[0])
    ran = notebook.finish(message)
    assert ran.error[:2] == ("ValueError", "odd")


@needs("torch")
@pytest.mark.extensive
def test_a_collective_waits_for_ranks_that_stand(notebook, debugger):
    code = """%%sky_remote
import torch, skyward_nb as sky
x = torch.ones(1)
if sky.rank():
    x += 1
torch.distributed.all_reduce(x)
x.item()
"""
    notebook.run("%sky down")
    assert notebook.run("%sky up nodes=2 framework=torch collective_timeout=2s").status == "ok"
    debugger.break_at(code, 5)
    message = notebook.begin(code)
    first, thread = stopped(debugger, ranks=1)
    assert list(first) == ["rank 1"]
    time.sleep(4)
    debugger.ask("continue", threadId=thread)
    assert notebook.finish(message).result == "[0-1] 3.0"
