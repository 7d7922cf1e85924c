"""What a person is told when a run goes wrong, through real kernels."""

from __future__ import annotations

import importlib.util
import re
import textwrap
import threading
import time

import pytest
from kernels import kernel, ready


def in_torch(test):
    """For tests of process groups."""
    there = importlib.util.find_spec("torch")
    return pytest.mark.torch(pytest.mark.skipif(not there, reason="PyTorch is not installed")(test))


@pytest.fixture(scope="module")
def notebook():
    pool = "%%sky_remote nodes=3 grace=1s\nimport time, os\nrank = int(os.environ['RANK'])"
    with ready(pool, "import sys") as running:
        yield running


@pytest.fixture(scope="module")
def grouped():
    pool = (
        "%%sky_remote nodes=4 framework=torch\n"
        "import time, os, torch, torch.distributed as dist\n"
        "rank, x = dist.get_rank(), torch.ones(3)"
    )
    with ready(pool, "import sys") as running:
        yield running


def remote(notebook, body, line="", **more):
    return notebook.run(f"%%sky_remote {line}\n{textwrap.dedent(body).strip()}", **more)


def number(notebook):
    """That of the cell before."""
    return notebook.run("len(In) - 2").result


def told(notebook, what):
    """An expression of `e`, the error that the cell before raised."""
    ran = notebook.run(f"e = sys.last_value\n{what}")
    assert ran.status == "ok", ran
    return ran.result


# ── failures ────────────────────────────────────────────────────────────────────────────


def test_failures_are_grouped_on_the_error_with_the_values_of_the_others(notebook):
    ran = remote(
        notebook,
        """
        if rank == 1:
            time.sleep(0.1)
            raise KeyError("late")
        if rank == 0:
            raise ValueError("first")
        rank * 10
        """,
    )
    cell = number(notebook)
    assert ran.error[0] == "ValueError"
    assert told(notebook, "[(f.ranks, f.type_name, f.message, f.line) for f in e.failures]") == (
        "[((0,), 'ValueError', 'first', 6), ((1,), 'KeyError', \"'late'\", 4)]"
    )
    assert told(notebook, "e.failures[0].where, e.failures[0].text") == (
        f"('Cell In[{cell}]', 'raise ValueError(\"first\")')"
    )
    assert told(notebook, "e.results") == "[2] 20"
    assert f"KeyError: 'late' on rank 1 of 3, Cell In[{cell}], line 4" in ran.traceback


def test_who_was_stopped_is_told(notebook):
    ran = remote(notebook, "if rank == 1: raise ValueError\ntime.sleep(60) if rank == 2 else None")
    assert "rank 2 was stopped" in ran.traceback
    assert "rank 2 was stopped" in ran.picture


def test_who_is_stuck_in_native_code_is_killed_and_what_is_lost_is_told(notebook):
    notebook.run("sent = 5")
    body = """
        mine = sent
        if rank == 0: raise ValueError("first")
        if rank == 1: sum(range(10**15))  # hears no signal, and holds the interpreter
        rank
        """
    ran = remote(notebook, body)
    cell = number(notebook)
    assert ran.error[:2] == ("ValueError", "first")
    stuck = f"rank 1 did not stop and had to be killed; it was in Cell In[{cell}], line 4: "
    for words in (ran.traceback, ran.picture):
        assert stuck in words
        assert "all ranks were started anew (generation " in words
        assert re.search("lost with the ranks: .*mine.*rank", words)
    assert told(notebook, "e.results, e.failures[0].ranks") == "([2] 2, (0,))"
    assert remote(notebook, "sent").result == "[0-2] 5", "it is sent again"
    remote(notebook, "import time, os\nrank = int(os.environ['RANK'])")


def test_with_on_error_wait_the_failure_comes_after_all_have_finished(notebook):
    body = "if rank == 1: raise ValueError('one')\ntime.sleep(0.5)\nrank * 10"
    ran = remote(notebook, body, "on_error=wait")
    assert ran.error[:2] == ("ValueError", "one")
    assert "stopped" not in ran.traceback
    assert told(notebook, "e.results") == "[0] 0\n[2] 20"


def test_a_group_shows_no_frame_of_ours(notebook):
    ran = remote(
        notebook,
        """
        import asyncio
        async def fails():
            await asyncio.sleep(0)
            raise ValueError("in a task")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails())
        """,
    )
    cell = number(notebook)
    assert ran.error[0] == "ExceptionGroup"
    assert f'File "Cell In[{cell}]", line 5, in fails' in ran.traceback
    assert "ValueError: in a task" in ran.traceback
    assert f"raised on ranks 0-2 of 3, Cell In[{cell}], line 6" in ran.traceback
    assert "skyward_nb" not in ran.traceback
    assert not ran.stderr
    again = notebook.run("raise sys.last_value")
    assert "skyward_nb" not in again.traceback + again.stderr
    assert "ValueError: in a task" in again.traceback
    assert notebook.run("raise ExceptionGroup('own', [ValueError()])").stderr, "as IPython does it"


def test_an_exception_behind_an_await_keeps_its_place(notebook):
    ran = remote(notebook, "import asyncio\nawait asyncio.sleep(0)\nawait asyncio.wait_for(1, 2)")
    cell = number(notebook)
    assert f"Cell In[{cell}], line 4" in ran.traceback
    assert f"Cell In[{cell}], line 4: await asyncio.wait_for(1, 2)" in ran.picture


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError('x' * 50_000_000)",
        "raise ExceptionGroup('x' * 50_000_000, [ValueError('y' * 50_000_000)])",
        "e = ValueError('noted')\ne.add_note('x' * 50_000_000)\nraise e",
        "class Long(Exception):\n    def __str__(self): return 'x' * 50_000_000\nraise Long",
        "raise ValueError([list(range(1_000_000))])",
        "x = '" + "x" * 1_000_000 + "'; raise ValueError(x)",
        "raise ValueError(str(rank) * 50_000_000)",
        "class Bad:\n    def __reduce__(self): raise ValueError('x' * 50_000_000)\nBad()",
    ],
    ids=["text", "group", "note", "made", "list", "line", "each its own", "value"],
)
def test_a_huge_exception_makes_no_huge_notebook(notebook, body):
    ran = remote(notebook, body)
    assert ran.status == "error"
    assert "left out" in ran.traceback
    assert len(ran.picture) < 20_000
    assert sum(map(len, ran.error)) + ran.bytes < 200_000


# ── timeouts ────────────────────────────────────────────────────────────────────────────


def test_after_a_timeout_it_is_said_where_ranks_were(notebook):
    ran = remote(
        notebook,
        """
        def step(n):
            while True: n += 1
        if rank == 0:
            time.sleep(60)
        if rank == 1:
            step(0)
        rank
        """,
        "timeout=1s",
    )
    cell = number(notebook)
    assert ran.error[0] == "RunTimeout"
    assert ran.error[1] == (
        f"after 1 s rank 0 was in Cell In[{cell}], line 5: time.sleep(60), rank 1 was in Cell "
        f"In[{cell}], line 3: while True: n += 1; rank 2 had finished"
    )
    assert f"rank 1:\n  Cell In[{cell}], line 3, in step: while True: n += 1" in ran.traceback
    assert "skyward_nb" not in ran.traceback
    assert "Stopped after 1 s" in ran.picture
    assert ran.error[1] in ran.picture
    assert told(notebook, "e.timeout, e.running, e.results[2]") == "(1.0, (0, 1), 2)"
    assert told(notebook, "e.stacks[1][0].frames[0].function") == "'step'"
    assert notebook.run("%%sky_remote\nrank").result == "[0] 0\n[1] 1\n[2] 2", "names are kept"


def test_what_a_rank_saves_when_its_time_is_over_is_not_lost(notebook):
    body = "try: time.sleep(60)\nexcept KeyboardInterrupt: saved = rank + 5\nsaved"
    ran = remote(notebook, body, "timeout=1s")
    assert ran.error[0] == "RunTimeout"
    assert "ranks 0-2 came to the cell's end when stopped" in ran.traceback
    assert told(notebook, "e.results") == "[0] 5\n[1] 6\n[2] 7"


def test_a_timeout_leaves_what_a_rank_raised_before_it_the_error(notebook):
    body = "if rank == 1: raise ValueError('why')\ntime.sleep(60)"
    ran = remote(notebook, body, "timeout=1s on_error=wait")
    assert ran.error[:2] == ("ValueError", "why")
    assert "after 1 s ranks 0,2 were in Cell In[" in ran.traceback
    assert "rank 1 had failed" in ran.traceback


def test_what_does_not_answer_is_said_and_where_the_killed_were(notebook):
    ran = remote(
        notebook,
        """
        import signal, ctypes
        if rank == 0:
            ctypes.PyDLL(None).pause()  # no other thread of Python goes on meanwhile
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            try: time.sleep(60)
            except BaseException: pass
        """,
        "timeout=1s",
    )
    cell = number(notebook)
    assert ran.error[0] == "RunTimeout"
    stuck = "rank 1 did not answer (its process is stopped, or stuck in the system)"
    assert f"rank 0 was in Cell In[{cell}], line 4: ctypes.PyDLL(None).pause()" in ran.error[1]
    assert stuck in ran.error[1]
    assert "rank 1: no answer" in ran.traceback
    assert (
        f"rank 2 did not stop and had to be killed; it was in Cell In[{cell}], line 8: "
        "try: time.sleep(60)"
    ) in ran.traceback
    assert "rank 1 did not stop and had to be killed; it did not answer" in ran.traceback
    remote(notebook, "import time, os\nrank = int(os.environ['RANK'])")


def test_an_interrupt_says_where_the_killed_were(notebook):
    message = notebook.begin(
        "%%sky_remote\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
    )
    time.sleep(0.5)
    notebook.interrupt()
    ran = notebook.finish(message, timeout=30)
    assert ran.error[0] == "KeyboardInterrupt"
    assert "ranks 0-2 did not stop and had to be killed; they were in Cell In[" in ran.traceback
    assert "line 3: try: time.sleep(60)" in ran.traceback
    remote(notebook, "import time, os\nrank = int(os.environ['RANK'])")


# ── %sky check hang ─────────────────────────────────────────────────────────────────────


def test_check_hang_without_a_run_says_so(notebook):
    assert notebook.run("%sky check hang").stdout == "nothing runs: pool default is idle\n"
    ran = notebook.run("%sky check hang pool=other")
    assert ran.error[0] == "PoolError"
    assert "there is no pool 'other'" in ran.traceback


@pytest.mark.parametrize("line", ["hung", "hang nodes=3", "hang run=3"])
def test_check_names_what_it_does_not_know(notebook, line):
    ran = notebook.run(f"%sky check {line}")
    assert ran.status == "error"
    assert "UsageError: " in ran.stderr


def test_another_notebook_can_check_a_run_and_it_goes_on(notebook):
    message = notebook.begin("%%sky_remote\nif rank == 1:\n    time.sleep(4)\nrank")
    with kernel() as other:
        time.sleep(0.5)
        ran = other.run("%sky check hang")
        assert ran.status == "ok", ran
        cell = ran.stdout.partition("Cell In[")[2].partition("]")[0]
        assert "pool default of " in ran.stdout
        assert f"Cell In[{cell}] has run for " in ran.stdout
        assert f"rank 1 is in Cell In[{cell}], line 3: time.sleep(4)" in ran.stdout
        assert "ranks 0,2 have ended" in ran.stdout
        assert f"rank 1:\n  Cell In[{cell}], line 3: time.sleep(4)\n" in ran.stdout
        assert other.run("%sky check hang pool=default").status == "ok"
    assert notebook.finish(message).result == "[0] 0\n[1] 1\n[2] 2"


def test_a_notebook_checks_its_own_run_in_the_background(notebook):
    begun = remote(notebook, "time.sleep(3)", "detach")
    assert begun.status == "ok", begun
    cell = number(notebook)
    time.sleep(0.3)
    said = notebook.run("%sky check hang").stdout
    assert f"pool default: Cell In[{cell}] has run for " in said
    assert f"ranks 0-2 are in Cell In[{cell}], line 2: time.sleep(3)" in said
    until = time.monotonic() + 20
    while "nothing runs" not in notebook.run("%sky check hang").stdout:
        assert time.monotonic() < until
        time.sleep(0.2)


# ── collectives ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "if rank == 3:\n    time.sleep(60)\ndist.all_reduce(x)",
            "ranks 0-2 waited in all_reduce for rank 3, which was in {cell}, line 3: "
            "time.sleep(60)",
        ),
        (
            "if rank != 3: dist.barrier()",
            "ranks 0-2 waited in barrier for rank 3, which had finished",
        ),
        (
            "dist.barrier() if rank else dist.all_reduce(x)",
            "rank 0 waited in all_reduce, ranks 1-3 waited in barrier: they do not call the same "
            "collectives in the same order",
        ),
    ],
    ids=["late", "missing", "other"],
)
@in_torch
def test_after_a_timeout_it_is_said_who_waited_for_whom(grouped, body, says):
    ran = grouped.run(f"%%sky_remote timeout=1s\n{body}")
    cell = f"Cell In[{number(grouped)}]"
    assert ran.error[:2] == ("RunTimeout", f"after 1 s {says.format(cell=cell)}")
    assert "communication was cut to stop rank" in ran.traceback
    assert "must be made again" in ran.traceback
    assert grouped.run("%%sky_remote\ndist.all_reduce(x)").status == "ok"


@in_torch
def test_ranks_that_do_not_run_the_cell_are_told(grouped):
    ran = grouped.run("%%sky_remote timeout=1s ranks=0-1\ndist.all_reduce(x)")
    assert ran.error[1] == (
        "after 1 s ranks 0-1 waited in all_reduce, and ranks 2-3 do not run this cell"
    )


@in_torch
def test_a_failure_tells_who_waited_for_it(grouped):
    ran = grouped.run(
        "%%sky_remote\nif rank == 2: raise ValueError('bad batch')\n"
        "if rank == 3: time.sleep(60)\ndist.all_reduce(x)"
    )
    assert ran.error[:2] == ("ValueError", "bad batch")
    assert "communication was cut to stop ranks 0-1, which waited in all_reduce" in ran.traceback
    assert "tensors that all_reduce was filling may be half done" in ran.traceback
    assert "rank 3 was stopped" in ran.traceback


@in_torch
def test_an_interrupt_in_a_collective_keeps_names_and_says_what_is_not(grouped):
    message = grouped.begin("%%sky_remote\nif rank != 3: dist.barrier()\ntime.sleep(60)")
    press = threading.Timer(1, grouped.interrupt)
    press.start()
    ran = grouped.finish(message, timeout=30)
    press.join()
    assert ran.error[0] == "KeyboardInterrupt"
    assert "Interrupted on ranks 0-3; namespaces kept on all ranks" in ran.traceback
    assert "communication was cut to stop ranks 0-2, which waited in barrier" in ran.traceback
    assert "the process group was formed again (generation " in ran.traceback
    assert grouped.run("%%sky_remote\ndist.all_reduce(x)").status == "ok"


@in_torch
def test_a_death_tells_who_waited_for_the_dead(grouped):
    ran = grouped.run("%%sky_remote\nif rank == 2: os._exit(3)\ndist.all_reduce(x)")
    assert ran.error[0] == "RankDied"
    assert "rank 2 exited with code 3" in ran.traceback
    assert "ranks 0-1,3 waited in all_reduce for rank 2" in ran.traceback
