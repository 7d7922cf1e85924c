"""What else there is to say of a run that is over."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from skyward_nb.hangs.rank_locations import RankLocation, SourceLocation
from skyward_nb.names.plan import Plan
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.protocol.events import RankDone, RankLost
from skyward_nb.protocol.message_parts import Failure, Frame
from skyward_nb.reports.rank_failures import failures_of
from skyward_nb.reports.run_notes import (
    halt_of,
    of_a_collective_timeout,
    of_a_lost_gpu,
    of_a_memory_limit,
    of_an_old_group,
    run_notes,
    whereabouts_of,
)
from skyward_nb.words.rank_limits import spell_excess

FAILURE = Failure(type_name="ValueError", message="m", value=None, at=None, traceback=())
SLEEPS = RankLocation(
    (SourceLocation("Cell In[3]", 7, "<module>", "time.sleep(60)", is_users=True),)
)
KEPT = "the process group was formed again (generation 3) and names are kept"
MODELS = "models wrapped for the old group (DDP, FSDP, sky.parallelize) must be made again"
FORMED = f"{KEPT}; {MODELS}"
ANEW = (
    "all ranks were started anew (generation 3); names of the notebook are sent again when a cell "
    "reads them"
)


def well(rank):
    return RankDone(run=1, rank=rank)


def stopped(rank, waited_in=""):
    return RankDone(run=1, rank=rank, failure=FAILURE, interrupted=True, waited_in=waited_in)


def failed(rank):
    return RankDone(run=1, rank=rank, failure=FAILURE)


def lost(rank, how="killed by SIGKILL"):
    return RankLost(2, rank, how)


IN_A_COLLECTIVE = """Fatal Python error: Segmentation fault

Current thread 0x00007f0000000001 (most recent call first):
  File "/lib/site-packages/torch/distributed/distributed_c10d.py", line 3077 in all_reduce
  File "/lib/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "<cell 3>", line 2 in <module>
"""


def crashed(rank):
    return RankLost(2, rank, "crashed: SIGSEGV", stack=IN_A_COLLECTIVE)


def outcome(*ends, dead=(), killed=(), **more):
    done = {end.rank: end for end in ends}
    gone = {each.rank: each for each in dead}
    first = [end for end in ends if end.failure and not end.interrupted]
    more.setdefault("interrupted", False)
    more.setdefault("began_anew", bool(dead or "names_lost" in more))
    more.setdefault("was_cut", bool(more.get("waited_in")))
    return RunOutcome(
        ranks=tuple(sorted({*done, *gone})), plan=Plan(), done=done, lost=gone, failed=first,
        killed=frozenset(killed), **more,
    )  # fmt: skip


def trained(rank, steps):
    return replace(stopped(rank), optimizer_steps=steps)


GO_ON = "models go on; a step is lost"


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (outcome(well(0), well(1)), ()),
        (
            outcome(trained(0, 7), trained(1, 7), interrupted=True),
            ("all ranks made 7 optimizer steps, none is lost: models of torch go on",),
        ),
        (outcome(trained(0, 7), trained(1, 6), interrupted=True), ()),
        (
            outcome(
                stopped(0, "backward"), stopped(1), interrupted=True, was_reformed=True,
                waited_in={0: "backward"}, regained={"torch": GO_ON},
            ),
            (f"communication was cut to stop rank 0, which waited in backward; {KEPT}; {GO_ON}",),
        ),
        (
            outcome(
                replace(failed(0), left_open=True), well(1), was_reformed=True,
                regained={"torch": GO_ON},
            ),
            (f"a model was left in the midst of a pass or an optimizer step, so {KEPT}; {GO_ON}",),
        ),
        (outcome(failed(0), well(1)), ()),
        (outcome(failed(0), stopped(1), stopped(2)), ("ranks 1-2 were stopped",)),
        (
            outcome(
                failed(2), stopped(0, "all_reduce"), stopped(1, "all_reduce"), stopped(3),
                waited_in={0: "all_reduce", 1: "all_reduce"},
            ),
            ("ranks 0-1 were stopped while waiting in all_reduce", "rank 3 was stopped"),
        ),
        (
            outcome(
                failed(2), stopped(0), stopped(1), stopped(3), was_reformed=True,
                waited_in={0: "all_reduce", 1: "barrier", 3: "all_reduce"},
            ),
            (
                "communication was cut to stop ranks 0,3, which waited in all_reduce, and rank 1, "
                f"which waited in barrier; {KEPT}; tensors that all_reduce was filling may be "
                f"incomplete; {MODELS}",
            ),
        ),
        (
            outcome(
                failed(1), stopped(0), was_reformed=True, waited_in={0: "all_gather_object"},
            ),
            (
                "communication was cut to stop rank 0, which waited in all_gather_object; "
                f"{FORMED}",
            ),
        ),
        (
            outcome(failed(0), well(1), was_reformed=True),
            (f"ranks had not called the same collectives, so {FORMED}",),
        ),
        (
            outcome(replace(well(0), lacks_group=True), well(1), was_reformed=True),
            (f"the code had ended its process group, so {FORMED}",),
        ),
        (
            outcome(stopped(0), stopped(1), interrupted=True, waited_in={0: "barrier"}),
            ("rank 0 was stopped while waiting in barrier",),
        ),
        (
            outcome(
                stopped(0, "barrier"), failed(1), dead=[lost(2)],
                waited_in={0: "barrier", 2: "barrier"}, names_lost=["model"],
            ),
            ("rank 0 waited in barrier for rank 2", ANEW, "lost with the ranks: model"),
        ),
        (
            outcome(well(0), dead=[lost(1)], names_lost=["x"], resumes=True),
            (ANEW, "lost with the ranks: x", "the next cell goes on from their newest checkpoint, if there is one"),
        ),
        (
            outcome(replace(well(0), checkpoints=3), well(1)),
            (
                "sky.checkpoint() was called up to 3 times, but less often on rank 1: a checkpoint needs the "
                "part of every rank, so call it on all of them",
            ),
        ),
        (outcome(replace(failed(0), checkpoints=3), well(1)), ()),
        (outcome(replace(well(0), checkpoints=3), replace(well(1), checkpoints=3)), ()),
        (
            outcome(stopped(1), dead=[crashed(0), lost(2)], waited_in={1: "all_reduce"}),
            ("ranks 0-1 waited in all_reduce for rank 2", ANEW),
        ),
        (
            outcome(stopped(1), dead=[crashed(0)], waited_in={1: "all_reduce"}),
            ("rank 1 waited in all_reduce for rank 0", ANEW),
        ),
        (
            outcome(
                stopped(0), dead=[lost(1), lost(2), lost(3)], killed=[1, 2, 3], interrupted=True,
                stacks={},
            ),
            (
                "ranks 1-2 did not stop and had to be killed; they were in Cell In[3], line 7: "
                "time.sleep(60)",
                "rank 3 did not stop and had to be killed",
                ANEW,
            ),
        ),
        (
            outcome(stopped(0), stopped(1), timed_out=True, waited_in={0: "barrier"}),
            (),
        ),
        (
            outcome(well(0), lost_before={0: lost(0)}),
            ("rank 0 killed by SIGKILL before this cell", ANEW),
        ),
        (
            outcome(
                stopped(0), interrupted=True, names_lost=["x"], why_anew="rank 1: OSError: no room"
            ),
            (
                f"the process group could not be formed again (rank 1: OSError: no room), so {ANEW}",
                "lost with the ranks: x",
            ),
        ),
    ],
)  # fmt: skip
def test_one_sentence_for_each_thing_that_there_is_to_know(after, says):
    assert run_notes(after, 3, {1: SLEEPS, 2: SLEEPS}, ("torch",)) == says


def test_without_pytorch_no_models_are_wrapped():
    (note,) = run_notes(outcome(failed(0), was_reformed=True), 3, {})
    assert note.endswith("and names are kept")


def test_how_a_run_stood_when_its_time_was_over():
    after = outcome(
        well(0), failed(1), stopped(2), stopped(3, "barrier"), dead=[lost(4), lost(5)], killed=[5],
        timed_out=True, stacks={2: "", 3: ""}, waited_in={3: "barrier"},
    )  # fmt: skip
    where = whereabouts_of(after, lambda _file, _line: None)
    halt = halt_of(after, where, tuple(range(8)))
    assert halt.running.keys() == {2, 3, 5}
    assert halt.running[3].waits_in == "barrier"
    assert halt.ended == {0: "finished", 1: "failed", 4: "died"}
    assert halt.outside == (6, 7)


def test_a_collective_that_took_too_long_is_told_as_a_run_that_did():
    text = "[unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"
    late = replace(failed(0), failure=replace(FAILURE, message=text), waited_in="all_reduce")
    sleeps = replace(FAILURE, at=Frame("Cell In[3]", 7, "time.sleep(60)"))
    after = outcome(late, replace(stopped(1), failure=sleeps), well(2))
    assert of_a_collective_timeout(after, after.failed, (0, 1, 2)) == (
        "after 3 s rank 0 waited in all_reduce for rank 1, which was in Cell In[3], line 7: "
        "time.sleep(60), and rank 2, which had finished",
    )
    other = outcome(late, stopped(1, "barrier"))
    assert of_a_collective_timeout(other, other.failed, (0, 1)) == (
        "after 3 s rank 0 waited in all_reduce, rank 1 waited in barrier: they do not call the "
        "same collectives in the same order",
    )
    for each in (failed(0), replace(late, waited_in=""), replace(late, failure=FAILURE)):
        assert of_a_collective_timeout(outcome(each), [each], (0,)) == ()


def test_what_was_made_for_a_group_that_was_cut_is_to_be_made_anew():
    def lost_peers(rank):
        message = f"Connection closed by peer [127.0.0.1]:{rank}"
        return RankDone(run=1, rank=rank, failure=replace(FAILURE, message=message))

    (word,) = of_an_old_group([lost_peers(0)], 4)
    assert "generation 4" in word
    assert "wrap models" in word
    assert of_an_old_group([failed(0)], 4) == ()
    assert of_an_old_group([lost_peers(0)], 4, was_cut=True) == (), "it may be the cut of this run"
    devices = replace(FAILURE, message="Received incompatible devices for jitted computation")
    other = RankDone(run=1, rank=1, failure=devices)
    assert of_an_old_group([lost_peers(0), other], 4, was_cut=True) == (word,)
    (failure,) = failures_of([lost_peers(0), lost_peers(1)])
    assert failure.ranks == (0, 1), "ports differ, and the cause is one"


def test_of_a_script_nothing_is_told_that_only_code_after_it_needs():
    def told(after):
        return run_notes(after, 3, {}, ("torch",), goes_on=False)

    assert told(outcome(stopped(0), dead=[lost(1)], names_lost=["x"])) == ("rank 0 was stopped",)
    assert told(outcome(failed(0), well(1), was_reformed=True)) == ()
    cut = outcome(
        failed(1), stopped(0, "all_reduce"), was_reformed=True, waited_in={0: "all_reduce"}
    )
    assert told(cut) == ("communication was cut to stop rank 0, which waited in all_reduce",)


# ── limits of memory ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("type_name", "message"),
    [
        ("MemoryError", ""),
        ("_ArrayMemoryError", "Unable to allocate 22.4 GiB for an array with shape (3000000000,)"),
        (
            "RuntimeError",
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory",
        ),
        ("JaxRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating 3600000000 bytes."),
        ("OSError", "[Errno 12] Cannot allocate memory"),
    ],
)
def test_an_allocation_that_failed_is_told_with_the_limit(type_name, message):
    failure = replace(FAILURE, type_name=type_name, message=message)
    ends = [RankDone(run=1, rank=1, failure=failure), failed(2)]
    said, more = of_a_memory_limit(ends, {}, 2_000_000_000)
    assert said.startswith("rank 1 reached memory_limit=2GB; ")
    assert more == "for more: memory_limit=4GB replace on the line of a cell makes the pool anew"
    assert of_a_memory_limit(ends, {}, None) == ()
    assert of_a_memory_limit([failed(2)], {}, 2_000_000_000) == ()


@pytest.mark.parametrize("how", [spell_excess(2_300_000_000, 2_000_000_000), "std::bad_alloc"])
def test_a_rank_that_was_ended_for_its_memory_has_a_way_on(how):
    (more,) = of_a_memory_limit([], {1: lost(1, how)}, 2_000_000_000)
    assert more.startswith("for more: memory_limit=4GB replace")
    assert of_a_memory_limit([], {1: lost(1)}, 2_000_000_000) == ()


# ── a GPU that is lost ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        (
            "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs",
            True,
        ),
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", True),
        ("INTERNAL: CUDA error: : CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", True),
        ("CUDA error: out of memory", False),
        ("CUDA out of memory. Tried to allocate 800.00 GiB.", False),
        ("CUDA error: no kernel image is available for execution on the device", False),
        ("an illegal memory access", False),
    ],
)
def test_errors_after_which_a_gpu_is_of_no_use(message, lost):
    failure = replace(FAILURE, message=message)
    ends = [replace(well(rank), failure=failure if rank else None) for rank in range(3)]
    said = of_a_lost_gpu(ends)
    assert bool(said) == lost
    assert not lost or "ranks 1-2 cannot use their GPU any more" in said[0]
