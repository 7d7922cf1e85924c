"""Names that outlive their ranks: `checkpoint=`, `sky.checkpoint()` and `resume`, on pools of real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from later import Later, needs
from pools import found, request, values, why_failed
from waiting import until

from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Remark
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.errors import PoolError
from skyward_nb.words.spec import PoolSpec

np = Later("numpy")
MADE = """
import math
import skyward_nb as sky
step = 7 + sky.rank()
history = [1.5, 2.5]
opened = (each for each in [1])
class Model:
    def __init__(self): self.weight = step
    def twice(self): return 2 * self.weight
model = Model()
pair = {'model': model, 'math': math}
"""
BEGINS_WITHOUT = "/default has no checkpoint: ranks begin without names"


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "shared")


def ran(pool, body, namespace=None, watch=lambda _: None):
    pool.look(lambda _: None)
    return pool.run(request(pool, body, namespace), watch)


def killed(pool, rank):
    """Kill a rank, and wait until that is known."""
    os.kill(pool.pids[rank], signal.SIGKILL)
    until(lambda: pool.look(lambda _: None))


def keys(place):
    return sorted(each.name for each in Path(place, "default").iterdir())


def test_a_new_pool_goes_on_from_the_newest_checkpoint(make, place):
    first = make(checkpoint=place, resume=True)
    assert ran(first, "1").pool_lost == (f"{place}{BEGINS_WITHOUT}",)
    ran(first, MADE)
    (at, other) = values(first, "sky.checkpoint()")
    assert at == other and at.startswith(f"{place}/default/{first.pool_id}-g0001-")
    first.close()
    second = make(checkpoint=place, resume=True)
    text = "assert model.twice() == 2 * step == 2 * (7 + sky.rank())\nhistory.append(step)"
    outcome = ran(second, text)
    assert not outcome.failed, why_failed(outcome)
    assert len(outcome.pool_lost) == 1, outcome.pool_lost
    (told,) = outcome.pool_lost
    assert told.startswith("goes on from the checkpoint of ")
    assert told.endswith("left out: opened (generator))")
    assert values(second, "history, pair['model'] is model, math.pi > 3") == [
        ([1.5, 2.5, 7], True, True),
        ([1.5, 2.5, 8], True, True),
    ]


def test_ranks_in_the_place_of_one_that_died_go_on_from_the_last_checkpoint(make, place):
    pool = make(checkpoint=place)
    sent = {"rate": 0.1, "rows": [1], "seen": [0]}
    ran(pool, "total = 0\nseen.append(1)\nrate, rows", sent)
    values(pool, "import skyward_nb as sky\ntotal += 5\nsky.checkpoint()")
    # The notebook's own names have changed since, or not; what is made later is lost.
    sent |= {"rate": 0.2}
    ran(pool, "late = rate", sent)
    sent |= {"rows": [1, 2]}
    killed(pool, 1)
    outcome = ran(pool, "assert (total, rate, rows, seen) == (5, 0.2, [1, 2], [0, 1])", sent)
    assert not outcome.failed, why_failed(outcome)
    assert outcome.names_lost == ["late"]
    assert len(outcome.pool_lost) == 1, outcome.pool_lost
    (told,) = outcome.pool_lost
    assert told.startswith("goes on from the checkpoint of ") and "left out" not in told
    # A name that the notebook binds anew is the notebook's again.
    assert values(pool, "seen", {**sent, "seen": [9]}) == [[9]] * 2
    pool.restart(lambda _: None)
    assert ran(pool, "total").failed, "a person has asked for ranks without names"


@needs("numpy")
def test_a_cell_that_takes_checkpoints_in_its_loop_keeps_what_it_has_changed_so_far(make, place):
    sent = {"epoch": 0, "losses": [], "best": {"loss": [9]}, "w": np.zeros(2), "rate": 0.1}
    sent |= {"noted": [], "shape": (1, 2)}
    pool = make(nodes=1, checkpoint=place)
    ran(
        pool,
        "def note():\n    global shape\n    noted.append(epoch)\n    shape = (*shape, 3)",
        sent,
    )
    outcome = ran(
        pool,
        "import os, skyward_nb as sky\n"
        "while epoch < 3:\n"
        "    epoch += 1; w += 1; losses.append(epoch); best['loss'].append(rate); note(); sky.checkpoint()\n"
        "os._exit(1)",
        sent,
    )
    assert outcome.lost
    text = "epoch, losses, best, w.tolist(), noted, shape, rate"
    (found,) = values(pool, text, {**sent, "rate": 0.2})
    lists = [1, 2, 3], {"loss": [9, 0.1, 0.1, 0.1]}, [3.0, 3.0], [1, 2, 3]
    assert found == (3, *lists, (1, 2, 3, 3, 3), 0.2)


def test_names_that_ranks_changed_are_theirs_in_a_new_pool_until_the_notebook_changes_them(
    make, place
):
    sent = {"total": 0, "rows": [1], "rate": 0.1}
    first = make(nodes=1, checkpoint=place)
    ran(first, "total += 5\nrows.append(2)\nrate", sent)
    values(first, "import skyward_nb as sky\nsky.checkpoint()")
    first.close()
    second = make(nodes=1, checkpoint=place, resume=True)
    assert values(second, "total, rows, rate", {**sent, "rate": 0.2}) == [(5, [1, 2], 0.2)]
    assert values(second, "total, rows", {**sent, "total": 7}) == [(7, [1, 2])]


@pytest.mark.parametrize("provider", ["local", "fake"])
def test_modules_of_the_project_come_with_the_names_that_need_them(
    make, place, tmp_path, monkeypatch, provider
):
    (tmp_path / "kept_model.py").write_text(
        "import kept_layers\nclass M:\n    def __init__(self): self.layer = kept_layers.L()\n"
    )
    (tmp_path / "kept_layers.py").write_text("class L: width = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    options = {"nodes": 1, "checkpoint": place, "provider": provider}
    first = make(**options)
    values(first, "import kept_model, skyward_nb as sky\nm = kept_model.M()\nsky.checkpoint()")
    killed(first, 0)
    assert values(first, "m.layer.width") == [3]
    first.close()
    assert values(make(**options, resume=True), "m.layer.width, kept_model.M is type(m)") == [
        (3, True)
    ]


def test_states_that_were_not_taken_yet_are_in_the_next_checkpoint_too(make, place):
    pool = make(nodes=1, checkpoint=place)
    body = """
class M:
    def __init__(self): self.opened = (each for each in [1])
    def state_dict(self): return {'w': 1}
    def load_state_dict(self, state): pass
m, x = M(), 1
"""
    ran(pool, body)
    for _ in range(2):
        values(pool, "import skyward_nb as sky\nsky.checkpoint()")
        killed(pool, 0)
        (told,) = ran(pool, "x").pool_lost
        assert "of m the state alone" in told


def test_functions_and_classes_are_the_notebooks_own_where_it_has_them(make, place):
    first = make(nodes=1, checkpoint=place)
    ran(first, "def grown(x): return x + 1\nimport skyward_nb as sky\nlevel = grown(1)")
    values(first, "sky.checkpoint()")
    first.close()
    second = make(nodes=1, checkpoint=place, resume=True)
    assert values(second, "grown(level), grown.__globals__ is globals()") == [(3, True)]


def test_a_checkpoint_of_other_ranks_is_refused_and_the_pool_stays(make, place):
    first = make(nodes=2, checkpoint=place)
    values(first, "import skyward_nb as sky\nx = 1\nsky.checkpoint()")
    first.close()
    told = []
    spec = PoolSpec(nodes=3, checkpoint=place, resume=True)
    pool = Pool(spec, PROVIDERS["local"](), lambda _: None)
    pool.start(told.append)
    try:
        pids = [*pool.pids.values()]
        with pytest.raises(PoolError) as caught:
            ran(pool, "x")
        why = caught.value.message
        assert (
            "has names of ranks 0-1, but this pool has 3: start one with as many. It has x. " in why
        )
        assert why.endswith("`%sky restart` begins without them")
        assert why in [each.text for each in told if isinstance(each, Remark)]
        assert [*pool.pids.values()] == pids and not pool.closed
        pool.restart(lambda _: None)
        assert values(pool, "'x' in globals()") == [False] * 3
    finally:
        pool.close()


def test_what_is_half_written_damaged_or_of_others_is_never_taken(make, place):
    pool = make(checkpoint=place)
    values(pool, "import skyward_nb as sky\nx = 1\nsky.checkpoint()")
    whole = values(pool, "x = 2\nsky.checkpoint()")[0]
    Path(values(pool, "x = 3\nsky.checkpoint()")[0], "rank-1.json").unlink()
    assert ran(pool, "if sky.rank(): sky.checkpoint()").done, "some of the ranks alone"
    killed(pool, 0)
    assert values(pool, "x") == [2, 2]
    (data,) = [Path(whole, "rank-1.names")]
    assert data.stat().st_mode & 0o777 == 0o600 and data.parent.stat().st_mode & 0o777 == 0o700
    good = data.read_bytes()
    data.write_bytes(good[:-1] + b"?")
    killed(pool, 0)
    with pytest.raises(PoolError, match=r"rank 1: OSError: .*rank-1.names is damaged"):
        ran(pool, "x")
    data.write_bytes(good)
    data.chmod(0o666)
    with pytest.raises(PoolError, match="may have been written by others"):
        ran(pool, "x")
    data.chmod(0o600)
    assert values(pool, "x") == [2, 2]


def test_pools_of_one_name_leave_each_others_checkpoints_alone(make, place):
    one, other = make(nodes=1, checkpoint=place, resume=True), make(nodes=1, checkpoint=place)
    text = "import skyward_nb as sky\nx = {}\n[sky.checkpoint() for _ in range({})]"
    values(one, text.format(1, 1))
    values(other, text.format(2, 4))
    killed(one, 0)
    assert values(one, "x") == [1], "its own, though another pool's is newer"


def test_clocks_that_differ_and_files_of_others_matter_not(make, place):
    folder = Path(place, "default", "project")
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    (folder / "package.json").write_text("{}")
    pool = make(checkpoint=place)
    text = "import skyward_nb as sky, time\nif sky.rank() == 0:\n    time.time = lambda _now=time.time: _now() - 300"
    ran(pool, text)
    half = Path(place, "default", f"{pool.pool_id}-g0001-r000001-1")
    half.mkdir(mode=0o700)
    (half / "part-rank-1.names-1").write_bytes(b"x")
    at = [values(pool, f"x = {number}\nsky.checkpoint()")[0] for number in range(4)]
    assert Path(at[-1], "rank-0.json").exists() and Path(at[-1], "rank-1.json").exists()
    assert folder.exists() and not half.exists()
    killed(pool, 0)
    assert values(pool, "x") == [3, 3]


def test_after_a_restart_names_from_before_it_do_not_come_back(make, place):
    pool = make(nodes=1, checkpoint=place, resume=True)
    values(pool, "import skyward_nb as sky\nx = 'bad'\nsky.checkpoint()")
    pool.restart(lambda _: None)
    ran(pool, "y = 1")
    killed(pool, 0)
    outcome = ran(pool, "x")
    assert outcome.failed and outcome.pool_lost[0].endswith("ranks begin without names")
    values(pool, "import skyward_nb as sky\nx = 'good'\nsky.checkpoint()")
    killed(pool, 0)
    assert values(pool, "x") == ["good"]


def test_who_attaches_after_a_restart_does_not_get_names_from_before_it(make, place):
    pool = make(nodes=1, checkpoint=place, resume=True)
    values(pool, "import skyward_nb as sky\nx = 'bad'\nsky.checkpoint()")
    pool.restart(lambda _: None)
    ran(pool, "y = 1")
    pool.leave()
    later = found(pool)
    try:
        later.attach(lambda _: None)
        killed(later, 0)
        outcome = ran(later, "x")
        assert outcome.failed and outcome.pool_lost[0].endswith("ranks begin without names")
    finally:
        later.close()


def attached(pool):
    """The pool as the next kernel attaches it; this one has seen the end of its runs."""
    pool.seen()
    pool.leave()
    again = found(pool)
    again.attach(lambda _: None)
    return again


def test_a_client_that_attaches_ranks_without_names_has_them_go_on(make, place):
    """A rank died, and the kernel was restarted before the next cell."""
    first = make(checkpoint=place)
    values(first, "import skyward_nb as sky\nx = 5\nsky.checkpoint()")
    assert ran(first, "import os\nif sky.rank(): os._exit(1)").lost
    second = attached(first)
    assert values(second, "x") == [5, 5]
    ran(second, "del x")
    third = attached(second)
    assert ran(third, "x").failed, "a cell has removed it"
    third.restart(lambda _: None)
    fourth = attached(third)
    outcome = ran(fourth, "x")
    assert outcome.failed and not outcome.pool_lost, "a person has asked for ranks without names"
    killed(fourth, 0)
    outcome = ran(fourth, "x")
    assert outcome.failed and outcome.pool_lost[0].endswith("ranks begin without names")
    fourth.close()


def damaged_for_a_while(pool, rank, why):
    """Ranks that have a checkpoint of x = 5 are begun anew, and cannot have it: a rank's part is damaged, and then whole again."""
    at = values(pool, "import skyward_nb as sky\nx = 5\nsky.checkpoint()")[0]
    part = Path(at, f"rank-{rank}.names")
    whole = part.read_bytes()
    part.write_bytes(b"?")
    killed(pool, 0)
    with pytest.raises(PoolError, match=why):
        ran(pool, "x")
    part.write_bytes(whole)


def test_a_kernel_that_ends_after_names_could_not_be_had_costs_no_checkpoint(make, place):
    """The next one does not take the failed question for a run, and goes on."""
    first = make(nodes=1, checkpoint=place)
    damaged_for_a_while(first, 0, "cannot be had")
    first.leave()
    again = found(first)
    try:
        again.attach(lambda _: None)
        assert values(again, "x") == [5]
    finally:
        again.close()


def test_names_that_some_ranks_alone_have_of_a_checkpoint_are_given_to_all_again(make, place):
    first = make(checkpoint=place)
    damaged_for_a_while(first, 1, "rank 1")
    again = attached(first)
    try:
        # As a notebook does at `%sky attach`.
        again.run(replace(request(again, "1"), cell=None, lists_names=True), lambda _: None)
        assert values(again, "x") == [5, 5]
    finally:
        again.close()


def test_names_of_a_checkpoint_that_a_cell_has_changed_in_place_are_not_given_again(make, place):
    first = make(checkpoint=place)
    values(first, "import skyward_nb as sky\nx = [5]\nsky.checkpoint()")
    killed(first, 0)
    assert values(first, "x.append(6)") == [None, None]
    again = attached(first)
    try:
        assert values(again, "x") == [[5, 6], [5, 6]]
    finally:
        again.close()


def test_nobody_has_to_be_shown_that_a_pool_tried_its_place(make, place):
    pool = make(nodes=1, checkpoint=place)
    pool.leave()
    again = found(pool)
    again.attach(lambda _: None)
    assert again.runs.unseen is None
    again.close()


def test_packages_that_a_client_adds_before_its_first_cell_cost_no_names(make, place):
    first = make(nodes=1, checkpoint=place)
    values(first, "import skyward_nb as sky\nx = 5\nsky.checkpoint()")
    again = attached(first)
    try:
        killed(again, 0)
        again.become(again.spec, lambda _: None)
        assert values(again, "x") == [5]
    finally:
        again.close()


def test_ranks_that_begin_anew_for_packages_or_frameworks_go_on(make, place):
    pool = make(nodes=1, checkpoint=place)
    values(pool, "import skyward_nb as sky\nx = 5\nsky.checkpoint()")
    killed(pool, 0)
    pool.become(pool.spec, lambda _: None)
    assert values(pool, "x") == [5]


def test_a_damaged_checkpoint_is_told_with_the_one_before_it(make, place):
    pool = make(nodes=1, checkpoint=place)
    values(pool, "import skyward_nb as sky\nx = 1\nsky.checkpoint()")
    (at,) = values(pool, "x = 2\nsky.checkpoint()")
    Path(at, "rank-0.names").write_bytes(b"?")
    killed(pool, 0)
    with pytest.raises(PoolError) as told:
        ran(pool, "x")
    assert "To go on from the one before, of " in told.value.message
    assert told.value.message.endswith(
        f"remove {at} and run again; `%sky restart` begins without names"
    )
    assert "It has x. To go on" in told.value.message
    again = make(nodes=1, checkpoint=place, resume=True)
    with pytest.raises(PoolError, match="`%sky restart` begins without names"):
        ran(again, "1")
    again.close()
    shutil.rmtree(at)
    assert values(pool, "x") == [1]


@needs("numpy")
def test_halves_of_earlier_runs_make_room_for_what_is_whole(make, place, tmp_path):
    """The disk was full for one rank; after a name is deleted, the checkpoint fits, but for the other rank's half."""
    pool = make(checkpoint=place)
    full = (
        "import numpy, os, shutil, types, skyward_nb as sky\n"
        "def _size(path):\n"
        "    try:\n"
        "        return os.path.getsize(path)\n"
        "    except FileNotFoundError:  # the other rank has renamed or removed it\n"
        "        return 0\n"
        "def _disk_usage(folder):\n"
        # Unlike `rglob`, it does not mind folders that are removed meanwhile.
        f"    files = (os.path.join(at, name) for at, _, names in os.walk({place!r}) for name in names)\n"
        "    return types.SimpleNamespace(free=1_200_000 - sum(map(_size, files)))\n"
        "shutil.disk_usage = _disk_usage\n"
        "w, big = numpy.ones(50_000), numpy.ones(50_000)"
    )
    ran(pool, full)
    assert ran(pool, "if sky.rank(): sky.checkpoint()").done, "the other one had no room"
    # One after the other, or both may find room that is there once.
    through = str(tmp_path / "through")
    outcome = ran(
        pool,
        "import time\n"
        f"while sky.rank() and not os.path.exists({through!r}): time.sleep(0.01)\n"
        f"try:\n    sky.checkpoint()\nfinally:\n    open({through!r}, 'w').close()",
    )
    (end,) = outcome.failed
    assert (end.rank, end.failure.type_name) == (1, "OSError")
    assert "B free, and " in end.failure.message
    ran(pool, "del big\nw += 1")
    values(pool, "sky.checkpoint()")
    killed(pool, 0)
    assert values(pool, "w.sum(), 'big' in globals()") == [(100_000.0, False)] * 2


def test_names_left_out_before_are_asked_first(make, place):
    pool = make(nodes=1, checkpoint=place)
    text = """
import skyward_nb as sky
class Counted:
    packed = 0
    def __reduce__(self):
        Counted.packed += 1
        return int, ()
counted, opened = Counted(), (each for each in [1])
found = []
for _ in range(3):
    sky.checkpoint()
    found.append(Counted.packed)
    Counted.packed = 0
opened = 5
sky.checkpoint()
found
"""
    ((first, *later),) = values(pool, text)
    assert later == [1, 1] and first > 1
    killed(pool, 0)
    assert values(pool, "opened") == [5]


def test_only_other_pools_checkpoints_are_none_of_ones_own(make, place):
    other, pool = make(checkpoint=place), make(checkpoint=place)
    values(other, "import skyward_nb as sky\nx = 1\nsky.checkpoint()")
    ran(pool, "x = 2")
    # Which it does not read, however many there are.
    (other_key,) = {path.parent for path in Path(place).rglob("rank-0.json")}
    other_key.joinpath("rank-0.json").chmod(0o666)
    killed(pool, 0)
    (told,) = ran(pool, "1").pool_lost
    assert told == f"{place}{BEGINS_WITHOUT}"


def test_the_two_newest_are_kept(make, place):
    pool = make(checkpoint=place)
    made = values(pool, "import skyward_nb as sky\nx = 1\n[sky.checkpoint() for _ in range(4)]")[0]
    assert set(keys(place)) >= {Path(each).name for each in made[-2:]}
    values(pool, "sky.checkpoint()")
    assert len(keys(place)) <= 3
    parts = [json.loads(each.read_bytes()) for each in Path(place).rglob("rank-0.json")]
    assert {part["pool_id"] for part in parts} == {pool.pool_id}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sky.checkpoint()", "make the pool with checkpoint=FOLDER"),
    ],
)
def test_a_checkpoint_needs_a_place(make, body, why):
    pool = make(nodes=1)
    (end,) = ran(pool, f"import skyward_nb as sky\n{body}").failed
    assert why in end.failure.message


def test_a_checkpoint_is_of_all_ranks(make, place):
    pool = make(checkpoint=place)
    outcome = pool.run(
        request(pool, "import skyward_nb as sky\nsky.checkpoint()", ranks=(1,)), lambda _: None
    )
    (end,) = outcome.failed
    assert "names of all 2 ranks, and this runs on 1" in end.failure.message
