"""Pools on a real Slurm cluster of this machine: they come up, wait, run, are found again, and end."""

import os
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from ddp_cell import DDP
from engine_pools import attached_to
from later import needs
from msgspec.structs import replace
from pools import found, request, values
from sshds import lacks as ssh_lacks
from sshds import sshd
from tiers import few
from waiting import until

from skyward_nb.pool import registry
from skyward_nb.protocol.events import Output, Phase, Remark
from skyward_nb.providers.far.engine_machine import EngineMachine
from skyward_nb.providers.far.keeper import first
from skyward_nb.providers.loop_thread import LOOP
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.slurm import slurm_machine
from skyward_nb.providers.slurm.batch_script import job_name, keep_of
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.login_node import over_login
from skyward_nb.reports.cleanup import clean_up
from skyward_nb.words.errors import PoolError, StartError
from skyward_nb.words.offers import Need


def phases(events):
    return [each.text for each in events if isinstance(each, Phase) and each.text]


def job_of(pool):
    return pool.context.generations.machines[0].allocation.record.job


# ── what runs there ─────────────────────────────────────────────────────────────────────

_WHERE = """
import os
(os.environ['RANK'], os.environ['SLURMD_NODENAME'], os.environ['SLURM_JOB_ID'],
 os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('SKYWARD_SECRET'),
 open('/proc/self/cgroup').read())
"""


def test_a_pool_comes_up_on_its_nodes_and_goes_with_its_job(slurm, cluster, monkeypatch):
    monkeypatch.setenv("SKYWARD_SECRET", "hunter2")
    monkeypatch.setenv("SLURM_MEM_PER_GPU", "7")  # as where the notebook is in a job itself
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "7")
    gres = {"gres": "gpu:a100:2"} if cluster.has_gpus else {}
    pool, events = slurm(ranks_per_node=2, job=gres), []
    pool.start(events.append)
    said = phases(events)
    assert said[0] == "asking Slurm for nodes"
    job = job_of(pool)
    assert f"job {job} has c1, c2" in said
    told = values(pool, _WHERE)
    assert [each[:3] for each in told] == [
        (str(rank), f"c{rank // 2 + 1}", job) for rank in range(4)
    ]
    assert {each[3] for each in told} == {"0,1" if cluster.has_gpus else None}
    assert {each[4] for each in told} == {None}  # a notebook's variables stay where they are
    if cluster.uses_cgroups:
        assert all(f"/job_{job}/" in each[5] for each in told)
    large = os.urandom(3 << 20)
    assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 4
    assert cluster.queue() == [f"{job} RUNNING"]
    pool.close()
    assert cluster.is_empty()
    assert not pool.closing.may_run
    assert not JobRecord.every()
    assert not [*Path(os.environ["SKYWARD_CACHE_DIR"]).glob("slurm/*")]
    kept = [Path(keep_of(pool.pool_id, job, node)) for node in ("c1", "c2")]
    until(lambda: not any(each.exists() for each in kept))


_LEAVES = """
import sys
import msgspec
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.spec import PoolSpec
if __name__ == "__main__":
    spec = msgspec.json.decode(sys.stdin.read(), type=PoolSpec)
    pool = Pool(spec, PROVIDERS["slurm"](), lambda _: None, pool_id="slurm-abcdef")
    pool.start(lambda _: None)
    print("up", flush=True)
    import time
    time.sleep(600)
"""


def test_a_pool_whose_notebook_was_killed_is_found_again_until_its_job_is_cancelled(
    slurm, cluster, no_leaks
):
    spec = slurm().spec
    with subprocess.Popen(
        [sys.executable, "-c", _LEAVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as notebook:
        notebook.stdin.write(msgspec.json.encode(spec))
        notebook.stdin.close()
        assert notebook.stdout.readline() == b"up\n"
        notebook.send_signal(signal.SIGKILL)
    (entry,) = registry.entries()
    again = until(lambda: attached_to(entry.pool_id))
    assert values(again, "1") == [1, 1]
    job = job_of(again)

    # Slurm's controller comes and goes; the pool takes no notice.
    cluster.keep(job)
    cluster.kill("slurmctld")
    assert values(again, "2") == [2, 2]
    no_leaks.add(f"child {cluster.start_controller()}")
    until(lambda: cluster.queue() == [f"{job} RUNNING"])
    assert values(again, "3") == [3, 3]

    def watch(event):
        if isinstance(event, Output) and "begun" in event.text and event.rank == 0:
            cluster.say("scancel", job)

    body = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    again.look(lambda _: None)
    with pytest.raises(PoolError, match=f"job {job}: it was cancelled"):
        again.run(request(again, body), watch)
    assert again.closed
    until(cluster.is_empty)
    assert not registry.entries()


# ── what does not come up ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "words"),
    few(3, [
        ({"nodes": 5}, r"would never start: partition debug gives no job 5 nodes: .*nodes="),
        ({"job": {"partition": "nogo"}}, r"would never start: partition nogo takes no jobs now"),
        ({"job": {"extra": ("--hold",)}}, r"would never start: it is held: `scontrol release"),
        ({"job": {"partition": "none"}}, r"Slurm refused the job: .*nvalid partition.*`sinfo`"),
        ({"job": {"gres": "gpu:h100:1"}}, r"Slurm refused the job: .*`sinfo -o '%N %c %m %G'`|gres="),
    ]),
)  # fmt: skip
def test_what_cannot_start_is_said_at_once_and_nothing_is_left(slurm, cluster, options, words):
    pool = slurm(**options)
    with pytest.raises(StartError, match=words):
        pool.start(lambda _: None)
    assert cluster.is_empty()
    assert not JobRecord.every()


@pytest.mark.extensive
def test_a_batch_script_that_fails_says_its_words(slurm, cluster, access):
    failing = (*access().before, "echo no such module >&2", "exit 7")
    pool = slurm()
    pool.context.spec = replace(pool.spec, slurm=replace(pool.spec.slurm, before=failing))
    with pytest.raises(StartError, match="no such module"):
        pool.start(lambda _: None)
    assert cluster.is_empty()


def test_a_pool_that_waits_says_why_and_an_interrupt_cancels_its_job(slurm, cluster):
    other = cluster.say("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 600")
    until(lambda: cluster.queue() == [f"{other} RUNNING"])
    pool, told = slurm(), []
    work = LOOP.start(pool.context.provider.acquire(pool.spec, pool.pool_id, told.append))
    until(lambda: any("(Resources)" in text for text in phases(told)))
    assert len(cluster.queue()) == 2
    (record,) = JobRecord.every()
    assert (record.pool_id, record.nodes) == (pool.pool_id, ())
    work.give_up()
    assert cluster.queue() == [f"{other} RUNNING"]
    assert not JobRecord.every()
    cluster.say("scancel", other)


@pytest.mark.extensive
def test_a_job_whose_notebook_was_killed_while_it_waited_is_cancelled_by_the_next(
    slurm, cluster, access
):
    maker = replace(MakerProcess.this(), since=1.0)
    # Its id is not known: the answer to its submission never came.
    JobRecord(pool_id="lost-123456", access=access(), maker=maker).write()
    cluster.say("sbatch", "--hold", f"--job-name={job_name('lost-123456')}", "--wrap", "true")
    assert len(cluster.queue()) == 1
    pool, events = slurm(nodes=5), []
    with pytest.raises(StartError, match="would never start"):
        pool.start(events.append)
    assert any(isinstance(each, Remark) and "lost-123456" in each.text for each in events)
    assert cluster.is_empty()
    assert not JobRecord.every()


def test_a_pool_in_a_job_that_is_there_leaves_the_job_as_it_was(slurm, cluster, monkeypatch):
    mine = cluster.say("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 600")
    until(lambda: cluster.queue() == [f"{mine} RUNNING"])
    with pytest.raises(StartError, match="in no job of Slurm's"):
        slurm(job={"job": "current"}).start(lambda _: None)
    monkeypatch.setenv("SLURM_JOB_ID", mine)
    with pytest.raises(StartError, match=f"nodes=3, and job {mine} has 2"):
        slurm(nodes=3, job={"job": "current"}).start(lambda _: None)
    pool = slurm(nodes=1, job={"job": "current"})
    pool.start(lambda _: None)
    assert values(pool, "import os\nos.environ['SLURM_JOB_ID']") == [mine]
    pool.close()
    assert cluster.queue() == [f"{mine} RUNNING"]
    until(
        lambda: (
            cluster.say("squeue", "-h", "-s", "-j", mine, "-o", "%i") == f"{mine}.batch"
            or not [
                line
                for line in cluster.say("squeue", "-h", "-s", "-o", "%i").split()
                if not line.endswith(".batch")
            ]
        )
    )
    assert not JobRecord.every()
    cluster.say("scancel", mine)


@pytest.mark.extensive
@pytest.mark.parametrize("forwards", ["yes", "no"])
def test_from_a_machine_without_slurm_by_its_login_node(
    slurm, cluster, tmp_path, monkeypatch, forwards
):
    """Values go by TCP that the login node forwards (`ssh -W`), and through srun where it forwards none."""
    if ssh_lacks():
        pytest.skip(ssh_lacks())
    real = shutil.which("ssh")
    # Ten are usual; what one connection does not take has one of its own.
    options = {"MaxSessions": "2", "AllowTcpForwarding": forwards}
    with sshd(tmp_path / "sshd", cluster.environ, **options) as server:
        folder, log = tmp_path / "bin", tmp_path / "asked"
        folder.mkdir()
        own = (
            f'#!/bin/sh\nprintf "%s\\n" "$*" >>{log}\nexec {real} -F {server.client_config} "$@"\n'
        )
        (folder / "ssh").write_text(own)
        (folder / "ssh").chmod(0o755)
        server.say("Host login", f"HostName {server.address}", f"Port {server.port}")
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.delenv("SLURM_CONF")
        ways, own_way = [], EngineMachine._way

        async def noted(machine, path, over):
            found = await own_way(machine, path, over)
            ways.append("ssh -W" if isinstance(found, ssl.SSLSocket) else "srun")
            return found

        monkeypatch.setattr(EngineMachine, "_way", noted)
        pool = slurm(job={"login": "login"})
        pool.start(lambda _: None)
        where = "import os\nos.environ['SLURMD_NODENAME']"
        assert values(pool, where) == ["c1", "c2"]
        large = os.urandom(3 << 20)
        assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 2
        doors = [each._direct._admitted for each in pool.context.generations.machines]
        listens = {place for door in doors for place in (*door.addresses, *door.commands)}
        asked = [line.split()[1] for line in log.read_text().splitlines() if line[:3] == "-W "]
        assert {f"{host}:{port}" for host, port in listens} & {*asked}
        assert {*ways} == {"ssh -W" if forwards == "yes" else "srun"}
        pool.close()
        assert cluster.is_empty()
        ssh = over_login("login", [])
        subprocess.run([ssh[0], "-O", "exit", *ssh[1:-3], "login"], check=True)


@pytest.mark.extensive
def test_the_time_limit_is_told_before_and_said_afterwards(slurm, cluster):
    """Also where Slurm's signal came before there was an agent, as with short limits, or comes too late."""
    pool, events = slurm(nodes=1, job={"extra": ("--time=1", "--signal=B:USR2@1")}), []
    pool.start(events.append)
    said = [each.text for each in events if isinstance(each, Remark)]
    assert any(f"job {job_of(pool)} has" in each and "sky.on_preempt" in each for each in said)
    body = """
import time
import skyward_nb as sky
sky.on_preempt(lambda: print("saved", flush=True))
time.sleep(600)
"""
    pool.look(lambda _: None)
    with pytest.raises(PoolError, match="its time limit was reached: ask for more with ttl="):
        pool.run(request(pool, body), events.append)
    assert "saved" in "".join(each.text for each in events if isinstance(each, Output))


@pytest.mark.extensive
def test_slurms_own_signal_is_passed_on(slurm, cluster):
    """Of five minutes it comes within two; the agent of a limit that is not short has no timer of its own."""
    pool, events = slurm(nodes=2, job={"extra": ("--time=5", "--signal=B:USR2@200")}), []
    pool.start(events.append)
    assert not [each for each in events if isinstance(each, Remark)]
    body = """
import threading
import skyward_nb as sky
told = threading.Event()
sky.on_preempt(told.set)
assert told.wait(150)
"""
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body), lambda _: None)
    assert not outcome.failed


@pytest.mark.extensive
def test_ranks_of_another_job_go_on_from_names_kept_before_the_time_limit(slurm, cluster, tmp_path):
    """Ranks that run nothing keep them at once, on both nodes."""
    place = tmp_path / "shared"
    pool = slurm(job={"extra": ("--time=2",)}, checkpoint=str(place))
    pool.start(lambda _: None)
    assert values(pool, "import skyward_nb as sky\nkept = [sky.rank()]\nkept") == [[0], [1]]
    until(lambda: len(list(place.rglob("*-notice/rank-?.json"))) == 2)
    pool.close()
    again = slurm(checkpoint=str(place), resume=True)
    again.start(lambda _: None)
    assert values(again, "kept") == [[0], [1]]
    again.close()
    until(cluster.is_empty)


@pytest.mark.extensive
def test_a_job_with_a_higher_priority_takes_its_nodes(slurm, cluster):
    pool = slurm()
    pool.start(lambda _: None)

    def watch(event):
        if isinstance(event, Output) and "begun" in event.text and event.rank == 0:
            cluster.say("sbatch", "--partition=vip", "-N2", "--exclusive", "--wrap", "sleep 1")

    body = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    pool.look(lambda _: None)
    with pytest.raises(PoolError, match="it was preempted"):
        pool.run(request(pool, body), watch)
    until(cluster.is_empty)


@pytest.mark.extensive
def test_another_job_comes_in_the_place_of_one_that_was_preempted(slurm, cluster):
    pool = slurm(on_preempt="replace", ranks_per_node=2)
    pool.start(lambda _: None)
    first = job_of(pool)
    assert values(pool, "kept = 1\nkept") == [1] * 4

    def watch(event):
        if isinstance(event, Output) and "begun" in event.text and event.rank == 0:
            cluster.say("sbatch", "--partition=vip", "-N2", "--exclusive", "--wrap", "sleep 1")

    body = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body), watch)
    assert {each.how.count("it was preempted") for each in outcome.lost.values()} == {1}
    where = "import os\nos.environ['SLURM_JOB_ID'], 'kept' in globals()"
    events = []
    pool.look(events.append)
    outcome = pool.run(request(pool, where), events.append)
    assert not outcome.failed
    second = job_of(pool)
    assert second != first
    assert values(pool, where) == [(second, False)] * 4
    (record,) = JobRecord.every()
    assert (record.job, record.before) == (second, "")
    assert cluster.queue() == [f"{second} RUNNING"]
    # Whoever comes back finds the new one.
    pool.leave()
    again = found(pool)
    again.attach(lambda _: None)
    assert values(again, where) == [(second, False)] * 4
    again.close()
    assert cluster.is_empty()
    assert not JobRecord.every()


@pytest.mark.extensive
def test_nothing_is_asked_of_a_job_that_was_there_and_has_ended(slurm, cluster):
    """No warning says that its node did not answer."""
    mine = cluster.say("sbatch", "--parsable", "-N1", "--wrap", "sleep 600")
    until(lambda: cluster.queue() == [f"{mine} RUNNING"])
    pool = slurm(nodes=1, job={"job": mine})
    pool.start(lambda _: None)
    cluster.say("scancel", mine)
    until(cluster.is_empty)
    pool.close()
    assert not JobRecord.every()
    until(lambda: not cluster.processes(mine))


@pytest.mark.extensive
def test_why_srun_starts_no_keepers_in_a_job_that_is_there_is_told(slurm, cluster, monkeypatch):
    monkeypatch.setattr(slurm_machine, "first", lambda keep: first(keep, 5))
    mine = cluster.say("sbatch", "--parsable", "-N1", "-c1", "--wrap", "sleep 600")
    until(lambda: cluster.queue() == [f"{mine} RUNNING"])
    pool = slurm(nodes=1, job={"job": mine}, cpus=Need(3))
    with pytest.raises(StartError, match=r"(?s)its keeper was not started.*srun: error: .*step"):
        pool.start(lambda _: None)
    cluster.say("scancel", mine)
    assert not JobRecord.every()


@pytest.mark.extensive
def test_keepers_in_a_job_that_is_there_are_told_before_its_time_limit(slurm, cluster):
    """As of the job's own, `sky.on_preempt` functions run; of a short limit half is the notice."""
    mine = cluster.say(
        "sbatch", "--parsable", "-N2", "--exclusive", "--time=1", "--wrap", "sleep 600"
    )
    until(lambda: cluster.queue() == [f"{mine} RUNNING"])
    pool, events = slurm(nodes=1, job={"job": mine}), []
    pool.start(events.append)
    said = [each.text for each in events if isinstance(each, Remark)]
    assert any(f"job {mine} has" in each and "sky.on_preempt" in each for each in said)
    body = """
import threading
import skyward_nb as sky
told = threading.Event()
sky.on_preempt(told.set)
assert told.wait(60)
"""
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body), events.append)
    assert not outcome.failed
    pool.close()
    cluster.say("scancel", mine)


def _apptainer(folder):
    """A stand-in for apptainer: it notes the image, and runs the command in no container."""
    folder.mkdir()
    program = folder / "apptainer"
    program.write_text(
        '#!/bin/sh\n[ "$1" = exec ] || exit 2\nexport APPTAINER_CONTAINER="$2"\nshift 2\nexec "$@"\n'
    )
    program.chmod(0o755)


@pytest.mark.extensive
def test_all_of_a_pool_runs_in_its_container(slurm, cluster, access, tmp_path):
    _apptainer(tmp_path / "bin")
    # Nodes have the path of slurmd, lines of `before` alone change that of the keepers.
    pool = slurm(job={"container": "docker://python:3"})
    lines = (*access().before, f"export PATH={tmp_path}/bin:$PATH")
    pool.context.spec = replace(pool.spec, slurm=replace(pool.spec.slurm, before=lines))
    with pytest.raises(StartError, match="has neither apptainer nor singularity"):
        slurm(job={"container": "docker://python:3"}).start(lambda _: None)
    assert cluster.is_empty()
    pool.start(lambda _: None)
    where = "import os\nos.environ['APPTAINER_CONTAINER']"
    assert values(pool, where) == ["docker://python:3"] * 2


@pytest.mark.extensive
def test_a_sweep_cancels_what_a_killed_notebook_left_and_names_what_is_not_its_own(
    slurm, cluster, access
):
    maker = replace(MakerProcess.this(), since=1.0)
    JobRecord(pool_id="lost-123456", access=access(), maker=maker).write()
    for pool_id in ("lost-123456", "other-abcdef"):
        cluster.say("sbatch", "--hold", f"--job-name={job_name(pool_id)}", "--wrap", "true")
    assert len(cluster.queue()) == 2
    swept = clean_up().of(JobRecord)
    assert len(swept.ended) == 1
    assert "lost-123456" in swept.ended[0]
    assert [each for each in swept.foreign if "other-abcdef" in each]
    assert not swept.left
    (other,) = cluster.queue()
    cluster.say("scancel", other.split()[0])


@pytest.mark.extensive
@pytest.mark.torch
@needs("torch")
def test_the_quickstart_trains_with_ddp_on_two_nodes_of_two_ranks(slurm):
    """Each rank's gradients are those of all, over addresses that the nodes have found by trying."""
    pool = slurm(ranks_per_node=2, framework=("torch",))
    pool.start(lambda _: None)
    got = values(pool, f"{DDP}total, weights, os.environ['SLURMD_NODENAME']")
    assert [each[0] for each in got] == [10.0] * 4
    assert len({each[1] for each in got}) == 1
    assert [each[2] for each in got] == ["c1", "c1", "c2", "c2"]


@pytest.mark.extensive
def test_a_pool_that_nobody_comes_back_to_ends_its_job(slurm, cluster):
    pool = slurm(idle=15.0)
    pool.start(lambda _: None)
    pool.leave()
    until(cluster.is_empty)
    with pytest.raises(PoolError, match="gone"):
        found(pool).attach(lambda _: None)
