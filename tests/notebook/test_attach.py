"""Kernels that restart or die, and runs in the background: the pool goes on, nothing is lost."""

from __future__ import annotations

import os
import re
import signal
import time

import psutil
import pytest
from kernels import kernel, ready, wiped
from later import Later
from leaks import gone_within, traces
from waiting import until

from skyward_nb.pool import registry

nbclient = Later("nbclient")
nbformat = Later("nbformat")
SLOW = """
import os, time
kept = 5
for i in range(60):
    print('line', i, flush=True)
    time.sleep(0.02)
    while i == 40 and not os.path.exists({told!r}):
        time.sleep(0.02)
'the end'
"""
LINES = [f"line {i}" for i in range(60)]


class Slow:
    """A cell that takes a while, and does not end before it is let."""

    def __init__(self, told):
        self._told = told

    def __str__(self):
        return SLOW.format(told=str(self._told))

    def may_end(self):
        self._told.touch()


@pytest.fixture
def slow(tmp_path):
    return Slow(tmp_path / "told")


def running():
    """How many pools run something."""
    found = [registry.condition(entry) for entry in registry.entries()]
    return sum(each is not None and bool(each.running) for each in found)


def until_it_runs(pools=1):
    """Wait until runs go on in so many pools, and are a moment old."""
    until(lambda: running() >= pools)
    time.sleep(0.3)


def until_it_is_seen():
    """Wait until the pool knows that its last run was shown: it is told a moment after the cell."""
    (entry,) = registry.entries()
    until(lambda: registry.condition(entry).unseen is None)


@pytest.fixture(scope="module")
def train():
    with ready(JPY_SESSION_NAME="work/train.ipynb") as running:
        yield running


@pytest.fixture(scope="module")
def second():
    with ready(JPY_SESSION_NAME="other.ipynb") as running:
        yield running


@pytest.fixture
def notebook(train):
    with wiped(train) as running:
        yield running


@pytest.fixture
def other(second, notebook):
    """Another notebook, which ends before the first."""
    with wiped(second) as running:
        yield running


def said(picture):
    """The lines that both ranks printed, as the picture has them."""
    return [line.partition("] ")[2] for line in picture.splitlines() if "] line" in line]


@pytest.mark.parametrize("by_kill", [True, False], ids=["killed", "restarted"])
def test_a_kernel_that_comes_again_shows_the_whole_run_and_binds_its_value(notebook, slow, by_kill):
    notebook.begin(f"%%sky_remote nodes=2 out=got\n{slow}")
    until_it_runs()
    words = notebook.restart(by_kill=by_kill)
    assert "of this notebook is alive from an earlier kernel" in words
    assert "has been running for" in words
    assert "%sky attach shows it" in words
    slow.may_end()
    ran = notebook.run("%sky attach")
    assert ran.status == "ok", ran.traceback
    assert said(ran.picture) == LINES
    assert ran.result == "[0-1] 'the end'"
    assert notebook.run("got.head").result == "'the end'"
    assert notebook.run("%%sky_remote\nkept").result == "[0-1] 5"
    logs = notebook.run("%sky logs rank=0").stdout
    assert [line for line in logs.splitlines() if "line" in line and "run" not in line] != []
    assert logs.count("line 59") == 1


def test_a_run_that_ended_while_nobody_looked(notebook, slow):
    notebook.run("%sky up nodes=2")
    notebook.begin(f"%%sky_remote\n{slow}\nprint('said')\n1/0")
    until_it_runs()
    notebook.restart(by_kill=True)
    slow.may_end()
    until(lambda: not running())
    assert "has ended, and nobody has seen how" in notebook.run("%sky status").stdout
    ran = notebook.run("%sky attach")
    assert ran.error[0] == "ZeroDivisionError"
    assert "said" in ran.picture
    assert "skyward_nb" not in ran.traceback
    words = notebook.restart()
    assert "idle" in words, "what was seen is not told again"
    ran = notebook.run("%sky attach")
    assert "Attached to pool default" in ran.picture
    assert "time" not in ran.traceback


def test_a_run_whose_large_value_was_fetched_is_not_told_again(notebook):
    ran = notebook.run("%%sky_remote nodes=2 out=got\nb'x' * 20_000_000")
    assert ran.status == "ok"
    until_it_is_seen()
    words = notebook.restart(by_kill=True)
    assert "idle" in words
    assert notebook.run("%sky attach").status == "ok"


def test_another_notebook_may_take_it_when_the_first_is_gone(notebook, other):
    notebook.run("%%sky_remote nodes=2\nkept = 7")
    until_it_is_seen()
    refused = other.run("%sky attach")
    assert refused.error[0] == "PoolError"
    assert "in use by the kernel of work/train.ipynb" in refused.error[1]
    assert "in use by the kernel" in other.run("%sky status").stdout
    notebook.restart(by_kill=True)
    ran = other.run("%sky attach")
    assert "names on ranks: kept" in ran.picture
    assert other.run("%%sky_remote\nkept").result == "[0-1] 7"
    other.run("kept = 8")
    assert other.run("%%sky_remote\nkept").result == "[0-1] 8"


def test_another_notebook_shows_the_whole_run_of_one_that_was_killed(notebook, other, slow):
    notebook.begin(f"%%sky_remote nodes=2 out=got\n{slow}")
    until_it_runs()
    refused = other.run("%sky attach")
    assert "in use by the kernel of work/train.ipynb" in refused.error[1]
    notebook.restart(by_kill=True)
    slow.may_end()
    ran = other.run("%sky attach")
    assert said(ran.picture) == LINES
    assert ran.result == "[0-1] 'the end'"
    assert other.run("got.head").result == "'the end'"
    assert other.run("%%sky_remote\nkept").result == "[0-1] 5"
    assert other.run("%sky down").status == "ok"


def test_a_cell_of_a_restarted_notebook_goes_on_with_its_idle_pool(notebook):
    notebook.run("%%sky_remote nodes=2\nkept = 7\nimport os\npid = os.getpid()")
    before = notebook.run("%%sky_remote\npid").result
    assert "%sky attach goes on with it" in notebook.restart()
    ran = notebook.run("%sky up nodes=2")
    assert "went on with the pool of an earlier kernel" in ran.picture
    notebook.restart()
    ran = notebook.run("%%sky_remote nodes=2\nkept, pid")
    assert ran.status == "ok"
    assert "went on with the pool of an earlier kernel" in ran.picture
    assert notebook.run("%%sky_remote\npid").result == before


def test_a_cell_does_not_pass_over_a_run_that_goes_on(notebook, slow):
    notebook.begin(f"%%sky_remote nodes=2\n{slow}")
    until_it_runs()
    notebook.restart()
    ran = notebook.run("%%sky_remote nodes=2\n1")
    assert ran.error[0] == "PoolError"
    assert "%sky attach" in ran.error[1]
    down = notebook.run("%sky down pool=default")
    assert "is down" in down.stdout
    assert notebook.run("%%sky_remote nodes=2\n1").status == "ok"


def test_objects_that_an_earlier_kernel_sent_do_not_mix_with_new_ones(notebook):
    code = "class A: pass\nx = A(); x.n = {0}\ny = [x, {0}]"
    notebook.run(code.format(1))
    notebook.run("%%sky_remote nodes=2\nz = (x, y)")
    notebook.restart()
    notebook.run(code.format(2))
    ran = notebook.run("%%sky_remote\ny[0] is x, x.n, z[0].n")
    assert ran.result == "[0-1] (True, 2, 1)"


def test_a_pool_goes_with_its_notebook_unless_it_is_kept():
    before = traces()
    with kernel() as running:
        running.run("%%sky_remote nodes=2\n1")
    assert not gone_within(5, before)
    with kernel() as running:
        running.run("%%sky_remote nodes=2 keep idle=60s\n1")
    assert traces() - before
    with kernel() as running:
        assert "idle" in running.run("%sky status").stdout
        assert "is down" in running.run("%sky down pool=default").stdout
    assert not gone_within(5, before)


def test_sweep_ends_what_is_left_when_all_who_would_are_killed(no_leaks):
    with kernel() as first, kernel() as other:
        first.run(
            "%%sky_remote nodes=2\nimport subprocess\n"
            "child = subprocess.Popen(['sleep', '600'], start_new_session=True)"
        )
        (entry,) = registry.entries()
        agent = psutil.Process(registry.condition(entry).pid)
        (forge,) = agent.children()
        ranks = forge.children()
        sleeping = [child for rank in ranks for child in rank.children()]
        first.manager.provisioner.process.kill()
        # Neither of two has time to see that the other one is gone.
        for each in (agent, forge):
            each.suspend()
        for each in (agent, forge):
            each.kill()
        assert not psutil.wait_procs([agent, forge, *ranks], 30)[1]
        assert len(sleeping) == 2
        assert all(each.is_running() for each in sleeping), "there is something to sweep"
        assert "no pool is up" in other.run("%sky status").stdout
        swept = other.run("%sky sweep").stdout
        assert re.fullmatch(
            r"1 folder of pools that are gone(, .* of values)?, 2 processes\n", swept
        )
        assert not psutil.wait_procs(sleeping, 10)[1]
        assert other.run("%sky sweep").stdout == "nothing is left over\n"


# ── in the background ───────────────────────────────────────────────────────────────────


def test_a_run_in_the_background(notebook, slow):
    began = notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    assert began.status == "ok"
    assert "running" in began.result
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


def test_it_is_shown_and_its_names_are_bound_while_no_cell_runs(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h pull=w\nw = 3\nprint('shown')")
    assert "finished" in notebook.updates(60, "finished")[-1]
    assert notebook.run("w.head").result == "3"
    assert notebook.run("h").result.startswith("<run default-")


def test_one_that_fails_and_one_that_is_cancelled(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h\nraise ValueError('no')")
    ran = notebook.run("h.wait()\nh.result()")
    assert ran.error[0] == "ValueError"
    assert "skyward_nb" not in ran.traceback
    assert notebook.run("h.status").result == "'failed'"
    notebook.run("%%sky_remote detach out=h\nimport time; time.sleep(60)")
    assert notebook.run("h.wait(0.2)").result == "False"
    late = notebook.run("h.result(0.1)")
    assert late.error[0] == "RunGoesOn"
    ran = notebook.run("h.cancel()\nh.wait(10), h.status")
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


def test_a_flood_in_the_background_does_not_keep_cells_waiting(notebook):
    notebook.run("%%sky_remote nodes=1 detach out=h\nwhile True: print('x' * 99)")
    notebook.run("import time; time.sleep(2)", timeout=30)
    began = time.monotonic()
    for _ in range(3):
        assert notebook.run("1", timeout=30).status == "ok"
        assert notebook.run("h.status", timeout=30).result == "'running'"
    assert time.monotonic() - began < 20
    notebook.run("h.cancel()")
    assert notebook.run("h.wait(60), h.status", timeout=90).result == "(True, 'interrupted')"


def test_a_pool_that_is_taken_down_ends_what_runs_in_the_background(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h\nimport time; time.sleep(60)")
    down = notebook.run("%sky down")
    assert "was closed while this ran on it" in down.others[-1]["text/plain"]
    ran = notebook.run("h.result()")
    assert ran.error[0] == "PoolError"


def test_a_pool_that_dies_says_so_where_it_ran_in_the_background(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h\nimport time; time.sleep(60)")
    notebook.run(
        "import os, signal\nfrom skyward_nb.pool import registry\n"
        "(entry,) = registry.entries()\n"
        "os.kill(registry.condition(entry).pid, signal.SIGKILL)"
    )
    ran = notebook.run("h.wait(20)\nh.result()")
    assert ran.error[0] == "PoolError"
    assert any("is gone" in data["text/plain"] for data in ran.others)
    assert notebook.run("%%sky_remote\n1").status == "ok"


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


def test_a_handle_does_not_travel(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h\n1")
    assert notebook.run("h.wait()").result == "True"
    ran = notebook.run("%%sky_remote\nprint(h)")
    assert ran.error[0] == "PayloadError"
    assert "take its h.result()" in ran.error[1]


def test_a_run_in_the_background_outlives_its_kernel(notebook, slow):
    notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    notebook.restart(by_kill=True)
    slow.may_end()
    ran = notebook.run("h = %sky attach\nh.wait(), h.result().head")
    assert ran.result == "(True, 'the end')"
    ended = [data["text/plain"] for data in (*ran.others, *ran.displays)]
    assert said(ended[-1]) == LINES


def test_attaching_where_there_is_nothing(notebook):
    ran = notebook.run("%sky attach pool=nosuch")
    assert ran.error[0] == "PoolError"
    assert "no pool 'nosuch' is alive" in ran.error[1]


def test_down_ends_this_notebooks_own_pool_and_not_anothers_of_the_same_name(notebook, other):
    notebook.run("%%sky_remote nodes=1\n1")
    other.begin("%%sky_remote nodes=1\nimport time; time.sleep(60)")
    until_it_runs()
    notebook.restart(by_kill=True)
    other.restart(by_kill=True)
    assert "is down" in notebook.run("%sky down pool=default").stdout
    left = other.run("%sky status").stdout
    assert "of other.ipynb" in left
    assert "has been running for" in left
    other.run("%sky down pool=default")


SHOWN = """
magics = get_ipython().magics_manager.registry["SkyMagics"]
display = magics.session.pools.pictures(type("P", (), {"spec": type("S", (), {"name": "default"})}))
display._displays[-1].view.state
"""


def kill_agent():
    (entry,) = registry.entries()
    os.kill(registry.condition(entry).pid, signal.SIGKILL)


def test_a_run_whose_pool_dies_is_shown_as_failed_in_the_background_and_attached(notebook, slow):
    notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    kill_agent()
    assert notebook.run("h.wait(10), h.status").result == "(True, 'failed')"
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
        "import time\nfrom skyward_nb.pool import registry\n(entry,) = registry.entries()\n"
        "while registry.condition(entry).running:\n    time.sleep(0.02)\n"
        "time.sleep(0.5)\n%sky down\nh.status, h.result().head"
    )
    assert ran.result == "('finished', 5)"


def test_what_was_seen_in_the_background_is_not_told_again(notebook):
    notebook.run("%%sky_remote nodes=2 detach out=h\n5")
    assert notebook.run("h.result().head").result == "5"
    until_it_is_seen()
    assert "idle" in notebook.restart(by_kill=True)
    notebook.run("%sky down pool=default")
