"""The debugger of a front end stops ranks in cells: its own protocol, with a real kernel and real debugpy."""

import pytest
from kernels import kernel
from notebook.front_end_debugger import debugging

STEP = """%%sky_remote nodes=2 {}
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


def test_a_breakpoint_in_a_cell_stops_both_ranks_and_continue_frees_them(notebook):
    cell = STEP.format("timeout=5s")
    with debugging(notebook) as debugger:
        path = debugger.break_at(cell, 5)
        message = notebook.begin(cell)
        debugger.event("stopped")
        thread = debugger.event("stopped")["threadId"]
        frames = debugger.frames(thread)
        first = {frame["name"].split(":")[0]: frame for frame in reversed(frames)}
        assert sorted(first) == ["rank 0", "rank 1"]
        assert {frame["source"]["path"] for frame in frames} == {path}
        assert first["rank 0"]["line"] == first["rank 1"]["line"] == 5
        assert debugger.variables(first["rank 1"]) == {"batch": "5", "scale": "50"}
        assert debugger.variables(first["rank 0"])["scale"] == "40"
        debugger.ask("continue", threadId=thread)
        ran = notebook.finish(message)
        assert ran.result == "[0] 41\n[1] 51", ran
    assert notebook.run(cell).result == "[0] 41\n[1] 51"
