"""status, down, sweep and check, over pools that others have made."""

from __future__ import annotations

import os
import re
import signal
import time

import msgspec
import psutil
import pytest
from pools import request, values
from terminals import begun, document, ended, sky, status_with
from tiers import few
from waiting import until

from skyward_nb.cli import actions
from skyward_nb.cli.actions import down
from skyward_nb.cli.documents import Check, Down, Hang, Status, Sweep
from skyward_nb.cli.pool_client import PoolClient
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.pool.registry import PoolEntry
from skyward_nb.providers import folders
from skyward_nb.providers.fake import FakeMachine
from skyward_nb.providers.far.take_down import EngineSweep
from skyward_nb.providers.folders import runtime_root
from skyward_nb.providers.orphans import Swept
from skyward_nb.reports import cleanup
from skyward_nb.reports.cleanup import CleanupReport
from skyward_nb.reports.hang_check import RunStanding
from skyward_nb.reports.status import PoolRow
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.words.spec import PoolSpec


@pytest.mark.extensive
def test_a_pool_that_somebody_uses(make):
    pool = make(name="mine", nodes=2, ranks_per_node=2)
    said = status_with("mine: ").splitlines()
    assert said[0] == (
        f"mine: 4 ranks on 2 nodes (local) · in use by the kernel (process {os.getpid()}) · idle"
    )
    assert said[1:] == [
        f"  rank {rank}  node {rank // 2}  process {pool.pids[rank]}" for rank in range(4)
    ]
    (row,) = until(lambda: document(sky("status", "--json"), Status).pools)
    assert isinstance(row, PoolRow)
    assert (row.name, row.id, row.nodes, row.ranks_per_node) == ("mine", pool.pool_id, 2, 2)
    assert row.client.process == os.getpid() and row.ends_in is None and row.run is None
    assert [(each.rank, each.node, each.process) for each in row.ranks] == [
        (rank, rank // 2, pool.pids[rank]) for rank in range(4)
    ]
    ran = sky("down", "mine")
    assert ran.code == 1 and not ran.stdout
    assert f"pool 'mine' is in use by the kernel (process {os.getpid()})" in ran.stderr
    ran = sky("down", "all", "--json")
    assert ran.code == 1
    assert [(each.name, each.id) for each in document(ran, Down).kept] == [("mine", pool.pool_id)]
    assert values(pool, "1") == [1] * 4


def test_a_folder_whose_pool_never_came_up_goes_when_pools_are_taken_down():
    made = folders.make_folders("p", "p-never")
    made.let_go()
    said = sky("down", "all").stdout
    assert re.fullmatch(r"no pool is up\nremoved: \d+ folders? of pools that are gone.*\n", said)
    assert not made.runtime.exists() and not made.store.exists()


@pytest.mark.extensive
def test_pools_that_were_left_are_taken_down(make):
    first, second, third = make(name="a"), make(name="b"), make(name="b", nodes=1)
    for pool in (first, second, third):
        pool.leave()
    said = sky("status").stdout
    assert "a: 2 ranks (local) · left by a kernel that is gone, ends itself in" in said
    assert f"pool={second.pool_id}" in said and f"pool={first.pool_id}" not in said
    assert [row.id for row in document(sky("status", "b", "--json"), Status).pools] == [
        third.pool_id,
        second.pool_id,
    ]
    ran = sky("down", "b")
    assert ran.code == 1 and f"pool={second.pool_id}" in ran.stderr
    ran = sky("down", "a", f"pool={second.pool_id}")
    assert ran.code == 0
    assert ran.stdout.splitlines() == [
        "pool a is down: 2 ranks ended, nothing left running",
        "pool b is down: 2 ranks ended, nothing left running",
    ]
    (gone,) = document(sky("down", "--json"), Down).ended
    assert (gone.name, gone.id, gone.ranks) == ("b", third.pool_id, 1)
    assert sky("status").stdout == "no pool is up\n"
    ran = sky("down", "a")
    assert ran.code == 1 and ran.stderr == "skyward-nb: no pool 'a' is alive\n"


@pytest.mark.parametrize("as_json", few(1, [True, False]), ids=["json", "lines"])
def test_machines_that_may_run_on_are_named_and_no_success(make, monkeypatch, capsys, as_json):
    pool = make(provider="fake", nodes=1)
    pool.leave()
    release = FakeMachine.release

    async def may_run(machine):
        await release(machine)
        return "i-1"

    monkeypatch.setattr(FakeMachine, "release", may_run)
    assert down(ParsedOptions(), [], as_json) == 1
    said = capsys.readouterr().out
    if as_json:
        (ended,) = msgspec.json.decode(said, type=Down).ended
        assert (ended.id, ended.may_run) == (pool.pool_id, "i-1")
    else:
        assert said == "pool default is down: 1 rank ended; i-1 may run on\n"


def test_what_runs_is_told_and_where_its_ranks_are(make):
    pool = make()
    # It goes on for all that is asked meanwhile, each time by a process that has to start.
    work = request(pool, "import time\ntime.sleep(600)", number=1, began=time.time())
    pool.begin(work, lambda _: None)
    said = status_with("default: ")
    assert re.search(r"In\[1\] has been running for .+ on ranks 0-1", said)
    (row,) = until(lambda: document(sky("status", "--json"), Status).pools)
    assert (row.run.number, row.run.what, row.run.running) == (1, "Cell In[1]", (0, 1))
    said = sky("check", "hang").stdout
    assert "pool default of another kernel: Cell In[1] has run for" in said

    def asked():
        ran = sky("check", "hang", "--json", "pool=default")
        (standing,) = document(ran, Hang).pools
        assert isinstance(standing, RunStanding)
        assert standing.state == "running" and standing.id == pool.pool_id
        # A rank that has no processor for a second does not answer.
        is_whole = {*standing.ranks} == {0, 1} and "ranks 0-1" in standing.sentence
        return is_whole and "ranks 0-1" in standing.stacks

    until(asked)
    pool.leave()
    ran = sky("check", "pool=default")
    assert ran.code == 1
    assert "pool 'default' is up, and In[1] has been running for" in ran.stderr
    assert "`skyward-nb down default` ends it" in ran.stderr
    assert sky("down", "default").code == 0


@pytest.mark.extensive
def test_a_pool_that_is_up_is_checked_and_stays(make):
    pool = make(nodes=2)
    values(pool, "kept = 5\n1")
    pool.seen()
    pids = dict(pool.pids)
    pool.leave()
    ran = sky("check", "pool=default")
    assert ran.code == 0, ran.stderr
    assert "all 2 ranks have the same: " in ran.stdout
    assert "both ranks reach each other" in ran.stdout
    found = document(sky("check", "--json", f"pool={pool.pool_id}"), Check)
    assert found.pool == "default"
    assert [each.rank for each in found.found.ranks] == [0, 1]
    assert [way.to for way in found.found.reach[0]] == [1]
    assert found.found.connection.link.speed > 0
    assert found.found.reductions.why_not and not found.found.reductions.timings
    (row,) = document(sky("status", "--json"), Status).pools
    assert {each.rank: each.process for each in row.ranks} == pids
    ran = sky("check", "pool=default", "nodes=3")
    assert ran.code == 1 and "is up with nodes=2, and nodes=3 was asked for" in ran.stderr
    assert "`skyward-nb down pool=default` first" in ran.stderr
    assert sky("down").code == 0


@pytest.mark.extensive
def test_a_pool_is_made_for_a_check_and_gone_after(no_leaks):
    ran = sky("check", "nodes=2", "--json")
    assert ran.code == 0, ran.stderr
    assert len(document(ran, Check).found.ranks) == 2
    assert "Starting 2 ranks (local)" in ran.stderr
    assert sky("status").stdout == "no pool is up\n"


def test_an_interrupt_as_the_last_output_is_shown_keeps_no_pool_up(make, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    client = PoolClient(make(nodes=1), is_guest=False)
    monkeypatch.setattr(PoolDisplays, "look", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.end()
    assert client.pool.closed


@pytest.mark.extensive
def test_what_a_dead_agent_left_is_swept(make, tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path))  # no engine was ever asked for a machine
    pool = make()
    folder = runtime_root() / pool.pool_id
    agent = psutil.Process(int((folder / "lock").read_text()))
    forge = agent.children()
    agent.kill()
    psutil.wait_procs(forge, timeout=20)
    swept = document(sky("sweep", "--json"), Sweep)
    assert swept.folders == 1
    assert not folder.exists()
    assert sky("sweep").stdout == "nothing is left over\n"


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.extensive), signal.SIGTERM]
)
def test_a_check_that_is_stopped_leaves_nothing(no_leaks, number, tmp_path):
    # Its pool comes up slowly: else it may be over before it is stopped.
    slow = "import sys, time\nif 'skyward_nb.node' in sys.orig_argv: time.sleep(5)\n"
    (tmp_path / "sitecustomize.py").write_text(slow)
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    with begun("check", "nodes=2", PYTHONPATH=path) as process:
        until(lambda: [*runtime_root().glob("*/lock")])
        process.send_signal(number)
        ran = ended(process)
    assert ran.code == 130, ran
    assert "Traceback" not in ran.stderr
    assert sky("status").stdout == "no pool is up\n"


def test_a_pool_elsewhere_that_does_not_answer_is_no_pool_less(monkeypatch, capsys):
    """It may cost money: that none is up, and that all is well, would be untrue."""
    said = "pool 'far' (8 ranks) does not answer: ..."
    monkeypatch.setattr(actions, "others", lambda _: [])
    monkeypatch.setattr(actions, "unanswered", lambda _: [said])
    far = PoolEntry(pool_id="far-1", spec=PoolSpec(name="far"), notebook="", started=0.0)
    monkeypatch.setattr(actions, "silent", lambda _: [far])
    monkeypatch.setattr(actions, "ended_of", lambda _: "")
    asked = ParsedOptions()
    assert actions.status(asked, [], as_json=False) == 0
    assert capsys.readouterr() == ("", f"{said}\n")
    assert actions.status(asked, [], as_json=True) == 0
    (told,) = msgspec.json.decode(capsys.readouterr().out, type=Status).silent
    assert (told.name, told.id, told.gone) == ("far", "far-1", False)
    assert "skyward-nb down pool=far-1 forgets it now" in told.why
    assert actions.down(ParsedOptions(rest=("all",)), [], as_json=False) == 1
    assert capsys.readouterr().err == f"{said}\n"
    assert actions.down(asked, [], as_json=False) == 0, "it was not meant"
    capsys.readouterr()
    monkeypatch.setattr(actions, "unanswered", lambda _: [])
    monkeypatch.setattr(actions, "silent", lambda _: [])
    assert actions.down(asked, [], as_json=False) == 0
    assert "no pool is up" in capsys.readouterr().out


def test_a_sweep_that_leaves_something_has_failed(monkeypatch, capsys):
    """Whoever runs it at night sees only its exit code."""
    found = EngineSweep()
    report = CleanupReport(Swept(), engines={"Slurm": found})
    monkeypatch.setattr(cleanup, "clean_up", lambda ends_stopped: report)
    monkeypatch.setattr(actions, "others", lambda _: [])
    assert actions.sweep(ParsedOptions(), [], as_json=False) == 0
    found.left.append("job 7 (Slurm does not answer)")
    assert actions.sweep(ParsedOptions(), [], as_json=False) == 1
    assert "not confirmed to be gone: job 7" in capsys.readouterr().out
