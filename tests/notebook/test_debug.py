"""Code on ranks that asks for a keyboard, and pdb over the frames of a rank that stopped."""

import pytest
from kernels import ready

FAILS = """%%sky_remote
import skyward_nb as sky
def step(batch):
    scale = batch * 10
    if sky.rank() == 1:
        raise ValueError("bad batch")
    import time
    while True:
        time.sleep(0.01)
    return scale
step(sky.rank() + 4)
"""


@pytest.fixture(scope="module")
def notebook():
    with ready("%sky up nodes=2") as running:
        yield running


@pytest.fixture
def failed(notebook):
    assert notebook.run(FAILS).error[0] == "ValueError"
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
    assert "(6)step()" in ran.stdout
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
    assert "    batch = 5\n    scale = 50" in ran.stdout


def test_frames_go_with_the_next_cell(failed):
    assert failed.run("%%sky_remote\n1").status == "ok"
    assert "did not stop in the last cell" in failed.run("%sky debug").traceback
    assert "one rank is debugged at a time" in failed.run("%sky debug rank=0-1").stderr


def test_breakpoint_stops_and_says_what_to_type(notebook):
    ran = notebook.run("%%sky_remote ranks=0\ninside = 3\nbreakpoint()\nnever = 1")
    assert ran.error[0] == "RuntimeError"
    assert "`%sky debug rank=0` looks at its frames" in ran.traceback
    assert "Cell In[" in ran.traceback
    _, ran = typed(notebook, "%debug", "p inside", "q")
    assert "-> breakpoint()" in ran.stdout
    assert "3" in ran.stdout.splitlines()
    off = "import os; os.environ['PYTHONBREAKPOINT'] = '0'; breakpoint(); del os.environ['PYTHONBREAKPOINT']"
    assert notebook.run(f"%%sky_remote\n{off}").status == "ok"


def test_input_says_where_to_ask(notebook):
    ran = notebook.run("%%sky_remote ranks=1\nname = input('Your name? ')")
    assert ran.error[0] == "EOFError"
    assert (
        "input() on rank 1, which has no keyboard: ask in a cell of the notebook" in ran.traceback
    )


def test_an_error_of_the_notebook_is_debugged_by_ipython(notebook):
    notebook.run("def here(): mine = 12; 1 / 0\nhere()")
    asked, _ = typed(notebook, "%debug", "p mine", "q")
    assert asked[0].startswith("ipdb>")
