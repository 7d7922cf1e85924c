"""The kernel "Python on a pool", as a front end starts it: one kernel for all tests, and its pool."""

from __future__ import annotations

import pytest
from kernels import Kernel, Marks, ready
from leaks import ours
from waiting import until

from skyward_nb.kernel import kernelspecs

MARK = "every cell: nodes=2 heartbeat=30"


@pytest.fixture(scope="module")
def notebook(prefix):
    words = ["--prefix", str(prefix), "--nodes", "2", "heartbeat=30"]
    kernelspecs.install(kernelspecs.read(words))
    name = kernelspecs.NAME
    with ready(kernel_name=name, JPY_SESSION_NAME="work/pool.ipynb") as running:
        yield running


def answer(notebook: Kernel, message: str) -> dict:
    while True:
        reply = notebook.client.get_shell_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == message:
            return reply["content"]


def completed(notebook: Kernel, text: str) -> list[str]:
    return answer(notebook, notebook.client.complete(text))["matches"]


def told(notebook: Kernel, text: str) -> str:
    return answer(notebook, notebook.client.inspect(text))["data"].get("text/plain", "")


def test_plain_cells_run_on_ranks_and_the_picture_says_so(notebook):
    ran = notebook.run("x = sky.rank()\nx, sky.world_size()")
    assert ran.result == "[0] (0, 2)\n[1] (1, 2)", ran
    assert MARK in ran.picture
    status = notebook.run("%sky status").stdout
    assert status.startswith("every cell runs on ranks: nodes=2 heartbeat=30; %%local, magics")
    assert "nodes=2  (the kernel)" in notebook.run("%sky config").stdout


def test_what_stays_here(notebook):
    assert notebook.run("%%local\nhere = 1\nhere").result == "1"
    assert notebook.run("!echo said").stdout.strip() == "said"
    assert "NameError" in notebook.run("%%local\nx").traceback
    assert notebook.run("%%bash\necho bash").stdout == "bash\n"
    # It is sent as it is for cells of %%sky_remote, which may have options of their own.
    assert notebook.run("here + x").result == "[0] 1\n[1] 2"
    assert notebook.run("%%sky_remote ranks=1\nhere + x").result == "[1] 2"
    # In the order of the cell; a value that is not the last expression's is not shown.
    ran = notebook.run("y = x\n%sky vars\ny + 1\n!echo last")
    assert "\ny     0-1" in ran.stdout
    assert ran.stdout.rstrip().endswith("last")
    assert ran.result is None
    assert notebook.run("%%time\n1 + 1").result == "[0-1] 2"


def test_what_front_ends_ask_unseen_is_left_alone(notebook):
    for hidden in ({"silent": True}, {"store_history": False}):
        message = notebook.client.execute("unseen = 'here'", **hidden)
        assert notebook.finish(message).status == "ok"
        assert notebook.run("%%local\nunseen").result == "'here'"
        assert notebook.run("%%local\ndel unseen").status == "ok"


def test_errors_name_the_lines_of_the_cell(notebook):
    ran = notebook.run("import os\n%sky config\ndef broken():\n    1 / 0\n\nbroken()")
    assert "line 6\n" in ran.traceback
    assert "----> 6 broken()" in ran.traceback
    assert "line 4, in broken" in ran.traceback
    assert "%%sky_remote" not in ran.traceback
    assert "line 2" in notebook.run("%%local\n1 / 0").traceback
    ran = notebook.run("x = 1\nx =")
    assert ", line 2\n" in ran.traceback
    ran = notebook.run("%%locl\nx")
    assert "no cell magic %%locl; did you mean %%local?" in ran.stderr
    # History has what was written.
    assert notebook.run("%history -l 1").stdout.strip() == "%%locl\nx"


ASK_IN_A_THREAD = """%%local
import threading
found = []
def ask():
    while not any(found):
        found.append(get_ipython().kernel.do_complete("kept_here.setd", 14)["matches"])
threading.Thread(target=ask, daemon=True).start()
"""


def test_a_thread_is_told_what_ranks_have_between_cells(notebook):
    """VS Code asks in one, whatever the kernel does."""
    assert notebook.run("kept_here = {}").status == "ok"
    assert notebook.run(ASK_IN_A_THREAD).status == "ok"
    until(lambda: "setdefault" in notebook.run("%%local\nprint(found)").stdout)


def test_tab_and_tooltips_know_what_ranks_have(notebook, tmp_path):
    marks = Marks(notebook, tmp_path)
    made = "class Net:\n    'All layers.'\n    def forward(self): ...\nnet = Net()\nkept = {'alpha': 1}"
    assert notebook.run(made).status == "ok"
    assert completed(notebook, "x.bit_c") == ["x.bit_count"]
    assert completed(notebook, "net.for") == ["net.forward"]
    assert completed(notebook, "kept['al") == ["alpha"]
    assert "All layers." in told(notebook, "net")
    assert "net" in completed(notebook, "ne")
    assert completed(notebook, "%%local\nnet.for") == []
    assert "%%local" in completed(notebook, "%%loc")
    assert completed(notebook, "%sky on nod") == ["nodes="]
    assert notebook.run("%%sky_remote detach out=run\nmeet('go')").status == "ok"
    # Ranks are busy: nobody waits for them.
    assert completed(notebook, "net.for") == []
    assert "net" in completed(notebook, "ne")
    assert told(notebook, "net") == "net: a name of the ranks, which are busy"
    marks.make("go")
    assert notebook.run("%%local\nrun.wait()").status == "ok"


def test_the_stop_button_keeps_names(notebook):
    ran = notebook.stopped("print('here')\nimport time\ntime.sleep(100)")
    assert any(MARK in text for text in ran.live)
    assert "KeyboardInterrupt" in ran.traceback
    assert notebook.run("x").result == "[0] 0\n[1] 1"


def test_off_and_on(notebook):
    assert "cells run here again" in notebook.run("%sky off").stdout
    ran = notebook.run("x")
    assert "NameError" in ran.traceback
    assert not ran.displays
    assert notebook.run("%%local\n2").result == "2"
    assert "every cell" not in notebook.run("%%sky_remote\nx").picture
    assert MARK.partition(":")[2] in notebook.run("%sky on").stdout
    wrong = notebook.run("%sky on nodes=3")
    assert "nodes=3 was asked for" in wrong.traceback
    assert notebook.run("x").result == "[0] 0\n[1] 1"


def test_a_restart_in_mid_run_ends_the_run_and_the_pool(notebook, tmp_path):
    marks = Marks(notebook, tmp_path)
    notebook.begin("here()\nmeet('never')")
    until(marks.of(0, 1))
    assert notebook.restart() == ""
    until(lambda: not ours())
    assert notebook.run("sky.world_size()").result == "[0-1] 2"


@pytest.mark.extensive
def test_a_restart_leaves_nothing_unless_the_pool_is_kept(notebook):
    assert notebook.run("x = 1").status == "ok"
    assert ours()
    assert notebook.restart() == ""
    assert not ours()
    ran = notebook.run("x")
    assert "NameError" in ran.traceback
    assert notebook.run("%sky down").status == "ok"
    assert notebook.run("%sky on nodes=2 keep").status == "ok"
    assert notebook.run("kept = 5").status == "ok"
    notebook.restart()
    ran = notebook.run("kept")
    assert ran.result == "[0-1] 5"
    assert "ranks keep their names" in ran.picture
    assert notebook.run("%sky down").status == "ok"
