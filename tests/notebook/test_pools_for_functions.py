"""Functions on the pool of the notebook's cells, joblib's jobs among them: no second pool is made."""

from __future__ import annotations

import pytest
from later import Later
from slow import LINES, until_it_runs

joblib = Later("joblib")

FUNCTION = """
import os
import skyward_nb as sky
@sky.function
def pid(_=0):
    return os.getpid()
"""


def test_functions_run_on_the_ranks_of_cells(notebook):
    notebook.run("%%sky_remote nodes=2 out=pids\nimport os\nkept = os.getpid()\nkept")
    notebook.run(FUNCTION)
    assert notebook.run("pid() @ sky.get_pool() == list(pids)").result == "True"
    assert notebook.run("pid() >> sky.get_pool().head == pids.head").result == "True"
    assert (
        notebook.run("(pid() > sky.get_pool('default').rank(1)).result() == pids[1]").result
        == "True"
    )
    assert notebook.run("set(sky.get_pool().map(pid, range(50))) == set(pids)").result == "True"
    assert notebook.run("sky.get_pool()").result == "<sky.get_pool('default')>"
    # Cells go on with what they had, and know nothing of it.
    assert notebook.run("%%sky_remote out=again\nkept").status == "ok"
    assert notebook.run("list(again) == list(pids)").result == "True"
    assert notebook.run("%sky status").stdout.count("default") == 1


def test_it_is_started_as_a_cell_starts_it_and_again_after_its_end(notebook):
    notebook.run(FUNCTION)
    notebook.run("%sky config nodes=2")
    ran = notebook.run("first = pid() @ sky.get_pool('other'); len(first)")
    assert ran.result == "2"
    assert any("Pool other is up" in each["text/plain"] for each in ran.displays)
    assert notebook.run("%%sky_remote pool=other\nimport os\nos.getpid()").status == "ok"
    notebook.run("%sky down pool=other")
    assert notebook.run("set(pid() @ sky.get_pool('other')) & set(first)").result == "set()"
    wrong = notebook.run("pid() @ sky.get_pool('a b')")
    assert wrong.error[0] == "OptionError"


def test_values_that_nobody_takes_between_cells_cost_nothing(notebook):
    """Whoever has a generator reads: the kernel's loop was told of them again and again."""
    notebook.run("%%sky_remote nodes=2\n1")
    notebook.run(
        "import time\nimport skyward_nb as sky\n@sky.function\ndef count():\n"
        "    for number in range(1000): yield number; time.sleep(0.05)\n"
        "from skyward_nb.show.pool_displays import PoolDisplays\n"
        "looks, look = [], PoolDisplays.look\n"
        "def counted(*args): looks.append(1); return look(*args)\n"
        "PoolDisplays.look = counted\n"
        "values = count() >> sky.get_pool(); next(values)"
    )
    for _ in range(5):
        notebook.run("import asyncio; await asyncio.sleep(0.2)")
    assert int(notebook.run("len(looks)").result) < 20
    notebook.run("values.close(); PoolDisplays.look = look")
    said = notebook.run(
        "await asyncio.sleep(0.1); d = sky.get_pool()._stage.displays; d._loop is not None and d._heard == d.pool.lines.sockets()"
    )
    assert said.result == "True", "it listens again"


def test_a_pool_that_is_first_used_in_a_thread_is_shown_by_the_kernel(notebook):
    notebook.run("%%sky_remote nodes=2\n1")
    notebook.run(FUNCTION)
    ran = notebook.run(
        "import threading\nused = []\n"
        "thread = threading.Thread(target=lambda: used.append(pid() >> sky.get_pool()))\n"
        "thread.start(); thread.join(); pool = sky.get_pool()\n"
        "len(used), pool._stage._loop is get_ipython().kernel.io_loop.asyncio_loop"
    )
    assert ran.result == "(1, True)"


@pytest.mark.extensive
def test_a_thread_uses_a_pool_that_is_up_and_starts_none(notebook):
    notebook.run("%%sky_remote nodes=2 out=pids\nimport os\nos.getpid()")
    notebook.run(FUNCTION)
    notebook.run(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def in_thread(work):\n"
        "    with ThreadPoolExecutor(1) as threads:\n"
        "        return threads.submit(work).result()"
    )
    ran = notebook.run("in_thread(lambda: pid() @ sky.get_pool()) == list(pids)")
    assert ran.result == "True", ran.traceback
    assert notebook.run("in_thread(lambda: sky.get_pool().spec.nodes)").result == "2"
    for use in ("pid() @ sky.get_pool('third')", "sky.get_pool('third').ranks"):
        ran = notebook.run(f"in_thread(lambda: {use})")
        assert ran.error[0] == "PoolError"
        assert "run `%sky up pool=third` first" in ran.error[1]


@pytest.mark.extensive
def test_what_a_cell_runs_in_the_background_is_in_the_way(notebook, slow):
    notebook.run(FUNCTION)
    notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    busy = notebook.run("pid() @ sky.get_pool()")
    assert busy.error[0] == "PoolBusy"
    assert "another cell" in busy.error[1]
    slow.may_end()
    assert notebook.run("h.wait()").result == "True"
    assert notebook.run("len(pid() @ sky.get_pool())").result == "2"


def test_joblib_and_scikit_learn_run_on_it(notebook):
    pytest.importorskip("sklearn")
    notebook.run("%%sky_remote nodes=2 out=pids\nimport os\nos.getpid()")
    ran = notebook.run(
        "import joblib, os\n"
        "with joblib.parallel_backend('skyward'):\n"
        "    there = joblib.Parallel(n_jobs=-1)(joblib.delayed(os.getpid)() for _ in range(40))\n"
        "set(there) <= set(pids)"
    )
    assert ran.result == "True", ran.traceback
    ran = notebook.run(
        "from sklearn.datasets import load_iris\n"
        "from sklearn.model_selection import GridSearchCV\n"
        "from sklearn.tree import DecisionTreeClassifier\n"
        "search = GridSearchCV(DecisionTreeClassifier(random_state=0), {'max_depth': [1, 3]}, n_jobs=-1)\n"
        "with joblib.parallel_config('skyward'):\n"
        "    search.fit(*load_iris(return_X_y=True))\n"
        "search.best_params_"
    )
    assert ran.result == "{'max_depth': 3}", ran.traceback
    assert notebook.run("%sky status").stdout.count("default") == 1


def test_the_log_of_a_run_is_followed_until_it_is_over(notebook, slow, tmp_path):
    notebook.run(f"%%sky_remote nodes=2 detach out=h\n{slow}")
    until_it_runs()
    ran = notebook.run(
        f"import pathlib, threading\n"
        f"threading.Timer(1, pathlib.Path({str(tmp_path / 'told')!r}).touch).start()\n"
        "%sky logs follow rank=1"
    )
    assert ran.stdout.splitlines()[1:] == [f"[1] {line}" for line in LINES]
    assert notebook.run("h.status").result == "'finished'"
    # Of a run that is over, all that there is.
    again = notebook.run("%sky logs follow rank=0 lines=1").stdout
    assert again.splitlines()[1:] == [f"[0] {LINES[-1]}"]
    wrong = notebook.run("%sky logs follow save=x")
    assert "leave out save=" in wrong.stderr
