"""Names that ranks keep when their machine is about to be taken back, on pools of real processes."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from pools import follow, found, request, values
from waiting import until

from skyward_nb.pool import registry


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "shared")


def ran(pool, body, watch=lambda _: None):
    pool.look(lambda _: None)
    return pool.run(request(pool, body), watch)


def killed(pool, rank):
    """Kill a rank, and wait until that is known."""
    os.kill(pool.pids[rank], signal.SIGKILL)
    until(lambda: pool.look(lambda _: None))


def keys(place, name="default"):
    return sorted(each.name for each in Path(place, name).iterdir())


@pytest.fixture
def announced(make, place, monkeypatch):
    """Makes a pool of this machine, and has its agent hear that the machine ends, as Slurm tells it."""

    def made(seconds, **options):
        monkeypatch.setenv("SKYWARD_NOTICES", f"signal:{seconds}")
        pool = make(checkpoint=place, **options)
        agent = pool.context.generations.machines[0]._agent.pid
        return pool, lambda: os.kill(agent, signal.SIGUSR2)

    return made


def test_a_place_that_will_not_do_is_told_at_once(make, place):
    Path(place, "default").mkdir(parents=True)
    Path(place, "default").chmod(0o777)
    pool = make(checkpoint=place)
    (told,) = ran(pool, "1").pool_lost
    assert told.startswith(f"names cannot be kept in {place}/default: rank 0: PermissionError: ")
    Path(place, "default").chmod(0o700)
    ran(
        pool, "import os, skyward_nb as sky\nif sky.rank(): os.environ['SKYWARD_KEPT_NAMES'] += '2'"
    )
    pool.runs.probe(lambda _: None)
    assert ran(pool, "1").pool_lost == (
        f"names cannot be kept in {place}/default: it is not one place for all machines: rank 0 does not see what "
        "rank 1 wrote",
    )
    assert keys(place) == keys(place, "default2") == []


def test_idle_ranks_keep_their_names_at_notice_though_nobody_listens(announced, place):
    pool, notice = announced(60)
    ran(pool, "x = 5")
    notice()
    until(lambda: len(list(Path(place).rglob("rank-?.json"))) == 2)
    (key,) = keys(place)
    assert key == f"{pool.pool_id}-g0001-r000004-notice"
    # Whoever comes next is told, and so are ranks that are begun anew.
    outcome = ran(pool, "y = x + 1")
    (told,) = outcome.pool_lost
    assert told.startswith("names are kept in the checkpoint of ") and "(2 names, " in told
    killed(pool, 0)
    assert values(pool, "x, y") == [(5, 6)] * 2, "kept anew after that cell"


def test_a_question_between_a_notice_and_the_next_cell_divides_no_checkpoint(announced, place):
    """Each machine counts the runs that it was sent; a question may be for the ranks of one."""
    pool, notice = announced(60)
    ran(pool, "x = 5")
    notice()
    until(lambda: len(list(Path(place).rglob("rank-?.json"))) == 2)
    pool.run(replace(request(pool, "x"), aside=True, ranks=(0,)), lambda _: None)
    ran(pool, "y = x + 1")
    first, *_ = keys(place)
    assert first == f"{pool.pool_id}-g0001-r000004-notice"


def test_a_transfer_of_names_is_not_stopped_at_a_notice_nor_a_cell_after_it(announced):
    pool, notice = announced(2)
    ran(pool, "x = 5")
    notice()
    until(lambda: pool.context.lines.links[0].noticed or pool.look(lambda _: None))
    slow = "__import__('time').sleep(1.2)"
    question = replace(request(pool, slow), aside=True)
    assert not pool.run(question, lambda _: None).reclaimed
    outcome = ran(pool, "import time\ntime.sleep(2)")
    assert not outcome.reclaimed and not outcome.failed


def test_what_raises_as_names_are_packed_ends_no_rank(announced):
    pool, notice = announced(60)
    ran(pool, "class Ends:\n    def __reduce__(self): raise SystemExit(3)\nends = Ends()")
    notice()
    until(lambda: pool.context.lines.links[0].noticed or pool.look(lambda _: None))
    outcome = ran(pool, "1")
    assert outcome.pool_lost == (
        "names are not kept, the checkpoint before holds: rank 0: SystemExit: 3, rank 1: SystemExit: 3",
    )
    assert not outcome.lost_before and not outcome.failed


def test_an_interrupt_while_names_are_kept_is_that_of_the_cell(announced):
    pool, notice = announced(60)
    slow = "import time\nclass Slow:\n    def __reduce__(self):\n        time.sleep(100)\nslow = Slow()"
    ran(pool, slow)
    notice()
    until(lambda: pool.context.lines.links[0].noticed or pool.look(lambda _: None))

    def interrupting(times):
        counted = iter(range(1, 10))

        def watch(event):
            if (
                getattr(event, "text", "").startswith("keeping the names")
                and next(counted) == times
            ):
                os.kill(os.getpid(), signal.SIGINT)

        return watch

    with pytest.raises(KeyboardInterrupt):
        ran(pool, "x = 1", watch=interrupting(1))
    for pid in pool.pids.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(pool.look(lambda _: None)) == 2)
    outcome = ran(pool, f"assert 'x' not in globals()\n{slow}", watch=interrupting(2))
    assert not outcome.failed and not outcome.interrupted
    (*_, told) = outcome.pool_lost
    why = "rank 0: interrupted, rank 1: interrupted"
    assert told == f"names are not kept, the checkpoint before holds: {why}"


def test_a_cell_is_stopped_while_there_is_time_and_ranks_keep_their_names(announced, place):
    pool, notice = announced(8)
    begun = []

    def watch(event):
        if not begun and "begun" in getattr(event, "text", ""):
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


def test_a_cell_whose_client_is_asleep_is_stopped_by_the_agent(announced, place):
    # The agent looks a second time when a quarter of it is left.
    pool, notice = announced(14)
    text = "import time\nfor count in range(100_000):\n    time.sleep(0.01)"
    run = pool.begin(request(pool, text), lambda _: None)
    # Else it may be a cell after the notice, which goes on.
    until(lambda: (now := registry.condition(pool.entry)) and now.running)
    notice()
    until(lambda: len(list(Path(place).rglob("*-notice/rank-?.json"))) == 2)
    outcome = pool.runs.finish(run, lambda _: None)
    assert outcome.reclaimed and not outcome.interrupted


def test_a_cell_that_goes_on_without_a_client_is_stopped_by_the_agent(announced, make, place):
    pool, notice = announced(8)
    text = "import time\nfor count in range(100_000):\n    time.sleep(0.01)"
    pool.begin(request(pool, text), lambda _: None)
    until(lambda: (now := registry.condition(pool.entry)) and now.running)
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
    # The word of it is on its way, perhaps still in an agent that waits for a processor.
    until(lambda: pool.look(lambda _: None) or pool.context.lines.links[1].noticed)
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
        if not begun and "begun" in getattr(event, "text", ""):
            begun.append(event)
            notice()

    text = "import time\nprint('begun')\nfor count in range(100_000):\n    time.sleep(0.01)"
    outcome = ran(pool, text, watch=watch)
    assert outcome.reclaimed and not outcome.failed
    assert any(each.startswith("names are kept in the checkpoint") for each in outcome.pool_lost)
    outcome = ran(pool, "count")
    assert outcome.pool_lost[-1].startswith("goes on from the checkpoint of ")
    assert pool.context.generations.machines[1].name == "fake1+"
