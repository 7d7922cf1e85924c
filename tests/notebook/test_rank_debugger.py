"""The debugger of a front end stops ranks in cells: its own protocol, with a real kernel and real debugpy."""

import time

import pytest
from kernels import kernel
from later import needs
from notebook.front_end_debugger import debugging
from waiting import until

STEP = """%%sky_remote nodes=2 timeout={}
import skyward_nb as sky
def step(batch):
    scale = batch * 10
    scale += 1
    return scale
step(sky.rank() + 4)
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
    cell = STEP.format("3s")
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
    time.sleep(4)  # longer than the run may take
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
