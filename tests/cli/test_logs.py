"""logs: what ranks printed, and what is kept of machines."""

from __future__ import annotations

import pytest
from terminals import begun, document, ended, sky
from waiting import until

from skyward_nb.cli.documents import Log, Nodes, Runs
from skyward_nb.providers.folders import runtime_root


def test_logs(no_leaks, tmp_path):
    (tmp_path / "talk.py").write_text(
        "import os, sys\n"
        "for i in range(3): print('line', i)\n"
        "if os.environ['RANK'] == '1': print('only one', file=sys.stderr)\n"
    )
    ran = sky("run", "--json", "nodes=2", "pool=talk", "talk.py", folder=tmp_path)
    run = ran.json["run"]
    first = [f"[{rank}] line {i}" for rank in (0, 1) for i in range(3)]
    ran = sky("logs")
    assert sorted(ran.stdout.splitlines()) == sorted([*first, "[1] only one"])
    assert ran.stderr.startswith(f"run {run}, ")
    ran = sky("logs", run, "rank=0")
    assert ran.stdout.splitlines() == first[:3] and not ran.stderr
    assert sky("logs", "pool=talk", "lines=1", "--rank", "0").stdout == "[0] line 2\n"
    log = document(sky("logs", f"run={run}", "rank=1", "lines=2", "--json"), Log)
    assert (log.run, log.left_out) == (run, 2)
    assert {(line.rank, line.stream) for line in log.lines} <= {(1, "stdout"), (1, "stderr")}
    assert document(sky("logs", "runs", "pool=talk", "--json"), Runs).runs[0].run == run
    assert f"run {run}, " in sky("logs", "runs").stdout
    ran = sky("logs", run, "save=all.txt", folder=tmp_path)
    assert "7 lines" in ran.stdout
    assert sorted((tmp_path / "all.txt").read_text().splitlines()) == sorted(
        [*first, "[1] only one"]
    )
    assert sky("logs", run, "save=all.txt", folder=tmp_path).code == 2
    assert sky("logs", run, "save=b.txt", "--json", folder=tmp_path).code == 2


@pytest.mark.extensive
def test_a_run_that_goes_on_is_followed_to_its_end(no_leaks, tmp_path):
    (tmp_path / "talk.py").write_text(
        "import pathlib, time\n"
        "print('first', flush=True)\n"
        "while not pathlib.Path('end').exists(): time.sleep(0.05)\n"
        "print('last')\n"
    )
    with begun("run", "pool=long", "talk.py", folder=tmp_path) as run:
        until(lambda: "first" in sky("logs", "pool=long").stdout)
        with begun("logs", "follow", "pool=long") as follows:
            assert follows.stdout.readline() == "[0] first\n"
            (tmp_path / "end").touch()
            said = ended(follows)
            assert (said.code, said.stdout) == (0, "[0] last\n")
        assert ended(run).code == 0
    ran = sky("logs", "follow", "--json")
    assert ran.code == 2 and "follow prints lines as they come" in ran.stderr


@pytest.mark.extensive
def test_logs_of_machines(make, tmp_path):
    pool = make(nodes=2, name="mine")
    log = runtime_root() / pool.pool_id / "agent.log"
    assert "no log is kept of node=0 of pool mine" in sky("logs", "node=0", "pool=mine").stdout
    log.write_text("one\ntwo\n")
    ran = sky("logs", "node=1", "pool=mine")
    assert ran.stdout.splitlines() == ["[local] agent.log: one", "[local] agent.log: two"]
    assert ran.stderr == f"nodes of pool {pool.pool_id}: local (nodes 0, 1)\n"
    ran = sky("logs", "node=all", f"pool={pool.pool_id}", "lines=1")
    assert (ran.stdout, ran.stderr) == ("[local] agent.log: two\n", "")
    found = document(sky("logs", "node=local", "lines=1", "pool=mine", "--json"), Nodes)
    assert (found.pool, found.hosts, found.left_out) == (pool.pool_id, {"local": (0, 1)}, 1)
    assert [(word.host, word.part, word.text) for word in found.lines] == [
        ("local", "agent.log", "two")
    ]
    assert "2 lines" in sky("logs", "node=0", "pool=mine", "save=a", folder=tmp_path).stdout
    ran = sky("logs", "node=2", "pool=mine")
    assert ran.code == 2 and "has local (nodes 0, 1); write all" in ran.stderr
