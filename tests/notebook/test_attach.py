"""Kernels that restart or die: the pool goes on, nothing is lost."""

from __future__ import annotations

import re
import threading

import psutil
import pytest
from kernels import kernel, ready, wiped
from leaks import gone_within, traces
from providers.wheels import wheel
from slow import LINES, running, said, until_it_is_seen, until_it_runs
from tiers import few
from waiting import until

from skyward_nb.pool import registry


@pytest.fixture(scope="module")
def second():
    with ready(JPY_SESSION_NAME="other.ipynb") as running:
        yield running


@pytest.fixture
def other(second, notebook):
    """Another notebook, which ends before the first."""
    with wiped(second) as running:
        yield running


@pytest.mark.parametrize(
    "by_kill",
    few(1, [True, False]),
    ids=["killed", "restarted"],
)
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


@pytest.mark.extensive
def test_a_run_that_ended_while_nobody_looked(notebook, slow):
    notebook.run("%sky up nodes=2")
    notebook.begin(f"%%sky_remote\n{slow}\nprint('said')\n1/0")
    until_it_runs()
    notebook.restart(by_kill=True)
    slow.may_end()
    until(lambda: not running())
    assert (
        "has ended, and its end may not have been shown yet" in notebook.run("%sky status").stdout
    )
    ran = notebook.run("%sky attach")
    assert ran.error[0] == "ZeroDivisionError"
    assert "said" in ran.picture
    assert "skyward_nb" not in ran.traceback
    words = notebook.restart()
    assert "idle" in words, "what was seen is not told again"
    ran = notebook.run("%sky attach")
    assert "Attached to pool default" in ran.picture
    assert "time" not in ran.traceback


@pytest.mark.extensive
def test_a_run_whose_large_value_was_fetched_is_not_told_again(notebook):
    ran = notebook.run("%%sky_remote nodes=2 out=got\nb'x' * 20_000_000")
    assert ran.status == "ok"
    until_it_is_seen()
    words = notebook.restart(by_kill=True)
    assert "idle" in words
    assert notebook.run("%sky attach").status == "ok"


@pytest.mark.extensive
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


CUT = """
import gc, os, signal, socket
from skyward_nb.pool.link import Link
(link,) = [each for each in gc.get_objects() if isinstance(each, Link) and each.is_open]
socket.socket(fileno=os.dup(link.fileno())).shutdown(socket.SHUT_RDWR)
os.kill(os.getpid(), signal.SIGSTOP)
"""
"""Cuts a notebook off, and stops it until another one has been there."""


def test_a_notebook_is_told_that_another_one_had_ranks_begin_anew(notebook, other, tmp_path):
    wheel(tmp_path / "wheels", "sky-t-one", "1.0")
    notebook.run("%%sky_remote nodes=2\nkept = 7")
    until_it_is_seen()
    stopped = psutil.Process(notebook.pid)
    going = notebook.begin(CUT)
    until(lambda: stopped.status() == psutil.STATUS_STOPPED)
    assert other.run("%sky attach").status == "ok"
    other.run(
        f"import os\nos.environ.update(UV_OFFLINE='1', UV_FIND_LINKS={str(tmp_path / 'wheels')!r}, "
        f"SKYWARD_CACHE_DIR={str(tmp_path / 'cache')!r})"
    )
    assert "installed in" in other.run("%sky up pip=sky-t-one").picture
    other.restart()
    (agent,) = [each for each in stopped.children() if "skyward_nb.node" in each.cmdline()]
    agent.suspend()  # it answers late, as on a busy machine
    stopped.resume()
    assert notebook.finish(going).status == "ok"
    wait = "from skyward_nb.notebook import named_pools\nnamed_pools._KNOWN_WITHIN = "
    notebook.run(f"{wait}0.1")
    assert "its line is cut, and this tries to reach it" in notebook.run("%sky attach").stdout
    notebook.run(f"{wait}60.0")
    timer = threading.Timer(1.0, agent.resume)
    timer.start()
    ran = notebook.run("%sky attach")
    timer.join()
    notebook.run(f"{wait}5.0")
    assert "ranks were begun anew by the kernel of other.ipynb" in ran.picture
    assert "names from before (kept) are gone" in ran.picture
    assert notebook.run("%%sky_remote\n'kept' in globals()").result == "[0-1] False"
    assert notebook.run("%sky down").status == "ok"


@pytest.mark.extensive
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


@pytest.mark.extensive
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
    # Who restarts it interrupts it first, and may stand still before the word of the restart.
    notebook.run("from skyward_nb.notebook import pools\npools._LOOKS = 1_000")
    notebook.begin(f"%%sky_remote nodes=2\n{slow}")
    until_it_runs()
    notebook.restart()
    ran = notebook.run("%%sky_remote nodes=2\n1")
    assert ran.error[0] == "PoolError"
    assert "%sky attach" in ran.error[1]
    down = notebook.run("%sky down pool=default")
    assert "is down" in down.stdout
    assert notebook.run("%%sky_remote nodes=2\n1").status == "ok"


@pytest.mark.extensive
def test_objects_that_an_earlier_kernel_sent_do_not_mix_with_new_ones(notebook):
    code = "class A: pass\nx = A(); x.n = {0}\ny = [x, {0}]"
    notebook.run(code.format(1))
    notebook.run("%%sky_remote nodes=2\nz = (x, y)")
    notebook.restart()
    notebook.run(code.format(2))
    ran = notebook.run("%%sky_remote\ny[0] is x, x.n, z[0].n")
    assert ran.result == "[0-1] (True, 2, 1)"


@pytest.mark.extensive
def test_a_pool_goes_with_its_notebook_unless_it_is_kept():
    before = traces()
    with kernel() as running:
        running.run("%%sky_remote nodes=2\n1")
    assert not gone_within(30, before)
    with kernel() as running:
        running.run("%%sky_remote nodes=2 keep idle=60s\n1")
    assert traces() - before
    with kernel() as running:
        assert "idle" in running.run("%sky status").stdout
        assert "is down" in running.run("%sky down pool=default").stdout
    assert not gone_within(30, before)


@pytest.mark.extensive
def test_sweep_ends_what_is_left_when_all_who_would_are_killed(no_leaks, tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path))  # no engine was ever asked for a machine
    with kernel() as first, kernel() as other:
        first.run(
            "%%sky_remote nodes=2\nimport subprocess\n"
            "child = subprocess.Popen(['sleep', '600'], start_new_session=True)"
        )
        (entry,) = registry.entries()
        agent = psutil.Process(until(lambda: registry.condition(entry)).pid)
        (forge,) = agent.children()
        ranks = forge.children()
        sleeping = [child for rank in ranks for child in rank.children()]
        first.manager.provisioner.process.kill()
        # Neither of two has time to see that the other one is gone.
        for each in (agent, forge):
            each.suspend()
        for each in (agent, forge):
            each.kill()
        assert not psutil.wait_procs([agent, forge, *ranks], 60)[1]
        assert len(sleeping) == 2
        assert all(each.is_running() for each in sleeping), "there is something to sweep"
        assert "no pool is up" in other.run("%sky status").stdout
        swept = other.run("%sky sweep").stdout
        assert re.fullmatch(
            r"1 folder of pools that are gone(, .* of values)?, 2 processes\n", swept
        )
        assert not psutil.wait_procs(sleeping, 60)[1]
        assert other.run("%sky sweep").stdout == "nothing is left over\n"


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


@pytest.mark.extensive
def test_down_all_ends_what_earlier_kernels_of_this_notebook_left_and_of_no_other(notebook, other):
    other.run("%sky up pool=theirs nodes=1")
    for kill in range(2):
        notebook.run(f"%sky up pool=p{kill} nodes=1")
        notebook.restart(by_kill=True)
    plain = notebook.run("%sky down").stdout
    assert plain.startswith("no pool of this kernel is up\n")
    assert "%sky down pool=p0 ends it" in plain
    words = notebook.run("%sky down all").stdout.splitlines()
    assert sorted(words) == [
        f"pool p{n} is down: 1 rank ended, nothing left running" for n in (0, 1)
    ]
    assert [entry.spec.name for entry in registry.entries()] == ["theirs"]
