"""The square button: ranks stop, namespaces are kept; what does not stop is begun anew."""

from __future__ import annotations

import re
import time

import pytest
from kernels import Marks, by_files, ready
from later import Later, needs
from leaks import leaves_nothing
from tiers import few

nbclient = Later("nbclient")
nbformat = Later("nbformat")


@pytest.fixture(scope="module")
def notebook():
    with ready("%%sky_remote nodes=2 grace=20s\nimport time, os\nkept = 7") as running:
        yield running


@pytest.fixture
def marks(notebook, tmp_path):
    return Marks(notebook, tmp_path)


@pytest.fixture
def up(notebook):
    """Brings a second pool up, with these options; it is gone after the test."""
    with leaves_nothing():
        yield lambda options: notebook.run(f"%sky up pool=second nodes=2 {options}")
        assert notebook.run("%sky down pool=second").status == "ok"


def interrupted(notebook, marks, body, line=""):
    """Run a cell, and interrupt it when both ranks have said that they are there."""
    return notebook.pressed(f"%%sky_remote {line}\n{body}", marks.of(0, 1))


@pytest.mark.parametrize(
    "body",
    few(
        4,
        [
            "here()\ntime.sleep(60)",
            "here()\nwhile True: pass",
            "class Bound:\n    def __del__(self):\n        here()\n        while True: pass\nbound = Bound(); del bound\ntime.sleep(60)",
            "import subprocess; here(); subprocess.run(['sleep', '60'])",
            "here()\nfor i in range(10**9): print('busy', i)",
            "import asyncio\nhere()\nawait asyncio.sleep(60)",
            "import threading\nhere()\nthreading.Event().wait(60)",
        ],
    ),
    ids=["sleep", "spin", "finalizer", "child", "printing", "await", "lock"],
)
def test_an_interrupt_stops_ranks_and_keeps_namespaces(notebook, marks, body):
    ran = interrupted(notebook, marks, body)
    assert ran.error[0] == "KeyboardInterrupt"
    assert "namespaces kept" in ran.picture
    assert "skyward_nb" not in ran.traceback
    assert notebook.run("%%sky_remote\nkept").result == "[0-1] 7"


def test_user_code_may_catch_it_and_give_its_value(notebook, marks):
    body = (
        "try:\n    here()\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    saved = True\nsaved"
    )
    ran = interrupted(notebook, marks, body)
    assert ran.status == "ok"
    assert ran.result == "[0-1] True"


def test_it_is_said_that_ranks_are_waited_for(notebook, marks):
    body = "try: here(); time.sleep(60)\nexcept KeyboardInterrupt: meet('told')"

    def look(text):
        if "interrupted, waiting for ranks 0-1 to stop" in text:
            marks.make("told")

    ran = notebook.pressed(f"%%sky_remote\n{body}", marks.of(0, 1), on_update=look)
    assert ran.status == "ok"
    assert any("interrupted, waiting for ranks 0-1 to stop" in text for text in ran.live)
    assert "waiting" not in ran.picture


STAYS = """
while True:
    try:
        here()
        time.sleep(60)
    except KeyboardInterrupt:
        here("again ")
"""


def test_what_ignores_it_is_killed_after_the_grace_and_begun_anew(notebook, marks, up):
    assert up("grace=1s").status == "ok"
    notebook.run("sent = 3")
    notebook.run("%%sky_remote pool=second\nimport time\nkept = 7\nsent")
    ran = interrupted(notebook, marks, STAYS, "pool=second")
    assert ran.error[0] == "KeyboardInterrupt"
    assert "had to be killed" in ran.picture
    for words in (ran.picture, ran.traceback):
        assert re.search("lost with the ranks: .*kept", words)
        assert "namespaces kept" not in words
    assert notebook.run("%%sky_remote pool=second\nsent").result == "[0-1] 3"


def test_a_second_interrupt_does_not_wait_for_the_grace(notebook, marks, up):
    """That lasts longer than a cell may take here."""
    assert up("grace=600s").status == "ok"
    notebook.run("%%sky_remote pool=second\nimport time")
    again = marks.of(0, 1, word="again ")
    ran = notebook.pressed(f"%%sky_remote pool=second\n{STAYS}", marks.of(0, 1), again)
    assert "had to be killed" in ran.picture


def test_a_rank_that_dies_of_an_interrupt_is_named(notebook, marks):
    body = (
        "import os, time\nimport skyward_nb as sky\n"
        "try:\n    here()\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    if not sky.is_head():\n        os.abort()\n    raise"
    )
    ran = interrupted(notebook, marks, body)
    assert ran.error[0] == "KeyboardInterrupt"
    for words in (ran.picture, ran.traceback):
        assert "rank 1 crashed: SIGABRT" in words
        assert "rank 1 was in Cell In[" in words
        assert "all ranks were started anew" in words


def test_an_interrupt_while_a_pool_starts_leaves_nothing(notebook, up):
    message = notebook.begin("%%sky_remote pool=second nodes=2\n1")
    time.sleep(0.12)
    notebook.interrupt()
    ran = notebook.finish(message)
    assert ran.status in ("error", "ok")
    assert up("").status == "ok"
    assert notebook.run("%%sky_remote pool=second\n'after'").status == "ok"


@pytest.fixture(scope="module")
def torch_pool(notebook):
    ran = notebook.run("%sky up pool=torch nodes=2 framework=torch grace=20s")
    assert ran.status == "ok", ran


@pytest.mark.extensive
@pytest.mark.torch
@needs("torch")
@pytest.mark.parametrize("waits", few(1, [True, False]))
def test_a_rank_may_end_before_it_says_that_it_was_cut(notebook, torch_pool, marks, waits):
    """By its collective, which raises; or by itself: then nothing of its group was cut, and it stays."""
    stay = "here_in('all_reduce')\n    dist.all_reduce(torch.ones(1))"
    look = "found = answer(control, command)\n    time.sleep(0.7)"
    if not waits:
        stay = "try: here(); time.sleep(100)\n    except KeyboardInterrupt: time.sleep(0.5)"
        look = "time.sleep(0.7)\n    found = answer(control, command)"
    slow = (
        "%%sky_remote pool=torch\nimport time, torch, torch.distributed as dist\n"
        "from skyward_nb.node.control_thread import ControlThread\nanswer = ControlThread._answer\n"
        f"def late(control, command):\n    {look}\n    return found\nControlThread._answer = late"
    )
    assert notebook.run("%sky restart pool=torch").status == "ok"
    assert notebook.run(slow).status == "ok"
    body = f"if dist.get_rank():\n    {stay}\nelse:\n    here()\n    time.sleep(100)"
    ran = interrupted(notebook, marks, body, "pool=torch")
    assert ran.error[0] == "KeyboardInterrupt"
    assert ("the process group was formed again" in ran.picture) == waits
    ran = notebook.run("%%sky_remote pool=torch\nt = torch.ones(1)\ndist.all_reduce(t)\nt.item()")
    assert ran.result == "[0-1] 2.0"


@pytest.mark.extensive
def test_under_nbclient_a_cell_that_takes_too_long_is_interrupted_and_the_next_one_runs(no_leaks):
    cells = [
        "%load_ext skyward_nb\n%sky up nodes=2 grace=20s",
        "%%sky_remote\nimport time\nkept = 7\nprint('begun')\ntime.sleep(600)",
        "%%sky_remote\n'alive'",
        "%sky down",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    with by_files() as config:
        client = nbclient.NotebookClient(
            notebook,
            timeout_func=lambda cell: 3 if "sleep" in cell.source else 60,
            interrupt_on_timeout=True,
            allow_errors=True,
            kernel_name="python3",
            config=config,
        )
        client.execute()
    texts = [str(cell.outputs) for cell in notebook.cells]
    assert "Interrupted on ranks 0-1; namespaces kept" in texts[1]
    assert texts[1].count("'ename': 'KeyboardInterrupt'") == 1
    assert "[0-1] 'alive'" in texts[2]
