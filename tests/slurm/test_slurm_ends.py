"""A job that ends on nodes where Slurm itself follows processes by their parents alone: nothing escapes it."""

import os

import psutil
import pytest
from pools import values
from waiting import until

from skyward_nb.providers.slurm import allocation
from skyward_nb.providers.slurm.job_records import JobRecord

pytestmark = [pytest.mark.extensive, pytest.mark.timeout(300)]
CLUSTER = {"ProctrackType": "proctrack/linuxproc", "UnkillableStepTimeout": 8, "KillWait": 2}
"""Of what it cannot kill within these seconds a node is drained, which somebody has to look at."""

_STUBBORN = """
import os, subprocess, sys
body = '''
import os, signal, time
for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(each, signal.SIG_IGN)
if os.fork():
    os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
os.dup2(os.open("/dev/null", os.O_RDWR), 1)
time.sleep(3600)
'''
child = subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE, start_new_session=True)
int(child.stdout.readline())
"""


def down(_cluster, pool):
    pool.close()


def cancelled(cluster, pool):
    cluster.say("scancel", job_of(pool))
    until(cluster.is_empty)
    pool.close()


def agent_killed(cluster, pool):
    """What it was the parent of is nobody's then."""
    here = [psutil.Process(pid) for pid in cluster.processes(job_of(pool))]
    found = {each.pid: each for each in here if "skyward_nb.node" in each.cmdline()}
    agents = [each for each in found.values() if each.ppid() not in found]
    assert len(agents) == 2
    for each in agents:
        each.kill()
    pool.close()


def job_of(pool):
    return pool.context.generations.machines[0].allocation.record.job


@pytest.mark.parametrize("end", [down, cancelled, agent_killed], ids=lambda end: end.__name__)
def test_a_ranks_child_in_a_session_of_its_own_that_ignores_signals_ends_with_the_job(
    slurm, cluster, end
):
    pool = slurm()
    pool.start(lambda _: None)
    job = job_of(pool)
    pids = values(pool, _STUBBORN)
    assert len({os.getsid(pid) for pid in pids}) == 2
    end(cluster, pool)
    until(cluster.is_empty)
    until(lambda: not cluster.processes(job), told=lambda: cluster.processes(job))
    until(lambda: not any(map(psutil.pid_exists, pids)), told=lambda: pids)
    until(
        lambda: (
            cluster.say("sinfo", "-h", "-p", "debug", "-o", "%T %E").split("\n") == ["idle none"]
        )
    )
    assert not pool.closing.may_run


def test_a_job_whose_node_is_completing_is_named(slurm, cluster, tmp_path, monkeypatch):
    """A site's epilog that waits, as where a file system does not answer: on one node, then on none."""
    monkeypatch.setattr(allocation, "_END_LIMIT", 6.0)
    epilog, begun, done = (tmp_path / each for each in ("epilog", "begun", "done"))
    epilog.write_text(
        f'#!/bin/sh\n[ "$SLURMD_NODENAME" = c2 ] || exit 0\n: >{begun}\n'
        f"until [ -e {done} ]; do sleep 0.1; done\n"
    )
    epilog.chmod(0o755)
    with cluster.configured(Epilog=epilog):
        pool = slurm()
        pool.start(lambda _: None)
        job = job_of(pool)
        words = rf"job {job} \(COMPLETING on c2\) is still in the queue .*`squeue -j {job}`"
        with pytest.warns(UserWarning, match=words):
            pool.close()
        assert begun.exists()
        assert pool.closing.spell_end() == f"2 ranks ended; job {job} (COMPLETING on c2) may run on"
        assert cluster.queue() == [f"{job} COMPLETING"]
        done.touch()
        until(cluster.is_empty)
        (record,) = JobRecord.every()
        assert record.is_left
        again = slurm()
        again.start(lambda _: None)  # sweeps what was left
        assert [each.job for each in JobRecord.every()] == [job_of(again)]
        again.close()
        assert not again.closing.may_run
