"""What a person is told when a run goes wrong, through real kernels."""

from __future__ import annotations

import importlib.util
import re
import textwrap

import pytest
from kernels import Marks, kernel, ready
from tiers import few
from waiting import until


def in_torch(test):
    """For tests of process groups."""
    there = importlib.util.find_spec("torch")
    return pytest.mark.torch(pytest.mark.skipif(not there, reason="PyTorch is not installed")(test))


PATIENT = "import sys\nfrom skyward_nb.pool import run_state\nrun_state._LOOK = 20"
"""Ranks have a while to say where they are: one that is busy is none that does not answer.
Nobody waits for it where all answer."""


@pytest.fixture(scope="module")
def notebook():
    pool = "%%sky_remote nodes=3 grace=20s\nimport time, os\nrank = int(os.environ['RANK'])"
    with ready(pool, PATIENT) as running:
        yield running


@pytest.fixture
def strict(notebook):
    """The notebook, with a pool `strict` that soon kills what does not stop."""
    first = "pool=strict nodes=3 grace=4s\nimport time, os\nrank = int(os.environ['RANK'])"
    ran = notebook.run(f"%%sky_remote {first}")
    assert ran.status == "ok", ran
    notebook.run("run_state._LOOK = 3")
    yield notebook
    notebook.run("run_state._LOOK = 20\n%sky down pool=strict")


@pytest.fixture(scope="module")
def grouped():
    pool = (
        "%%sky_remote nodes=4 framework=torch grace=20s\n"
        "import time, os, torch, torch.distributed as dist\n"
        "rank, x = dist.get_rank(), torch.ones(3)"
    )
    with ready(pool, PATIENT) as running:
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


def test_failures_are_grouped_on_the_error_with_the_values_of_the_others(notebook, tmp_path):
    Marks(notebook, tmp_path)
    ran = remote(
        notebook,
        """
        if rank == 0:
            meet(1, 2)
            raise ValueError("first")
        try:
            here()
            time.sleep(60)
        except KeyboardInterrupt:
            if rank == 1:
                raise KeyError("late")
        rank * 10
        """,
    )
    cell = number(notebook)
    assert ran.error[0] == "ValueError"
    assert told(notebook, "[(f.ranks, f.type_name, f.message, f.line) for f in e.failures]") == (
        "[((0,), 'ValueError', 'first', 4), ((1,), 'KeyError', \"'late'\", 10)]"
    )
    assert told(notebook, "e.failures[0].where, e.failures[0].text") == (
        f"('Cell In[{cell}]', 'raise ValueError(\"first\")')"
    )
    assert told(notebook, "e.results") == "[2] 20"
    assert f"KeyError: 'late' on rank 1 of 3, Cell In[{cell}], line 10" in ran.traceback


def test_what_led_to_an_error_is_shown_once_and_is_on_it(notebook):
    body = """
        try:
            if rank == 1: raise OSError(2, "inner")
        except OSError as error:
            raise ValueError("outer") from error
        """
    ran = remote(notebook, body)
    assert ran.traceback.count("direct cause") == 1
    assert ran.traceback.count("Errno 2") == 1
    assert told(notebook, "e.__cause__, e.__cause__.errno") == (
        "(FileNotFoundError(2, 'inner'), 2)"
    )
    body = """
        try:
            if rank == 1: raise ExceptionGroup("both", [KeyError("one")])
        except ExceptionGroup:
            raise ValueError("outer")
        """
    ran = remote(notebook, body)
    assert ran.error[:2] == ("ValueError", "outer")
    assert ran.traceback.count("During handling") == 1
    assert ran.traceback.count("KeyError: 'one'") == 1
    assert "skyward_nb" not in ran.traceback
    assert "Traceback" not in ran.streams.get("stderr", "")
    assert told(notebook, "e.__context__") == "ExceptionGroup('both', [KeyError('one')])"


def test_who_was_stopped_is_told(notebook):
    body = "if rank == 1: raise ValueError\ntime.sleep(60)"
    ran = remote(notebook, body, "ranks=1-2")
    assert "rank 2 was stopped" in ran.traceback
    assert "rank 2 was stopped" in ran.picture


def test_who_is_stuck_in_native_code_is_killed_and_what_is_lost_is_told(strict, tmp_path):
    notebook = strict
    Marks(notebook, tmp_path)
    notebook.run("sent = 5\nfrom itertools import chain")
    # Rank 1 says that it is there from within `sum`, which hears no signal and holds the interpreter.
    body = """
        mine = sent
        if rank == 0: meet(1, 2); raise ValueError("first")
        if rank == 1: sum(chain(map(lambda _: here() or 0, "1"), range(10**15)))
        try:
            here()
            time.sleep(60)
        except KeyboardInterrupt:
            pass
        rank
        """
    ran = remote(notebook, body, "pool=strict")
    cell = number(notebook)
    assert ran.error[:2] == ("ValueError", "first")
    stuck = f"rank 1 did not stop and had to be killed; it was in Cell In[{cell}], line 4: "
    for words in (ran.traceback, ran.picture):
        assert stuck in words
        assert "all ranks were started anew (generation " in words
        assert re.search("lost with the ranks: .*mine.*rank", words)
    assert told(notebook, "e.results, e.failures[0].ranks") == "([2] 2, (0,))"
    assert remote(notebook, "sent", "pool=strict").result == "[0-2] 5", "it is sent again"


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
        "on_error=wait",
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
    few(
        2,
        [
            "raise ValueError('x' * 50_000_000)",
            "raise ExceptionGroup('x' * 2_000_000, [ValueError('y' * 2_000_000)])",
            "e = ValueError('noted')\ne.add_note('x' * 2_000_000)\nraise e",
            "class Long(Exception):\n    def __str__(self): return 'x' * 2_000_000\nraise Long",
            "raise ValueError([list(range(200_000))])",
            "x = '" + "x" * 1_000_000 + "'; raise ValueError(x)",
            "raise ValueError(str(rank) * 2_000_000)",
        ],
    ),
    ids=["text", "group", "note", "made", "list", "line", "each its own"],
)
def test_a_huge_exception_makes_no_huge_notebook(notebook, body):
    ran = remote(notebook, body)
    assert ran.status == "error"
    assert "left out" in ran.traceback
    assert len(ran.picture) < 20_000
    assert sum(map(len, ran.error)) + ran.bytes < 200_000


@pytest.mark.extensive
def test_a_value_that_says_much_of_why_it_stays_makes_no_huge_notebook(notebook):
    ran = remote(
        notebook, "class Bad:\n    def __reduce__(self): raise ValueError('x' * 2_000_000)\nBad()"
    )
    assert ran.status == "ok", "nothing asked for it"
    assert len(ran.picture) < 20_000 and ran.bytes < 200_000


# ── timeouts ────────────────────────────────────────────────────────────────────────────


def test_after_a_timeout_it_is_said_where_ranks_were(notebook):
    ran = remote(
        notebook,
        """
        def step(n):
            while True: time.sleep(n)
        if rank == 0:
            time.sleep(60)
        if rank == 1:
            step(0.01)
        rank
        """,
        "timeout=3s",
    )
    cell = number(notebook)
    assert ran.error[0] == "RunTimeout"
    assert ran.error[1] == (
        f"after 3 s rank 0 was in Cell In[{cell}], line 5: time.sleep(60), rank 1 was in Cell "
        f"In[{cell}], line 3: while True: time.sleep(n); rank 2 had finished"
    )
    assert (
        f"rank 1:\n  Cell In[{cell}], line 3, in step: while True: time.sleep(n)" in ran.traceback
    )
    assert "skyward_nb" not in ran.traceback
    assert "Stopped after 3 s" in ran.picture
    assert ran.error[1] in ran.picture
    assert told(notebook, "e.timeout, e.running, e.results[2]") == "(3.0, (0, 1), 2)"
    assert told(notebook, "e.stacks[1][0].frames[0].function") == "'step'"
    assert notebook.run("%%sky_remote\nrank").result == "[0] 0\n[1] 1\n[2] 2", "names are kept"


def test_what_a_rank_saves_when_its_time_is_over_is_not_lost(notebook):
    body = "try: time.sleep(60)\nexcept KeyboardInterrupt: saved = rank + 5\nsaved"
    ran = remote(notebook, body, "timeout=3s")
    assert ran.error[0] == "RunTimeout"
    assert "ranks 0-2 came to the cell's end when stopped" in ran.traceback
    assert told(notebook, "e.results") == "[0] 5\n[1] 6\n[2] 7"


def test_a_timeout_leaves_what_a_rank_raised_before_it_the_error(notebook):
    body = "if rank == 1: raise ValueError('why')\ntime.sleep(60)"
    ran = remote(notebook, body, "timeout=3s on_error=wait")
    assert ran.error[:2] == ("ValueError", "why")
    assert "after 3 s ranks 0,2 were in Cell In[" in ran.traceback
    assert "rank 1 had failed" in ran.traceback


@pytest.mark.extensive
def test_what_does_not_answer_is_said_and_where_the_killed_were(strict):
    notebook = strict
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
        "pool=strict timeout=3s",
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


@pytest.mark.extensive
def test_an_interrupt_says_where_the_killed_were(strict, tmp_path):
    marks = Marks(strict, tmp_path)
    body = "here()\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
    ran = strict.pressed(f"%%sky_remote pool=strict\n{body}", marks.of(0, 1, 2))
    assert ran.error[0] == "KeyboardInterrupt"
    assert "ranks 0-2 did not stop and had to be killed; they were in Cell In[" in ran.traceback
    assert "line 4: try: time.sleep(60)" in ran.traceback


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


@pytest.mark.extensive
def test_another_notebook_can_check_a_run_and_it_goes_on(notebook, tmp_path):
    marks = Marks(notebook, tmp_path)
    line = "while not os.path.exists(mark): time.sleep(0.02)"
    notebook.run(f"mark = {str(tmp_path / 'go')!r}")
    with kernel() as other:
        message = notebook.begin(f"%%sky_remote\nif rank == 1:\n    {line}\nrank")
        ran = checked(other, "ranks 0,2 have ended", f"line 3: {line}")
        cell = ran.stdout.partition("Cell In[")[2].partition("]")[0]
        assert "pool default of " in ran.stdout
        assert f"Cell In[{cell}] has run for " in ran.stdout
        assert f"rank 1 is in Cell In[{cell}], line 3: {line}" in ran.stdout
        assert f"rank 1:\n  Cell In[{cell}], line 3: {line}\n" in ran.stdout
        assert other.run("%sky check hang pool=default").status == "ok"
        marks.make("go")
        assert notebook.finish(message).result == "[0] 0\n[1] 1\n[2] 2"


def checked(notebook, *words):
    """What `%sky check hang` gives, once these words are in it."""

    def found():
        ran = notebook.run("%sky check hang")
        return all(each in ran.stdout for each in words) and ran

    return until(found)


def test_a_notebook_checks_its_own_run_in_the_background(notebook, tmp_path):
    marks = Marks(notebook, tmp_path)
    line = "while not os.path.exists(mark): time.sleep(0.02)"
    notebook.run(f"mark = {str(tmp_path / 'go')!r}")
    begun = remote(notebook, line, "detach")
    assert begun.status == "ok", begun
    cell = number(notebook)
    said = checked(notebook, f"ranks 0-2 are in Cell In[{cell}], line 2: {line}").stdout
    assert f"pool default: Cell In[{cell}] has run for " in said
    marks.make("go")
    checked(notebook, "nothing runs")


# ── collectives ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "says"),
    few(
        1,
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
    ),
    ids=["late", "missing", "other"],
)
@in_torch
def test_after_a_timeout_it_is_said_who_waited_for_whom(grouped, body, says):
    ran = grouped.run(f"%%sky_remote timeout=3s\n{body}")
    cell = f"Cell In[{number(grouped)}]"
    assert ran.error[:2] == ("RunTimeout", f"after 3 s {says.format(cell=cell)}")
    assert "communication was cut to stop rank" in ran.traceback
    assert "groups and meshes made before go on" in ran.traceback
    assert grouped.run("%%sky_remote\ndist.all_reduce(x)").status == "ok"


@in_torch
def test_ranks_that_do_not_run_the_cell_are_told(grouped):
    ran = grouped.run("%%sky_remote timeout=3s ranks=0-1\ndist.all_reduce(x)")
    assert ran.error[1] == (
        "after 3 s ranks 0-1 waited in all_reduce, and ranks 2-3 do not run this cell"
    )


@in_torch
def test_a_failure_tells_who_waited_for_it(grouped, tmp_path):
    Marks(grouped, tmp_path)
    ran = grouped.run(
        "%%sky_remote\nif rank == 2: meet(0, 1); raise ValueError('bad batch')\n"
        "if rank == 3: time.sleep(60)\nhere_in('all_reduce')\ndist.all_reduce(x)"
    )
    assert ran.error[:2] == ("ValueError", "bad batch")
    assert "communication was cut to stop ranks 0-1, which waited in all_reduce" in ran.traceback
    assert "tensors that all_reduce was filling may be incomplete" in ran.traceback
    assert "rank 3 was stopped" in ran.traceback


@in_torch
def test_an_interrupt_in_a_collective_keeps_names_and_says_what_is_not(grouped, tmp_path):
    marks = Marks(grouped, tmp_path)
    body = "here_in('barrier')\nif rank != 3: dist.barrier()\ntime.sleep(60)"
    ran = grouped.pressed(f"%%sky_remote\n{body}", marks.of(0, 1, 2))
    assert ran.error[0] == "KeyboardInterrupt"
    assert "Interrupted on ranks 0-3; namespaces kept on all ranks" in ran.traceback
    assert "communication was cut to stop ranks 0-2, which waited in barrier" in ran.traceback
    assert "the process group was formed again (generation " in ran.traceback
    assert grouped.run("%%sky_remote\ndist.all_reduce(x)").status == "ok"


@pytest.fixture
def looks_soon(grouped):
    """The notebook asks ranks that make no progress where they are after a moment, not after 10 s."""
    grouped.run("import skyward_nb.hangs.hang_watch as hang_watch\nhang_watch.FIRST_LOOK = 0.3")
    yield grouped
    grouped.run("hang_watch.FIRST_LOOK = 10.0")


@in_torch
def test_a_hang_stands_in_the_picture_by_itself_and_in_the_interrupts_message(looks_soon):
    wrap = "DDP = torch.nn.parallel.DistributedDataParallel\nmodel = DDP(torch.nn.Linear(1, 1))"
    assert looks_soon.run(f"%%sky_remote\n{wrap}").status == "ok"
    says = "ranks 0-2 wait in barrier for rank 3, which has finished"
    ran = looks_soon.stopped("%%sky_remote\nif rank != 3: dist.barrier()", says)
    assert ran.error[0] == "KeyboardInterrupt"
    assert "\nranks 0-2 waited in barrier for rank 3, which had finished\n" in ran.traceback
    assert says not in ran.picture, "it is over"
    assert "wrap again" not in ran.traceback
    line = "model(torch.ones(1)).sum().backward()"
    assert looks_soon.run(f"%%sky_remote\n{line}").status == "ok"


@in_torch
def test_ranks_that_wait_for_one_that_works_go_on(looks_soon, tmp_path):
    marks = Marks(looks_soon, tmp_path)
    says = "ranks 0-2 wait in barrier for rank 3, which is in Cell In["
    seen = []

    def see(text):
        if says in text:
            seen.append(text)
            marks.make("go")

    ran = looks_soon.run("%%sky_remote\nif rank == 3: meet('go')\ndist.barrier()", on_update=see)
    assert ran.error is None
    assert seen
    assert "wait in barrier" not in ran.picture


@in_torch
def test_a_death_tells_who_waited_for_the_dead(grouped, tmp_path):
    Marks(grouped, tmp_path)
    ran = grouped.run(
        "%%sky_remote\nif rank == 2: meet(0, 1, 3); os._exit(3)\n"
        "here_in('all_reduce')\ndist.all_reduce(x)"
    )
    assert ran.error[0] == "RankDied"
    assert "rank 2 exited with code 3" in ran.traceback
    assert "ranks 0-1,3 waited in all_reduce for rank 2" in ran.traceback
