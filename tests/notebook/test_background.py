"""Runs in the background: cells go on beside them, and nothing of them is lost."""

from __future__ import annotations

import os
import re
import signal
from types import SimpleNamespace

import pytest
from later import Later
from slow import LINES, said, until_it_is_seen, until_it_runs
from waiting import until

from skyward_nb.notebook.background import Background
from skyward_nb.pool import registry

nbclient = Later("nbclient")
nbformat = Later("nbformat")


def test_a_run_in_the_background(notebook, slow):
    began = notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    assert began.status == "ok"
    assert re.search(r": running at \d\d:\d\d:\d\d; h.status, ", began.result)
    assert notebook.run("1 + 1").result == "2"
    assert notebook.run("h.status").result == "'running'"
    busy = notebook.run("%%sky_remote\n1")
    assert busy.error[0] == "PoolError"
    assert "in the background" in busy.error[1]
    slow.may_end()
    ran = notebook.run("h.wait(), h.status, h.result().head")
    assert ran.result == "(True, 'finished', 'the end')"
    (picture,) = [data["text/plain"] for data in ran.others if "finished" in data["text/plain"]]
    assert said(picture) == LINES
    # What the cell saves says how the run ended.
    (shown,) = ran.handles
    assert shown.startswith("<run default-")
    assert shown.endswith(" on 2 ranks: finished; h.result() is its value>")
    assert notebook.run("h").result == shown
    assert notebook.run("%%sky_remote\nkept").result == "[0-1] 5"


def test_what_cannot_be_done_beside_it_leaves_its_picture_alone(notebook, slow):
    notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    for verb in ("vars", "push SLOW", "pull i", "restart"):
        refused = notebook.run(f"SLOW = 1\n%sky {verb}")
        assert refused.error[0] == "PoolError"
        assert "in the background" in refused.error[1]
        assert not refused.displays
    slow.may_end()
    ran = notebook.run("h.wait()")
    assert ran.result == "True"
    (picture,) = [data["text/plain"] for data in ran.others if "finished" in data["text/plain"]]
    assert said(picture) == LINES


def test_it_is_shown_and_its_names_are_bound_while_no_cell_runs_and_its_handle_does_not_travel(
    notebook, slow
):
    # It may not end before the cell has: what is shown then is the cell's.
    notebook.run(f"%%sky_remote nodes=2 detach out=h pull=w\nw = 3\n{slow}")
    slow.may_end()
    assert "finished" in notebook.updates(60, "finished")[-1]
    assert notebook.run("w.head").result == "3"
    assert notebook.run("h").result.startswith("<run default-")
    ran = notebook.run("%%sky_remote\nprint(h)")
    assert ran.error[0] == "PayloadError"
    assert "send h.result() instead" in ran.error[1]


def test_a_name_that_ranks_bind_while_the_notebook_has_a_handle_of_it_is_theirs(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=both\nboth = 7")
    assert notebook.run("both.wait()").result == "True"
    assert notebook.run("%%sky_remote\nboth").result == "[0-1] 7"


LATE = """
import time
from skyward_nb.notebook import session

class Late(session.RunHandle):
    def __init__(self, *given):
        time.sleep(0.5)
        super().__init__(*given)

made, session.RunHandle = session.RunHandle, Late
"""


def test_it_is_theirs_too_where_the_run_has_ended_before_the_notebook_has_the_handle(notebook):
    notebook.run(LATE)
    notebook.run("%%sky_remote nodes=2 detach out=quick\nquick = 8")
    notebook.run("session.RunHandle = made")
    assert notebook.run("quick.wait()").result == "True"
    assert notebook.run("%%sky_remote\nquick").result == "[0-1] 8"


@pytest.mark.extensive
def test_it_is_theirs_too_where_another_notebook_has_attached_the_run(notebook, slow):
    notebook.run(f"%%sky_remote nodes=2 detach out=left\n{slow}\nleft = 9")
    until_it_runs()
    notebook.restart(by_kill=True)
    slow.may_end()
    notebook.run("%sky attach")
    assert notebook.run("left.wait()").result == "True"
    assert notebook.run("%%sky_remote\nleft").result == "[0-1] 9"


def test_one_that_fails_and_one_that_is_cancelled(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h\nraise ValueError('no')")
    ran = notebook.run("h.wait()\nh.result()")
    assert ran.error[0] == "ValueError"
    assert "skyward_nb" not in ran.traceback
    assert notebook.run("h.status").result == "'failed'"
    notebook.run("%%sky_remote detach out=h\nimport time; time.sleep(60)")
    assert notebook.run("h.wait(0.2)").result == "False"
    late = notebook.run("assert not h.wait('0.1s')\nh.result('0.1s')")
    assert late.error[0] == "RunGoesOn"
    ran = notebook.run("h.cancel()\nh.wait(60), h.status")
    assert ran.result == "(True, 'interrupted')"
    assert notebook.run("%%sky_remote\n1").status == "ok"


def test_an_interrupt_ends_the_waiting_and_not_the_run(notebook, slow, tmp_path):
    notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    waits = tmp_path / "waits"
    ran = notebook.pressed(f"open({str(waits)!r}, 'w').close()\nh.wait()", waits.exists)
    assert ran.error[0] == "KeyboardInterrupt"
    assert notebook.run("h.status").result == "'running'"
    slow.may_end()
    assert notebook.run("h.result().head").result == "'the end'"


@pytest.mark.extensive
def test_a_flood_in_the_background_does_not_keep_cells_waiting(notebook):
    notebook.run("%%sky_remote nodes=1 detach out=h\nwhile True: print('x' * 99)")
    notebook.run("import time; time.sleep(1)", timeout=30)
    for _ in range(3):
        assert notebook.run("1", timeout=30).status == "ok"
        assert notebook.run("h.status", timeout=30).result == "'running'"
    notebook.run("h.cancel()")
    assert notebook.run("h.wait(60), h.status", timeout=90).result == "(True, 'interrupted')"


def test_a_pool_that_is_taken_down_ends_what_runs_in_the_background(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h\nimport time; time.sleep(60)")
    down = notebook.run("%sky down")
    assert "was closed while this ran on it" in down.others[-1]["text/plain"]
    ran = notebook.run("h.result()")
    assert ran.error[0] == "PoolError"


@pytest.mark.extensive
def test_where_nothing_is_heard_between_cells_its_end_is_saved_all_the_same(no_leaks):
    codes = [
        "%load_ext skyward_nb",
        "%%sky_remote nodes=2 detach out=h\nimport time; time.sleep(0.2)\n1 / 0",
        "import time; time.sleep(1.5)",
        "h.wait()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in codes])
    nbclient.NotebookClient(notebook, timeout=60).execute()
    shown = [
        each.data["text/plain"]
        for each in notebook.cells[1].outputs
        if each.output_type == "display_data"
    ]
    assert "ZeroDivisionError" in shown[0]


def test_a_run_in_the_background_outlives_its_kernel(notebook, slow):
    notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    notebook.restart(by_kill=True)
    slow.may_end()
    ran = notebook.run("h = %sky attach\nh.wait(), h.result().head")
    assert ran.result == "(True, 'the end')"
    ended = [data["text/plain"] for data in (*ran.others, *ran.displays)]
    assert said(ended[-1]) == LINES


SHOWN = """
magics = get_ipython().magics_manager.registry["SkyMagics"]
display = magics.session.pools.displays(type("P", (), {"spec": type("S", (), {"name": "default"})}))
display._displays[-1].view.state
"""


KILL = """
import os, signal
from skyward_nb.notebook.background import Background
from skyward_nb.pool import registry
(entry,) = registry.entries()
os.kill(registry.condition(entry).pid, signal.SIGKILL)
"""


def kill_agent():
    (entry,) = registry.entries()
    os.kill(until(lambda: registry.condition(entry)).pid, signal.SIGKILL)


@pytest.mark.extensive
def test_a_run_whose_pool_dies_is_shown_as_failed_in_the_background_and_attached(notebook, slow):
    notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    ran = notebook.run(f"{KILL}h.wait(20)\nh.result()")
    assert ran.error[0] == "PoolError"
    assert any("is gone" in data["text/plain"] for data in ran.others)
    assert notebook.run("h.status").result == "'failed'"
    assert notebook.run(SHOWN).result == "'failed'"
    notebook.begin("%%sky_remote nodes=2\nprint('here')\nimport time; time.sleep(60)")
    until_it_runs()
    notebook.restart(by_kill=True)
    killed = []
    attach = notebook.run(
        "%sky attach",
        on_update=lambda text: "here" in text and not killed and killed.append(kill_agent()),
    )
    assert attach.error[0] == "PoolError"
    assert notebook.run(SHOWN).result == "'failed'"


def test_a_run_in_the_background_that_ended_before_its_pool_was_taken_down_keeps_its_value(
    notebook,
):
    notebook.run("%%sky_remote nodes=2 detach out=h\n5")
    ran = notebook.run(
        "import threading, time\n"
        "while any(each.name == 'skyward-run' for each in threading.enumerate()): time.sleep(0.02)\n"
        "%sky down\nh.status, h.result().head"
    )
    assert ran.result == "('finished', 5)"


def test_its_value_is_there_once_it_is_over():
    """Another thread may ask just as a large one comes."""
    seen = []

    class Ended:
        pool = None
        display = SimpleNamespace(view=SimpleNamespace(run="default/1"))

        def wait(self, hear):
            return "outcome"

        def watch(self, event):
            """Nothing to show."""

    def conclude(outcome):
        seen.append(work.is_over)
        return outcome

    work = Background(Ended(), conclude, seen.append)
    work.start()
    assert work.wait(60)
    assert seen == [False]
    assert (work.value, work.error) == ("outcome", None)


@pytest.mark.extensive
def test_what_was_seen_in_the_background_is_not_told_again(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h\n5")
    assert notebook.run("h.result().head").result == "5"
    until_it_is_seen()
    assert "idle" in notebook.restart(by_kill=True)
    notebook.run("%sky down pool=default")
