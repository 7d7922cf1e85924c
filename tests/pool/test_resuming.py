"""Names that outlive their ranks: `checkpoint=`, `sky.checkpoint()` and `resume`, on pools of real processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from later import Later
from pools import follow, found, request, values
from waiting import until

from skyward_nb.words.errors import PoolError

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
    assert not outcome.failed, outcome.failed
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
    assert not outcome.failed, outcome.failed
    assert outcome.names_lost == ["late"]
    (told,) = outcome.pool_lost
    assert told.startswith("goes on from the checkpoint of ") and "left out" not in told
    # A name that the notebook binds anew is the notebook's again.
    assert values(pool, "seen", {**sent, "seen": [9]}) == [[9]] * 2
    pool.restart(lambda _: None)
    assert ran(pool, "total").failed, "a person has asked for ranks without names"


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


def test_a_checkpoint_of_other_ranks_is_refused_and_nothing_is_left(make, place):
    first = make(nodes=2, checkpoint=place)
    values(first, "import skyward_nb as sky\nx = 1\nsky.checkpoint()")
    first.close()
    with pytest.raises(PoolError, match="has names of ranks 0-1, and this pool is of 3"):
        make(nodes=3, checkpoint=place, resume=True)


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


# ── at notice ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def announced(make, place, monkeypatch):
    """Makes a pool of this machine, and has its agent hear that the machine ends, as Slurm tells it."""

    def made(seconds, **options):
        monkeypatch.setenv("SKYWARD_NOTICES", f"signal:{seconds}")
        pool = make(checkpoint=place, **options)
        agent = pool.context.generations.machines[0]._agent.pid
        return pool, lambda: os.kill(agent, signal.SIGUSR2)

    return made


def test_idle_ranks_keep_their_names_at_notice_though_nobody_listens(announced, place):
    pool, notice = announced(60)
    ran(pool, "x = 5")
    notice()
    until(lambda: len(list(Path(place).rglob("rank-?.json"))) == 2)
    (key,) = keys(place)
    assert key == f"{pool.pool_id}-g0001-r000001-notice"
    # Whoever comes next is told, and so are ranks that are begun anew.
    outcome = ran(pool, "y = x + 1")
    (told,) = outcome.pool_lost
    assert told.startswith("names are kept in the checkpoint of ") and "(1 name, " in told
    killed(pool, 0)
    assert values(pool, "x, 'y' in globals()") == [(5, False)] * 2


def test_a_cell_is_stopped_while_there_is_time_and_ranks_keep_their_names(announced, place):
    pool, notice = announced(8)
    begun = []

    def watch(event):
        if not begun and getattr(event, "text", "") == "begun\n":
            begun.append(event)
            notice()

    text = """
import time, skyward_nb as sky
print('begun')
for count in range(10_000):
    time.sleep(0.01)
"""
    outcome = ran(pool, text, watch=watch)
    assert outcome.reclaimed and not outcome.interrupted and not outcome.failed
    (told,) = outcome.pool_lost
    assert told.startswith("names are kept in the checkpoint of ")
    counts = values(pool, "count")
    assert all(0 < count < 5_000 for count in counts)
    killed(pool, 1)
    assert values(pool, "count") == counts


def test_a_cell_that_goes_on_without_a_client_is_stopped_by_the_agent(announced, make, place):
    pool, notice = announced(6)
    text = "import time\nfor count in range(100_000):\n    time.sleep(0.01)"
    pool.begin(request(pool, text), lambda _: None)
    pool.leave()
    notice()
    until(lambda: len(list(Path(place).rglob("*-notice/rank-?.json"))) == 2)
    again = found(pool)
    again.attach(lambda _: None)
    outcome = follow(again, lambda _: None)
    assert outcome.reclaimed and outcome.done[0].interrupted
    assert outcome.pool_lost[-1].startswith("names are kept in the checkpoint of ")
    again.close()
    assert all(0 < count < 50_000 for count in values(make(checkpoint=place, resume=True), "count"))


@pytest.fixture
def elsewhere(make, place, monkeypatch):
    """A pool of two machines that are elsewhere, and share a folder; the second one is about to be taken back."""
    monkeypatch.setenv("SKYWARD_NOTICES", "signal:12")
    pool = make(provider="fake", on_preempt="replace", checkpoint=place)
    machine = pool.context.generations.machines[1]
    agent = machine._here._agent.pid
    return pool, machine, lambda: os.kill(agent, signal.SIGUSR2)


def test_another_machine_goes_on_where_the_one_was_that_was_taken_back(elsewhere, place):
    pool, machine, notice = elsewhere
    ran(pool, "import skyward_nb as sky\nx = [sky.rank()]")
    notice()
    until(lambda: len(list(Path(place).rglob("rank-1.json"))) == 1)
    machine.take_back()
    until(lambda: pool.look(lambda _: None))
    outcome = ran(pool, "x.append(sky.rank())")
    assert outcome.names_lost == [] and not outcome.failed
    replaced, resumed = outcome.pool_lost
    assert replaced.startswith("fake1+ in place of node 1 (fake1)")
    assert resumed.startswith("goes on from the checkpoint of ") and "(1 name, " in resumed
    assert values(pool, "x") == [[0, 0], [1, 1]]


def test_all_machines_keep_the_same_moment_where_one_is_announced_in_a_cell(elsewhere):
    pool, _, notice = elsewhere
    begun = []

    def watch(event):
        if not begun and getattr(event, "text", "") == "begun\n":
            begun.append(event)
            notice()

    text = "import time\nprint('begun')\nfor count in range(100_000):\n    time.sleep(0.01)"
    outcome = ran(pool, text, watch=watch)
    assert outcome.reclaimed and not outcome.failed
    assert any(each.startswith("names are kept in the checkpoint") for each in outcome.pool_lost)
    outcome = ran(pool, "count")
    assert outcome.pool_lost[-1].startswith("goes on from the checkpoint of ")
    assert pool.context.generations.machines[1].name == "fake1+"
