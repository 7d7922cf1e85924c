"""Code on ranks that asks for a keyboard, and pdb over the frames of a rank that stopped."""

import sys
import time

import pytest
from kernels import ready
from later import needs

# Rank 1 fails when rank 0 is where the tests look for it.
FAILS = """%%sky_remote
import os, time
import skyward_nb as sky
def step(batch, mark):
    scale = batch * 10
    if sky.rank() == 1:
        while not os.path.exists(mark):
            time.sleep(0.01)
        raise ValueError("bad batch")
    os.mkdir(mark)
    while True:
        time.sleep(0.01)
    return scale
step(sky.rank() + 4, {!r})
"""


# A breakpoint stops after its line, or at it, as pdb has it from Python 3.13 on.
TO_THE_NEXT_LINE = ["n"] if sys.version_info >= (3, 13) else []


@pytest.fixture(scope="module")
def notebook():
    with ready("%sky up nodes=2") as running:
        yield running


@pytest.fixture
def failed(notebook, tmp_path):
    assert notebook.run(FAILS.format(str(tmp_path / "in step"))).error[0] == "ValueError"
    return notebook


def typed(notebook, line, *answers):
    """Run a line that asks; what was asked with each answer, and what the cell gave."""
    message = notebook.begin(line)
    asked = []
    for answer in answers:
        asked.append(notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"])
        notebook.client.input(answer)
    return asked, notebook.finish(message)


def test_frames_names_and_places_of_the_rank_that_failed(failed):
    asked, ran = typed(
        failed,
        "%sky debug",
        "p scale, batch",
        "up",
        "p step",
        "n",
        "down",
        "scale = 7",
        "p scale",
        "q",
    )
    assert all(each.endswith("rank 1> ") for each in asked)
    assert "(9)step()" in ran.stdout
    assert "Cell In[" in ran.stdout
    assert '-> raise ValueError("bad batch")' in ran.stdout
    assert "(50, 5)" in ran.stdout
    assert "<function step" in ran.stdout
    assert "cannot go on" in ran.stdout
    assert ran.stdout.endswith("7\n")
    asked, ran = typed(failed, "%sky debug rank=0", "p batch", "whatever", "q")
    assert asked[-1] == "rank 0> "
    assert "4" in ran.stdout.splitlines()
    assert "NameError: name 'whatever' is not defined" in ran.stdout


def test_percent_debug_opens_it(failed):
    asked, ran = typed(failed, "%debug", "p scale", "q")
    assert asked[-1] == "rank 1> "
    assert "50" in ran.stdout.splitlines()


def test_without_an_input_box_all_frames_are_printed(failed):
    failed.client.allow_stdin = False
    try:
        ran = failed.run("%sky debug rank=1")
    finally:
        failed.client.allow_stdin = True
    assert "    batch = 5\n    mark = " in ran.stdout
    assert "    scale = 50\n" in ran.stdout


def test_frames_go_with_the_next_cell(failed):
    assert failed.run("%%sky_remote\n1").status == "ok"
    assert "did not stop in the last cell" in failed.run("%sky debug").traceback
    assert "one rank is debugged at a time" in failed.run("%sky debug rank=0-1").stderr


def test_at_a_breakpoint_pdb_is_typed_in_the_notebook_and_no_time_passes(notebook):
    code = """%%sky_remote timeout=5s
import skyward_nb as sky
def step(batch):
    scale = batch * 10
    if sky.rank() == 1:
        breakpoint()
    scale += 1
    return scale
step(sky.rank() + 4)
"""
    message = notebook.begin(code)
    shown = []
    for line in (*TO_THE_NEXT_LINE, "p scale", "w", "scale = 7", "n", "up", "c"):
        shown.append(notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"])
        if line == "w":
            time.sleep(6)  # longer than the run may take, and than a machine may be silent
        notebook.client.input(line)
    ran = notebook.finish(message)
    assert shown == ["rank 1> "] * (6 + len(TO_THE_NEXT_LINE))
    assert ran.result == "[0] 41\n[1] 8"
    assert "(7)step()\n-> scale += 1\n50\n" in ran.stdout
    assert "forge" not in ran.stdout
    assert "has not answered" not in ran.picture
    assert "as long as the others" not in ran.picture, "a person took that time"
    assert notebook.run("%%sky_remote\nsky.rank()").result == "[0] 0\n[1] 1", (
        "nothing is traced any more"
    )


def test_stepping_goes_from_a_cells_statements_to_its_value(notebook):
    code = "%%sky_remote ranks=1\nbreakpoint()\nx = 2\nx + 1"
    _, ran = typed(notebook, code, *TO_THE_NEXT_LINE, "n", "p x", "n")
    assert ran.result == "[1] 3"
    assert "(4)<module>()\n-> x + 1\n2\n" in ran.stdout
    assert "--" not in ran.stdout


def test_all_ranks_at_a_breakpoint_are_asked_in_turn(notebook):
    message = notebook.begin("%%sky_remote\nx = 1\nbreakpoint()\nx = 2\nx")
    asked = []
    for _ in range(4):
        prompt = notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
        # One may come there late, when the other is asked for the second time.
        notebook.client.input("c" if prompt in asked else "n")
        asked.append(prompt)
    ran = notebook.finish(message)
    assert sorted(asked) == ["rank 0> "] * 2 + ["rank 1> "] * 2
    assert ran.result == "[0-1] 2"


def test_q_ends_the_run(notebook):
    _, ran = typed(notebook, "%%sky_remote ranks=0\nbreakpoint()\nnever = 1", "q")
    assert "BdbQuit on rank 0 of 2" in ran.picture, "IPython itself says no more of it"
    assert notebook.run("%%sky_remote ranks=0\n'never' in globals()").result == "[0] False"


def test_an_interrupt_at_a_breakpoint_ends_the_run(notebook):
    message = notebook.begin("%%sky_remote ranks=0\nkept = 5\nbreakpoint()\n")
    notebook.client.get_stdin_msg(timeout=60)
    notebook.interrupt()
    ran = notebook.finish(message)
    assert ran.error[0] == "KeyboardInterrupt"
    assert notebook.run("%%sky_remote ranks=0\nkept").result == "[0] 5"


def test_where_nobody_can_type_a_breakpoint_says_what_to_do(notebook):
    notebook.client.allow_stdin = False
    try:
        ran = notebook.run("%%sky_remote ranks=0\ninside = 3\nbreakpoint()\nnever = 1")
    finally:
        notebook.client.allow_stdin = True
    assert ran.error[0] == "RuntimeError"
    assert "`%sky debug rank=0` looks at its frames" in ran.traceback
    assert "Cell In[" in ran.traceback
    off = "import os; os.environ['PYTHONBREAKPOINT'] = '0'; breakpoint(); del os.environ['PYTHONBREAKPOINT']"
    assert notebook.run(f"%%sky_remote\n{off}").status == "ok"


@pytest.mark.parametrize("asks", ["input", "getpass"])
def test_input_says_where_to_ask(notebook, asks):
    asking = f"from getpass import getpass\nname = {asks}('Your name? ')"
    ran = notebook.run(f"%%sky_remote on_error=wait\n{asking}")
    assert ran.error[0] == "EOFError"
    said = f"{asks}() on a rank, which has no keyboard: ask in a cell of the notebook, `answer = {asks}()`"
    assert ran.traceback.count(said) == 1
    assert "raised on ranks 0-1 of 2, Cell In[" in ran.traceback


def test_an_error_of_the_notebook_is_debugged_by_ipython(notebook):
    notebook.run("def here(): mine = 12; 1 / 0\nhere()")
    asked, _ = typed(notebook, "%debug", "p mine", "q")
    assert asked[0].startswith("ipdb>")


@needs("torch")
@pytest.mark.extensive
def test_a_collective_waits_for_a_rank_at_a_breakpoint_beyond_its_limit():
    code = """%%sky_remote
import torch, skyward_nb as sky
if sky.rank():
    breakpoint()
total = torch.ones(1)
torch.distributed.all_reduce(total)
total.item()
"""
    with ready("%sky up nodes=2 framework=torch collective_timeout=2s") as running:
        message = running.begin(code)
        running.client.get_stdin_msg(timeout=60)
        time.sleep(4)
        running.client.input("c")
        assert running.finish(message).result == "[0-1] 2.0"
        late = "%%sky_remote\nimport time\nif sky.rank(): time.sleep(20)\ntorch.distributed.all_reduce(total)"
        assert "waited in all_reduce for rank 1" in running.run(late).traceback, (
            "the limit holds again"
        )
