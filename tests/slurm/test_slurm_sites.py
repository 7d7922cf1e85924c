"""What sites have beside nodes: accounts with QOS, bound CPUs, nodes that reach nothing, login shells of other kinds."""

import contextlib
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from pools import request, values
from sshds import lacks as ssh_lacks
from sshds import sshd
from waiting import until

from skyward_nb.protocol.events import Output, Phase, Step
from skyward_nb.providers.far.direct_connection import DirectConnection
from skyward_nb.providers.loop_thread import LOOP
from skyward_nb.providers.slurm.login_node import over_login
from skyward_nb.words.errors import PoolError, StartError
from skyward_nb.words.image import Image
from skyward_nb.words.offers import Need

pytestmark = [pytest.mark.extensive, pytest.mark.timeout(300)]
_USER = pwd.getpwuid(os.getuid()).pw_name
CLUSTER = {
    "cpus": 2,
    "TaskPlugin": "task/affinity",
    "PreemptType": "preempt/qos",
    "accounts": (
        "add account lab,poor Organization=lab",
        "add qos high,one,small",
        "modify qos high set Preempt=normal",
        "modify qos one set MaxJobsPerUser=1",
        "modify qos small set MaxTRESPerJob=node=1",
        "modify account poor set GrpTRESRunMins=cpu=1",
        f"add user {_USER} account=lab defaultaccount=lab qos=normal,high,one,small",
        f"add user {_USER} account=poor",
    ),
}
"""Nodes claim no more CPUs than this machine has: the kernel binds no process to others."""


def phases(events):
    return [each.text for each in events if isinstance(each, Phase) and each.text]


def booked(cluster, job):
    """What the database of accounts calls the end of a job."""
    return cluster.say("sacct", "-n", "-X", "-P", "-j", job, "-o", "State")


# ── accounts ────────────────────────────────────────────────────────────────────────────


def test_a_job_is_of_the_account_and_the_qos_that_were_asked_for(slurm, cluster):
    pool = slurm(job={"account": "lab", "qos": "high"})
    pool.start(lambda _: None)
    assert values(pool, "1") == [1, 1]
    assert cluster.say("squeue", "-h", "-o", "%a %q") == "lab high"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"qos": "none"}, r"Slurm refused the job: .*nvalid qos.*`sacctmgr show assoc .* lists yours: qos=NAME"),
        ({"account": "none"}, r"Slurm refused the job: .*nvalid account.*account=NAME"),
        ({"qos": "small"}, r"more than your QOS or account allows one job: fewer nodes=, or another qos="),
    ],
)  # fmt: skip
def test_what_an_account_or_a_qos_does_not_allow_is_said_with_what_to_change(
    slurm, cluster, job, words
):
    with pytest.raises(StartError, match=words):
        slurm(job=job).start(lambda _: None)
    assert cluster.is_empty()


def test_a_job_of_a_qos_that_goes_before_takes_its_nodes(slurm, cluster):
    pool = slurm(job={"qos": "normal"})
    pool.start(lambda _: None)
    record = pool.context.generations.machines[0].allocation.record

    def watch(event):
        if isinstance(event, Output) and "begun" in event.text and event.rank == 0:
            cluster.say("sbatch", "--qos=high", "-N2", "--exclusive", "--wrap", "sleep 1")

    pool.look(lambda _: None)
    body = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    with pytest.raises(PoolError, match="it was preempted"):
        pool.run(request(pool, body), watch)
    until(cluster.is_empty)
    until(lambda: booked(cluster, record.job) == "PREEMPTED")


def test_a_job_whose_account_has_too_little_time_left_says_so(slurm, cluster):
    pool, told = slurm(nodes=1, job={"account": "poor"}), []
    work = LOOP.start(pool.context.provider.acquire(pool.spec, pool.pool_id, told.append))
    until(lambda: any("is used up" in text for text in phases(told)), told=lambda: phases(told))
    work.give_up()
    assert cluster.is_empty()


def test_what_accounts_say_of_a_pool_that_was_taken_down_is_no_failure(slurm, cluster):
    pool = slurm(nodes=1)
    pool.start(lambda _: None)
    job = pool.context.generations.machines[0].allocation.record.job
    pool.close()
    until(lambda: booked(cluster, job) == "COMPLETED")


def test_a_job_that_waits_for_another_of_its_qos_says_so_and_starts_after_it(slurm, cluster):
    first = slurm(nodes=1, job={"qos": "one"})
    first.start(lambda _: None)
    second, told = slurm(nodes=1, job={"qos": "one"}), []
    work = LOOP.start(second.context.provider.acquire(second.spec, second.pool_id, told.append))
    until(lambda: any("as many as the QOS allows" in text for text in phases(told)))
    first.close()
    machines = work.future.result(120)
    assert [each.name for each in machines] in (["c1"], ["c2"])
    for each in machines:
        LOOP.start(each.release()).future.result(60)


# ── CPUs ────────────────────────────────────────────────────────────────────────────────

_BOUND = """
import os
sorted(os.sched_getaffinity(0)), os.environ["SLURM_CPU_BIND"], os.environ["OMP_NUM_THREADS"]
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU is bound in one way alone")
@pytest.mark.parametrize(("wish", "asked"), [("", 1), ("map_cpu:1", 2), ("none", 2)])
def test_ranks_are_bound_as_slurm_has_bound_their_step(slurm, cluster, access, wish, asked):
    """What a user says to srun by its own variables holds, too."""
    pool = slurm(cpus=Need(asked))
    lines = (*access().before, *([f"export SLURM_CPU_BIND={wish}"] * bool(wish)))
    pool.context.spec = replace(pool.spec, slurm=replace(pool.spec.slurm, before=lines))
    pool.start(lambda _: None)
    for cpus, said, threads in values(pool, _BOUND):
        if wish == "none":
            assert cpus == [0, 1]
        elif wish:
            assert cpus == [1]
        else:
            mask = int(said.rpartition(":")[2], 16)
            assert cpus == [cpu for cpu in range(64) if mask >> cpu & 1]
            assert len(cpus) == 1
        assert int(threads) == len(cpus)


# ── environments ────────────────────────────────────────────────────────────────────────

_MODULE = """#%Module1.0
module-whatis {of a test}
setenv OF_THE_MODULE yes
prepend-path PATH /apps/of-the-module
"""


@pytest.fixture
def modules():
    """The site's modules: those of the package environment-modules, as login shells know them."""
    asked = ["/bin/bash", "-lc", "type -t module"]
    if subprocess.run(asked, capture_output=True, check=False).stdout != b"function\n":
        pytest.skip("login shells know no `module` here: apt-get install environment-modules")


def test_modules_are_loaded_for_all_that_runs_on_nodes(slurm, cluster, modules, tmp_path):
    place = tmp_path / "of-a-test" / "1.0"
    place.parent.mkdir()
    place.write_text(_MODULE)
    pool = slurm(job={"modules": (str(place), "null")})
    pool.start(lambda _: None)
    body = (
        "import os\n[os.environ.get(each) for each in ('OF_THE_MODULE', 'PATH', 'LOADEDMODULES')]"
    )
    for mark, path, loaded in values(pool, body):
        assert mark == "yes"
        assert "/apps/of-the-module" in path.split(":")
        assert loaded == f"{place}:null"


@pytest.mark.parametrize("there", [False, True], ids=["its own job", "a job that is there"])
def test_a_module_that_is_not_there_is_said_in_its_own_words(slurm, cluster, modules, there):
    mine = cluster.say("sbatch", "--parsable", "-N1", "--wrap", "sleep 600") if there else ""
    until(lambda: cluster.queue() == [f"{mine} RUNNING"] if there else cluster.is_empty())
    job = {"modules": ("none/1.0",)} | ({"job": mine} if there else {})
    with pytest.raises(StartError, match=r"Unable to locate a modulefile for 'none/1.0'"):
        slurm(nodes=1, job=job).start(lambda _: None)
    if there:
        cluster.say("scancel", mine)
    until(cluster.is_empty)


def test_an_environment_is_made_once_for_nodes_that_share_a_home(
    slurm, cluster, index_here, tmp_path
):
    image = Image(pip=("six",), env={"UV_DEFAULT_INDEX": index_here})
    pool, told = slurm(image=image), []
    pool.start(told.append)
    body = "import six, sys, os\nsix.__file__, sys.prefix, os.environ['SLURMD_NODENAME']"
    first, second = values(pool, body)
    assert (first[2], second[2]) == ("c1", "c2")
    assert first[:2] == second[:2]
    steps = [each for each in told if isinstance(each, Step) and each.name == "environment"]
    assert len([each for each in steps if each.text.startswith("Installed ")]) == 1
    assert {*steps[-1].nodes} <= {0, 1} and steps[-1].done
    every = [*(Path(os.environ["SKYWARD_CACHE_DIR"]) / "envs").iterdir()]
    assert [each for each in every if each.is_dir()] == [Path(first[1])], every


# ── ways ────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def apart():
    """The name of a network namespace with a loopback and nothing else."""
    name = f"sky-apart-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="root makes a network namespace")
def test_packages_come_over_srun_to_nodes_that_reach_nothing(
    slurm, cluster, access, index_here, tmp_path
):
    """Commands on nodes run in a namespace without any way out, as in a container of such a node."""
    with apart() as name:
        folder = tmp_path / "bin"
        folder.mkdir()
        enter = f'#!/bin/sh\nshift 2\nexec nsenter --net=/run/netns/{name} -- "$@"\n'
        (folder / "apptainer").write_text(enter)
        (folder / "apptainer").chmod(0o755)
        image = Image(pip=("six",), env={"UV_DEFAULT_INDEX": index_here})
        pool, told = slurm(nodes=1, image=image, job={"container": "apart"}), []
        lines = (*access().before, f"export PATH={folder}:$PATH")
        pool.context.spec = replace(pool.spec, slurm=replace(pool.spec.slurm, before=lines))
        pool.start(told.append)
        where = "import six\nsix.__name__, open('/proc/net/dev').read().count(':')"
        assert values(pool, where) == [("six", 1)]
        said = " ".join(
            each.text for each in told if isinstance(each, Step) and each.name == "environment"
        )
        assert "came over this line" in said
        pool.close()


@pytest.mark.parametrize("shell", ["tcsh", "fish"])
def test_a_login_node_where_the_users_shell_is_no_sh(slurm, cluster, tmp_path, monkeypatch, shell):
    """Each command goes through it, as sshd gives it to a user's shell."""
    if ssh_lacks():
        pytest.skip(ssh_lacks())
    if not (program := shutil.which(shell)):
        pytest.skip(f"there is no {shell} here")
    real = shutil.which("ssh")
    forced = tmp_path / "login-shell"
    forced.write_text(f'#!/bin/sh\nexec {program} -c "$SSH_ORIGINAL_COMMAND"\n')
    forced.chmod(0o755)
    with sshd(tmp_path / "sshd", cluster.environ, ForceCommand=str(forced)) as server:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "ssh").write_text(f'#!/bin/sh\nexec {real} -F {server.client_config} "$@"\n')
        (folder / "ssh").chmod(0o755)
        server.say("Host login", f"HostName {server.address}", f"Port {server.port}")
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.delenv("SLURM_CONF")
        pool = slurm(job={"login": "login"})
        pool.start(lambda _: None)
        assert values(pool, "import os\nos.environ['SLURMD_NODENAME']") == ["c1", "c2"]
        large = os.urandom(3 << 20)
        assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 2
        pool.close()
        assert cluster.is_empty()
        ssh = over_login("login", [])
        subprocess.run([ssh[0], "-O", "exit", *ssh[1:-3], "login"], check=True)


async def _shut(_door, _asking):
    return None


def test_where_tcp_to_nodes_is_shut_srun_carries_all(slurm, cluster, monkeypatch):
    monkeypatch.setattr(DirectConnection, "commands", _shut)
    monkeypatch.setattr(DirectConnection, "values", _shut)
    pool = slurm()
    pool.start(lambda _: None)
    large = os.urandom(3 << 20)
    assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 2
