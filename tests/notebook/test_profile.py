"""`profile=comm`: time in collectives on every rank, and traces that other tools open."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from kernels import Marks, kernel
from later import needs
from leaks import gone_within, traces

from skyward_nb.options.specs import check_profile
from skyward_nb.reports.run_profiles import FOLDER, MERGED, table, told, write
from skyward_nb.words.errors import OptionError
from skyward_nb.words.profile import Collective, CommProfile
from skyward_nb.words.spec import PoolSpec

needs_torch = needs("torch")


@contextmanager
def _with_ranks(folder, line):
    """A kernel whose working folder this is, in which the cell `line` has run; nothing is left of it."""
    before = traces()
    with kernel() as running:
        running.folder = folder
        running.run(f"import os; os.chdir({str(folder)!r})")
        ran = running.run(line)
        assert ran.status == "ok", ran
        yield running
    assert not gone_within(30, before)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    pytest.importorskip("torch")
    line = (
        "%%sky_remote nodes=2 framework=torch grace=20s\n"
        "import torch, torch.distributed as dist, time\nt = torch.ones(1000)\nr = dist.get_rank()"
    )
    with _with_ranks(tmp_path_factory.mktemp("notebook"), line) as running:
        yield running


def newest(notebook) -> Path:
    """The folder that the last run made."""
    return max((notebook.folder / FOLDER).iterdir(), key=lambda each: each.stat().st_mtime_ns)


def opened(path: Path) -> list[dict]:
    with gzip.open(path) as file:
        return json.load(file)["traceEvents"]


def ranges(events) -> Counter:
    return Counter(
        event["name"]
        for event in events
        if event["ph"] == "X" and event["name"].startswith("gloo:")
    )


@needs_torch
@pytest.mark.torch
def test_every_rank_tells_its_collectives_and_has_a_trace(notebook):
    ran = notebook.run(
        "%%sky_remote profile=comm out=made\nfor _ in range(5): dist.all_reduce(t)\n"
        "if r == 0: time.sleep(0.4)\ndist.broadcast(t, 0)\n"
        "(t @ t).item()"
    )
    assert ran.status == "ok", ran.traceback
    assert not ran.stdout and "USDT" not in ran.picture
    said = [line for line in ran.picture.splitlines() if line.startswith("rank ")]
    assert [line.split(":")[0] for line in said] == ["rank 0", "rank 1"]
    for line in said:
        assert "in collectives" in line and "while nothing else ran" in line
        assert "5 all_reduce" in line and "5,000 values" in line and "1 broadcast" in line
    folder = newest(notebook)
    assert f"traces: {folder.relative_to(notebook.folder) / MERGED}" in ran.picture
    expected = {"gloo:all_reduce": 5, "gloo:broadcast": 1}
    for rank in (0, 1):
        events = opened(folder / f"rank{rank}.pt.trace.json.gz")
        assert ranges(events) == expected
        assert any(event["name"] == "aten::dot" for event in events)
    whole = opened(folder / MERGED)
    names = {e["pid"]: e["args"]["name"] for e in whole if e["name"] == "process_name"}
    for rank in (0, 1):
        own = [e for e in whole if e["ph"] == "X" and names[e["pid"]] == f"rank {rank}"]
        assert ranges(own) == expected
    starts = [e["ts"] for e in whole if e["name"] == "gloo:broadcast"]
    assert all(0 <= ts < 60e6 for ts in starts), "times are counted from the run's beginning"
    assert notebook.run("made[0] == made[1]").result == "True"


@needs_torch
@pytest.mark.torch
def test_waiting_for_others_is_time_in_collectives(notebook, tmp_path):
    Marks(notebook, tmp_path)
    ran = notebook.run(
        "%%sky_remote profile=comm\nif r == 0:\n    meet(1)\n    time.sleep(2)\n"
        "else:\n    here_in('all_reduce')\ndist.all_reduce(t)"
    )
    assert ran.status == "ok"
    time_of = {}
    for rank in (0, 1):
        events = opened(newest(notebook) / f"rank{rank}.pt.trace.json.gz")
        time_of[rank] = sum(e["dur"] for e in events if e["name"] == "gloo:all_reduce")
    assert time_of[1] - time_of[0] > 1e6


@needs_torch
@pytest.mark.torch
def test_a_cell_that_fails_has_its_profile_too(notebook):
    ran = notebook.run(
        "%%sky_remote profile=comm\ndist.all_reduce(t)\nif r == 1: raise ValueError('x')\n"
        "dist.all_reduce(t)",
        timeout=60,
    )
    assert ran.error[0] == "ValueError"
    assert "traces: " in ran.picture and "in collectives" not in ran.traceback
    events = opened(newest(notebook) / "rank1.pt.trace.json.gz")
    assert ranges(events) == {"gloo:all_reduce": 1}
    assert notebook.run("%%sky_remote\ndist.all_reduce(t)\n1").result == "[0-1] 1"


@needs_torch
@pytest.mark.torch
def test_an_interrupted_cell_has_its_profile_too(notebook, tmp_path):
    marks = Marks(notebook, tmp_path)
    ran = notebook.pressed(
        "%%sky_remote profile=comm\ndist.all_reduce(t)\n"
        "if r == 0:\n    here()\n    time.sleep(60)\nhere_in('all_reduce')\ndist.all_reduce(t)",
        marks.of(0, 1),
    )
    assert ran.error[0] == "KeyboardInterrupt"
    assert "namespaces kept" in ran.picture
    for rank in (0, 1):
        events = opened(newest(notebook) / f"rank{rank}.pt.trace.json.gz")
        assert ranges(events)["gloo:all_reduce"] >= 1
    assert notebook.run("%%sky_remote\ndist.all_reduce(t)\n1").result == "[0-1] 1"


@needs_torch
@pytest.mark.torch
def test_in_the_background(notebook):
    ran = notebook.run("%%sky_remote profile=comm detach out=work\ndist.all_reduce(t)\n7")
    assert ran.status == "ok"
    assert notebook.run("list(work.result())").result == "[7, 7]"
    assert ranges(opened(newest(notebook) / MERGED)) == {"gloo:all_reduce": 2}


@needs_torch
@pytest.mark.torch
def test_a_cell_that_profiles_itself_keeps_its_own(notebook):
    ran = notebook.run(
        "%%sky_remote profile=comm\nfrom torch.profiler import profile\n"
        "with profile() as own: dist.all_reduce(t)\nlen(own.events()) > 0"
    )
    assert ran.result == "[0-1] True"
    assert "no profile of ranks 0-1: the cell used torch's profiler itself" in ran.picture


@needs_torch
@pytest.mark.torch
def test_one_of_the_ranks_and_no_collective(notebook):
    ran = notebook.run("%%sky_remote profile=comm ranks=1\nt + 1; None")
    assert "rank 1: no collective in " in ran.picture
    assert {path.name for path in newest(notebook).iterdir()} == {
        "rank1.pt.trace.json.gz",
        MERGED,
    }


@needs_torch
@pytest.mark.torch
def test_without_it_nothing_is_recorded(notebook):
    before = set((notebook.folder / FOLDER).iterdir())
    ran = notebook.run("%%sky_remote\nimport torch\ntorch._C._autograd._profiler_enabled()")
    assert ran.result == "[0-1] False"
    assert set((notebook.folder / FOLDER).iterdir()) == before


# ── JAX ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def of_jax(tmp_path_factory):
    pytest.importorskip("jax")
    line = (
        "%%sky_remote nodes=2 framework=jax grace=20s\nimport time, jax, jax.numpy as jnp\n"
        "import skyward_nb as sky\nfrom jax.sharding import NamedSharding, PartitionSpec as P\n"
        "rank = jax.process_index()\n"
        "x = jax.make_array_from_process_local_data(NamedSharding(sky.mesh(), P('fsdp')), jnp.ones(4))\n"
        "total = jax.jit(jnp.sum)\ntotal(x).block_until_ready(); None"
    )
    with _with_ranks(tmp_path_factory.mktemp("notebook"), line) as running:
        yield running


@pytest.mark.extensive
def test_jax_tells_its_collectives_also_those_that_the_cell_did_not_wait_for(of_jax):
    ran = of_jax.run("%%sky_remote profile=comm\nfor _ in range(5): made = total(x)")
    assert ran.status == "ok", ran.traceback
    said = [line for line in ran.picture.splitlines() if line.startswith("rank ")]
    assert [line.split(":")[0] for line in said] == ["rank 0", "rank 1"]
    assert all("in collectives" in line and "5 all_reduce" in line for line in said)
    folder = newest(of_jax)
    assert f"traces: {folder.relative_to(of_jax.folder) / MERGED}" in ran.picture
    planes = folder / "plugins" / "profile" / folder.name
    assert {path.name for path in planes.iterdir()} == {"rank0.xplane.pb", "rank1.xplane.pb"}
    whole = opened(folder / MERGED)
    names = {e["pid"]: e["args"]["name"] for e in whole if e["name"] == "process_name"}
    assert sorted(names.values()) == ["rank 0", "rank 1"]
    done = [e for e in whole if e["ph"] == "X" and e["name"].startswith("all-reduce")]
    found = [e for e in done if e.get("args", {}).get("hlo_op") == e["name"]]
    assert Counter(names[e["pid"]] for e in found) == {"rank 0": 5, "rank 1": 5}
    assert all(0 <= e["ts"] < 60e6 for e in found), "times are counted from the run's beginning"


@pytest.mark.extensive
def test_a_cell_of_jax_that_fails_has_its_profile_too_and_the_pool_goes_on(of_jax):
    ran = of_jax.run(
        "%%sky_remote profile=comm\ntotal(x).block_until_ready()\n"
        "if rank == 1: raise ValueError('x')\nsky.barrier()",
        timeout=60,
    )
    assert ran.error[0] == "ValueError"
    assert "traces: " in ran.picture and "1 all_reduce" in ran.picture
    assert of_jax.run("%%sky_remote\nsky.barrier()\n1").result == "[0-1] 1"


@pytest.mark.extensive
def test_an_interrupt_while_what_jax_does_in_the_background_is_waited_for(of_jax):
    ran = of_jax.stopped(
        "%%sky_remote profile=comm\nx = jax.make_array_from_process_local_data("
        "NamedSharding(sky.mesh(), P('fsdp')), jnp.ones(4))\nprint('here')\n"
        "if rank: late = total(x)\nelse: time.sleep(100)"
    )
    assert ran.error[0] == "KeyboardInterrupt", ran.traceback
    assert of_jax.run("%%sky_remote\nsky.barrier()\n1").result == "[0-1] 1"


@pytest.mark.extensive
def test_a_cell_that_has_stopped_the_profiler_of_jax_is_told(of_jax):
    ran = of_jax.run("%%sky_remote profile=comm\njax.profiler.stop_trace()\n1")
    assert ran.result == "[0-1] 1"
    assert "no profile of ranks 0-1: RuntimeError: the cell stopped JAX's profiler" in ran.picture


def test_other_values_are_refused(notebook):
    assert "profile=memory: choose comm" in notebook.run("%%sky_remote profile=memory\n1").stderr


def test_a_pool_without_either_is_refused_before_it_starts(notebook):
    ran = notebook.run("%%sky_remote pool=other profile=comm\n1")
    assert "profile=comm needs framework=torch or jax" in ran.stderr
    assert "other:" not in notebook.run("%sky status").stdout


@pytest.mark.parametrize(
    ("framework", "says"),
    [((), "framework=none"), (("tensorflow",), "framework=tensorflow")],
)
def test_frameworks_that_cannot_be_recorded(framework, says):
    with pytest.raises(OptionError, match="needs framework=torch or jax") as caught:
        check_profile(PoolSpec(framework=framework), "comm")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "framework", [("torch",), ("huggingface",), ("keras:torch",), ("jax",), ("keras:jax",)]
)
def test_frameworks_that_bring_torch_or_jax_can(framework):
    check_profile(PoolSpec(framework=framework), "comm")
    check_profile(PoolSpec(), None)


@needs_torch
@pytest.mark.torch
@pytest.mark.gpu
def test_kernels_of_nccl_are_time_in_collectives(notebook):
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL wants a GPU for each of two ranks")
    word = torch.cuda.get_device_name(0).removeprefix("NVIDIA ").split()[0]
    ran = notebook.run(
        f"%%sky_remote pool=g accelerator={word}:2 framework=torch profile=comm\n"
        "import torch, torch.distributed as dist\nt = torch.ones(1000, device='cuda')\n"
        "for _ in range(5): dist.all_reduce(t)\ntorch.cuda.synchronize()",
        timeout=90,
    )
    assert "5 all_reduce" in ran.picture and "20 kB" in ran.picture
    notebook.run("%sky down pool=g")


# ── files and lines ─────────────────────────────────────────────────────────────────────


def profile(**changes):
    kept = {
        "seconds": 2.0,
        "recorded": 2.0,
        "communicating": 0.5,
        "exposed": 0.25,
        "collectives": (Collective("all_reduce", 3, 0.5, 1500, 6000),),
        "trace": gzip.compress(b'{"traceEvents": []}'),
        "events": gzip.compress(b'{"ph":"X"},{"ph":"X"}'),
    }
    return CommProfile(**{**kept, **changes})


def lines_of(profiles):
    return table(profiles).lines


def test_another_folder_is_never_written_to(tmp_path):
    folders = [write({0: profile()}, "run1", tmp_path) for _ in range(3)]
    assert [folder.name for folder in folders] == ["run1", "run1-2", "run1-3"]


def test_ranks_without_events_leave_the_whole_valid(tmp_path):
    without = profile(events=b"", trace=b"", trouble="full")
    folder = write({0: without, 1: profile(), 2: without, 3: profile()}, "run", tmp_path)
    assert len(opened(folder / MERGED)) == 4
    assert not (folder / "rank0.pt.trace.json.gz").exists()


def test_a_line_for_each_rank():
    assert list(lines_of({0: profile(), 1: profile(collectives=())})) == [
        "rank 0: 500 ms in collectives, 25 % of 2 s (250 ms while nothing else ran): "
        "3 all_reduce (500 ms, 6 kB)",
        "rank 1: no collective in 2 s",
    ]


def test_the_ranks_that_compute_longer_are_named():
    def ranks(*shares, name="all_reduce", counts=(40, 40, 40)):
        return {
            rank: profile(steady=share, collectives=(Collective(name, count, 0.5),))
            for rank, (share, count) in enumerate(zip(shares, counts, strict=True))
        }

    said = "rank 2 computed 9 × as long as the others, which waited in collectives"
    assert list(lines_of(ranks(0.9, 0.9, 0.1)))[-1] == said
    # Alike; too few to tell; not the same ones; those that one rank is to wait in.
    alike = ranks(0.5, 0.45, 0.55)
    few = ranks(0.9, 0.9, 0.1, counts=(5, 5, 5))
    others = ranks(0.9, 0.9, 0.1, counts=(40, 40, 41))
    for quiet in (alike, few, others, ranks(0.9, 0.9, 0.1, name="broadcast")):
        assert not [line for line in lines_of(quiet) if "as long as" in line]


def test_what_is_left_out_of_a_recording_is_told():
    said = list(lines_of({0: profile(seconds=60.0), 1: profile(seconds=60.0, collectives=())}))
    rest = "; recorded for 2 s only, as more would take too much memory"
    assert said[0].startswith("rank 0: 500 ms in collectives, 25 % of 2 s (")
    assert said[0].endswith(f"6 kB){rest}")
    assert said[1] == f"rank 1: no collective in 2 s{rest}"


def test_of_many_ranks_the_extremes():
    said = list(lines_of({rank: profile(communicating=rank / 10) for rank in range(20)}))
    assert len(said) == 5
    assert [line.split(":")[0] for line in said[1:]] == ["rank 0", "rank 1", "rank 18", "rank 19"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / FOLDER).write_text("in the way")
    (said,) = told({0: profile()}, "run", tmp_path)
    assert "the traces could not be written to" in said


def test_a_row_for_each_rank_and_a_column_for_each_kind():
    kinds = [Collective(name, 2, seconds / 10, 1000) for seconds, name in enumerate("abcdef")]
    made = table({
        0: profile(collectives=tuple(kinds[::-1])),
        1: profile(collectives=(), communicating=0.0, seconds=60.0),
        2: profile(trouble="no room"),
    })  # fmt: skip
    assert made.columns == (
        "rank",
        "in collectives",
        "of",
        "while nothing else ran",
        *"fedc",
        "other kinds",
    )
    first, second = made.rows
    assert first[:5] == ("0", "500 ms · 25 %", "2 s", "250 ms", "2 × · 500 ms · 1,000 values")
    assert (first[-1], second[4:]) == ("2 more", ("", "", "", "", ""))
    assert made.remarks == (
        "rank 1: recorded for 2 s only, as more would take too much memory",
        "no profile of rank 2: no room",
    )
