"""Why a run does not end: the sentence and the stacks, from what ranks' stacks say."""

from __future__ import annotations

from pathlib import Path

import pytest

import skyward_nb
from skyward_nb.hangs import rank_locations
from skyward_nb.hangs.hang import StalledRun, doing, report, sentence, spell_span
from skyward_nb.hangs.rank_locations import RankLocation, whereabouts

CELL = """%%sky_remote timeout=10s
def train(batch):
    loss = model(batch)
    loss.backward()
    dist.all_reduce(loss)

time.sleep(60)
train(batch)
dist.barrier()
work.wait()
pool.map(train, batches)"""

OURS = [
    ('"/v/site-packages/skyward_nb/node/rank_shell.py"', 204, "_execute"),
    ('"/v/site-packages/skyward_nb/node/rank.py"', 211, "_run"),
    ('"/v/site-packages/skyward_nb/node/__main__.py"', 30, "<module>"),
    ('"<frozen runpy>"', 198, "_run_module_as_main"),
]
TORCH = '"/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"'
LOGGER = '"/v/lib/python3.11/site-packages/torch/distributed/c10d_logger.py"'
CELL_4 = '"/tmp/ipykernel_12/345.py"'


def source(file, line):
    if file == CELL_4.strip('"'):
        return "Cell In[4]", CELL.split("\n")[line - 1]
    return ("utils.py", "        return step(x)") if file.endswith("utils.py") else None


def text(*frames, name="Current thread 0x00007f01"):
    lines = [f"  File {file}, line {line} in {function}" for file, line, function in frames]
    return "\n".join([f"{name} (most recent call first):", *lines, ""])


def at(*frames, told=""):
    return whereabouts(text(*frames, *OURS), source, told)


def reduces(line=5):
    return at(
        (TORCH, 3252, "all_reduce"), (LOGGER, 83, "wrapper"), (CELL_4, line, "train"),
        (CELL_4, 8, "<module>"),
    )  # fmt: skip


MEETS = at((TORCH, 5356, "barrier"), (LOGGER, 83, "wrapper"), (CELL_4, 9, "<module>"))
SLEEPS = at((CELL_4, 7, "<module>"))
BACKWARD = at(
    ('"/v/lib/python3.11/site-packages/torch/autograd/graph.py"', 900, "_engine_run_backward"),
    ('"/v/lib/python3.11/site-packages/torch/_tensor.py"', 600, "backward"),
    (CELL_4, 4, "train"),
    (CELL_4, 8, "<module>"),
)
MUTE = whereabouts("", source)


def test_the_collective_and_the_place_are_found_in_the_stack():
    rank = reduces()
    assert rank.waits_in == "all_reduce"
    assert rank.place == "Cell In[4], line 5: dist.all_reduce(loss)"
    assert SLEEPS.waits_in == ""
    assert not MUTE.answered


def test_of_the_collective_that_a_rank_told_only_what_its_line_calls_counts():
    waits = [(CELL_4, 10, "<module>")]
    assert at(*waits).waits_in == ""
    assert at(*waits, told="wait").waits_in == "wait"
    assert at((CELL_4, 7, "<module>"), told="wait").waits_in == ""


@pytest.mark.parametrize(
    ("file", "function", "says"),
    [
        ("rank", "_arrive", "rank 0 was taking in what was sent, before the cell's first line"),
        ("result_packer", "with_values", "rank 0 was at the cell's end, returning values"),
    ],
)
def test_what_a_rank_does_outside_of_the_cell_is_said(file, function, says):
    outer = ('"/v/site-packages/skyward_nb/node/rank.py"', 7, "_run")
    rank = at((f'"/v/site-packages/skyward_nb/node/{file}.py"', 9, function), outer)
    assert sentence(StalledRun({0: rank})) == says


def test_the_functions_by_which_that_is_known_exist():
    for file, function in rank_locations._OUR_WORK:
        (path,) = Path(skyward_nb.__file__).parent.rglob(file)
        assert f"def {function}(" in path.read_text()


@pytest.mark.parametrize(
    ("halt", "says"),
    [
        (
            StalledRun({0: reduces(), 1: reduces(), 2: reduces(), 3: SLEEPS}),
            "ranks 0-2 waited in all_reduce for rank 3, which was in Cell In[4], line 7: "
            "time.sleep(60)",
        ),
        (
            StalledRun({0: reduces(), 1: reduces()}, {2: "finished", 3: "finished"}),
            "ranks 0-1 waited in all_reduce for ranks 2-3, which had finished",
        ),
        (
            StalledRun({0: reduces(), 1: MUTE}, {2: "failed", 3: "died"}),
            "rank 0 waited in all_reduce for rank 1, which did not answer (its process is "
            "stopped, or stuck in the system), and rank 2, which had failed, and rank 3, which "
            "had died",
        ),
        (
            StalledRun({0: reduces(), 1: reduces()}),
            "all ranks waited in all_reduce: they do not all call the same collectives (equally "
            "often, with equal shapes, in the same group), or it takes this long",
        ),
        (
            StalledRun({0: reduces(), 1: reduces(11)}),
            "all ranks waited in all_reduce, called in different places: they do not all call the "
            "same collectives",
        ),
        (
            StalledRun({0: reduces(), 1: reduces()}, outside=(2, 3)),
            "ranks 0-1 waited in all_reduce, and ranks 2-3 do not run this cell",
        ),
        (
            StalledRun({0: reduces(), 1: MEETS, 2: MEETS}),
            "rank 0 waited in all_reduce, ranks 1-2 waited in barrier: they do not call the same "
            "collectives in the same order",
        ),
        (
            StalledRun({0: reduces(), 1: MEETS, 2: SLEEPS}, {3: "finished"}),
            "rank 0 waited in all_reduce, rank 1 waited in barrier: they do not call the same "
            "collectives in the same order; rank 2 was in Cell In[4], line 7: time.sleep(60); "
            "rank 3 had finished",
        ),
        (
            StalledRun({0: reduces(), 1: BACKWARD}),
            "rank 0 waited in all_reduce for rank 1, which was in Cell In[4], line 4: "
            "loss.backward()",
        ),
        (
            StalledRun({0: BACKWARD, 1: BACKWARD}),
            "all ranks were in backward, computing gradients or averaging them over ranks",
        ),
        (
            StalledRun({0: SLEEPS, 1: SLEEPS, 2: MUTE}, {3: "finished"}),
            "ranks 0-1 were in Cell In[4], line 7: time.sleep(60), rank 2 did not answer (its "
            "process is stopped, or stuck in the system); rank 3 had finished",
        ),
        (
            StalledRun({0: reduces(), 1: SLEEPS}, {2: "ended"}, is_past=False),
            "rank 0 waits in all_reduce for rank 1, which is in Cell In[4], line 7: "
            "time.sleep(60), and rank 2, which has ended",
        ),
        (
            StalledRun({0: reduces(), 1: reduces(), 2: MUTE, 3: MUTE}, is_past=False),
            "ranks 0-1 wait in all_reduce for ranks 2-3, which do not answer (their "
            "processes are stopped, or stuck in the system)",
        ),
        (StalledRun({0: SLEEPS}, is_past=False), "rank 0 is in Cell In[4], line 7: time.sleep(60)"),
        (StalledRun({}, {0: "finished"}), ""),
        (
            StalledRun({0: reduces(), 1: RankLocation(waits_in="recv")}),
            "rank 0 waited in all_reduce, rank 1 waited in recv",
        ),
        (
            StalledRun(dict.fromkeys((0, 1), RankLocation(waits_in="recv"))),
            "all ranks waited in recv",
        ),
    ],
)
def test_who_waits_for_whom_in_one_sentence(halt, says):
    assert sentence(halt) == says


def test_of_a_great_many_places_a_few_are_told():
    lines = {rank: at((f'"/home/me/f{rank}.py"', rank, "f")) for rank in range(1, 30)}
    said = sentence(StalledRun({0: reduces(), **lines}))
    assert said.endswith("rank 4, which was in f4.py, line 4, and ranks 5-29 elsewhere")
    assert report(StalledRun(lines)).endswith("21 more stacks, of ranks 9-29, are left out")


def test_each_stack_once_without_frames_of_ours_and_few_of_libraries():
    deep = at(
        ('"/usr/lib/python3.11/selectors.py"', 415, "select"),
        ('"/usr/lib/python3.11/multiprocessing/connection.py"', 947, "wait"),
        ('"/usr/lib/python3.11/multiprocessing/connection.py"', 440, "_poll"),
        ('"/usr/lib/python3.11/multiprocessing/pool.py"', 774, "get"),
        ('"/home/me/utils.py"', 33, "step"),
        ('"/usr/lib/python3.11/functools.py"', 377, "_method"),
        ('"/v/site-packages/IPython/core/magics/execution.py"', 3, "time"),
        (CELL_4, 11, "<module>"),
    )
    halt = StalledRun({0: reduces(), 1: reduces(), 2: deep, 3: MUTE})
    assert (
        report(halt)
        == """\
ranks 0-1, in all_reduce:
  torch/distributed/distributed_c10d.py, line 3252, in all_reduce
  torch/distributed/c10d_logger.py, line 83, in wrapper
  Cell In[4], line 5, in train: dist.all_reduce(loss)
  Cell In[4], line 8: train(batch)
rank 2:
  selectors.py, line 415, in select
  multiprocessing/connection.py, line 947, in wait
  multiprocessing/connection.py, line 440, in _poll
  utils.py, line 33, in step: return step(x)
  Cell In[4], line 11: pool.map(train, batches)
rank 3: no answer"""
    )


def test_other_threads_are_shown_that_run_the_users_code():
    others = text(
        ('"/usr/lib/python3.11/threading.py"', 359, "wait"), (CELL_4, 3, "train"),
        name="Thread 0x00007f02",
    ) + text(('"/usr/lib/python3.11/threading.py"', 359, "wait"), name="Thread 0x00007f03")  # fmt: skip
    rank = whereabouts(others + text((CELL_4, 7, "<module>"), *OURS), source)
    assert (
        report(StalledRun({0: rank}))
        == """\
rank 0:
  Cell In[4], line 7: time.sleep(60)
  another thread:
    threading.py, line 359, in wait
    Cell In[4], line 3, in train: loss = model(batch)"""
    )


def test_a_deep_recursion_is_bounded():
    rank = at(*[(CELL_4, 3, "train")] * 90, (CELL_4, 8, "<module>"))
    lines = report(StalledRun({0: rank})).splitlines()
    assert len(lines) < 20
    assert lines[-1] == "  and 75 more further out"


def test_long_lines_are_cut():
    rank = whereabouts(text((CELL_4, 1, "f")), lambda _f, _l: ("Cell In[1]", "x = " + "1" * 500))
    assert len(rank.place) < 160
    assert rank.place.endswith("…")


def test_what_a_rank_did_that_had_to_be_killed():
    assert doing(SLEEPS, (1,)) == "was in Cell In[4], line 7: time.sleep(60)"
    assert doing(reduces(), (1, 2)) == (
        "waited in all_reduce, Cell In[4], line 5: dist.all_reduce(loss)"
    )
    assert doing(RankLocation(waits_in="barrier"), (1,)) == "waited in barrier"
    assert doing(MUTE, (1,)).startswith("did not answer")


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0.5, "0.5 s"), (10, "10 s"), (90, "90 s"), (600, "10 min"), (630, "10 min 30 s"),
     (3600, "1 h"), (5400, "1 h 30 min")],
)  # fmt: skip
def test_times_read_as_they_are_given(seconds, says):
    assert spell_span(seconds) == says
