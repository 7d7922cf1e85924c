"""What ends a pool on Slurm, or does not: each end is told in words, soon, and leaves no job and no process."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace
from pools import request, values
from sshds import lacks as ssh_lacks
from sshds import sshd
from tiers import few
from waiting import until

from skyward_nb.protocol.events import Output
from skyward_nb.providers.far.direct_connection import DirectConnection
from skyward_nb.providers.folders import sweep
from skyward_nb.providers.slurm.login_node import over_login
from skyward_nb.words.errors import PoolError, SkyError, StartError

pytestmark = pytest.mark.timeout(300)
CLUSTER = {"SlurmdTimeout": 6}
_SOON = 30.0
"""Seconds after which what Slurm knows is told here: on a busy machine each command of Slurm's takes some, and a pool that
waits for an agent which does not answer takes a minute.
"""


@dataclass
class Scene:
    """A pool, its job and the cluster, and what is to be undone afterwards."""

    cluster: object
    pool: object
    job: str
    before: object
    undo: list[Callable[[], object]] = field(default_factory=list)

    def control(self, *words: str) -> None:
        done = subprocess.run(["scontrol", *words], capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr

    def kill(self, *words: str, node: str = "c2", below: int | None = None) -> None:
        """Kill processes of the job on a node, by words of their command lines: all, or those `below` so many of them."""
        found = []
        for pid in self.cluster.processes(self.job):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                line = " ".join(process.cmdline())
                if process.environ().get("SLURMD_NODENAME") == node and all(
                    w in line for w in words
                ):
                    found.append(process)
        assert found, words
        if below is not None:
            pids = {process.pid for process in found}
            found = [p for p in found if sum(each.pid in pids for each in p.parents()) == below]
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended with one before it
                process.kill()


def cancelled(scene):
    scene.cluster.say("scancel", scene.job)


def killed(scene):
    scene.cluster.say("scancel", "--full", "--signal=KILL", scene.job)


def preempted(scene):
    scene.cluster.say("sbatch", "--partition=vip", "-N2", "--exclusive", "--wrap", "sleep 1")


def requeued(scene):
    scene.control("requeue", scene.job)


def node_down(scene):
    scene.control("update", "nodename=c2", "state=down", "reason=fault")
    # It returns to service by itself, too, as ReturnToService=2 says: then there is nothing to resume.
    words = ["scontrol", "update", "nodename=c2", "state=resume"]
    scene.undo.append(lambda: scene.cluster.say(*words))


def slurmd_killed(scene):
    scene.cluster.kill("c2")
    scene.undo.append(lambda: scene.before.add(f"child {scene.cluster.start_node('c2')}"))


def agent_killed(scene):
    scene.kill("skyward_nb.node", below=0)


def forge_killed(scene):
    """As whoever ends a node may do before the agent."""
    scene.kill("skyward_nb.node", below=1)


def keeper_killed(scene):
    scene.kill("/bin/sh", ".skyward-", "mkfifo")


def preempted_where_requeued(scene):
    preempted(scene)


def preempted_with_its_job(scene):
    preempted(scene)


_MINE = "a job of the user's own, which Slurm may requeue"
_TAKEN = r"its nodes were taken back .* waits in the queue again"
ENDS = {
    preempted: (r"job \d+: it was preempted", {}),
    slurmd_killed: (r"one of its nodes failed", {}),
    cancelled: (r"job \d+: it was cancelled", {}),
    killed: (r"job \d+: ", {}),
    # Its own batch script does not begin anew, the user's does: with no pool in it.
    preempted_where_requeued: (r"job \d+: it was preempted", {"extra": ("--requeue",)}),
    preempted_with_its_job: (_TAKEN, {"job": _MINE}),
    requeued: (_TAKEN, {"job": _MINE}),
    node_down: (r"one of its nodes failed", {}),
    agent_killed: (r"agent on c2 is gone", {}),
    forge_killed: (r"agent on c2 is gone: (its forge ended|job \d+: )", {}),
    keeper_killed: (r"agent on c2 is gone|job \d+: ", {}),
}


class Known:
    """When Slurm knew that a job does not run any more."""

    def __init__(self, cluster, job: str) -> None:
        self.at = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(cluster, job))
        self._thread.start()

    def _watch(self, cluster, job: str) -> None:
        is_over = False
        while not is_over:
            # The last look is after the pool was told, who may know of it before the looks here.
            is_over = self._over.wait(0.1)
            if cluster.state(job) not in ("RUNNING", ""):
                self.at = time.monotonic()
                return

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


_LONG = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


@pytest.mark.parametrize("fault", few(1, ENDS), ids=lambda fault: fault.__name__)
def test_what_ends_a_pool_is_told_soon_and_leaves_nothing(slurm, cluster, no_leaks, fault):
    words, options = ENDS[fault]
    mine = ""
    if options.get("job") == _MINE:
        ask = ("sbatch", "--parsable", "-N2", "--exclusive", "--requeue", "--wrap", "sleep 600")
        mine = cluster.say(*ask)
        until(lambda: cluster.queue() == [f"{mine} RUNNING"])
        options = {"job": mine}
    pool = slurm(job=options)
    pool.start(lambda _: None)
    job = pool.context.generations.machines[0].allocation.record.job
    scene = Scene(cluster, pool, job, no_leaks)
    known = Known(cluster, job)

    def watch(event):
        if isinstance(event, Output) and "begun" in event.text and event.rank == 0:
            fault(scene)

    pool.look(lambda _: None)
    with pytest.raises(PoolError, match=words):
        pool.run(request(pool, _LONG), watch)
    told = time.monotonic()
    known.stop()
    try:
        assert pool.closed
        if known.at is not None:
            assert told - known.at < _SOON
    finally:
        for each in scene.undo:
            each()
    if mine:  # of which the pool took nothing but its keepers
        until(lambda: f"{mine} PENDING" in cluster.queue())
        cluster.say("scancel", mine)
    until(cluster.is_empty)
    until(lambda: {*cluster.say("sinfo", "-h", "-p", "debug", "-o", "%T").split()} == {"idle"})
    until(lambda: not cluster.processes(job))
    if fault is keeper_killed:
        sweep()  # files of what was killed as a whole: the next pool on the node removes them


_LOOKS = 30
"""Seconds between looks of Slurm's at time limits."""
_SAVES = """
import time
import skyward_nb as sky
sky.on_preempt(lambda: print("saved", time.time(), flush=True))
print("begun", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("seconds", few(1, [2, 40]))
def test_the_end_of_its_time_is_told_before_and_soon_after(slurm, cluster, no_leaks, seconds):
    """Its end is suddenly nearer than its notice, of which Slurm, which looks every 30 s, sends a signal in the second case."""
    pool, said = slurm(), []
    pool.start(lambda _: None)
    job = pool.context.generations.machines[0].allocation.record.job
    known = Known(cluster, job)

    def watch(event):
        if isinstance(event, Output):
            said.append(event.text)
            if "begun" in event.text and event.rank == 0:
                cluster.say("scontrol", "update", f"JobId={job}", f"EndTime=now+{seconds}")

    pool.look(lambda _: None)
    with pytest.raises(
        PoolError, match=r"job \d+: its time limit was reached: ask for more with ttl="
    ):
        pool.run(request(pool, _SAVES), watch)
    told = time.monotonic()
    known.stop()
    assert known.at is not None
    assert told - known.at < _SOON
    saved = [float(each) for each in re.findall(r"saved (\S+)", "".join(said))]
    ends = cluster.say("squeue", "-h", "-t", "all", "-j", job, "-o", "%e")
    if seconds > _LOOKS:
        assert len(saved) == 2
        assert max(saved) < datetime.fromisoformat(ends).timestamp()
    until(cluster.is_empty)
    until(lambda: not cluster.processes(job))


# ── what does not end it ────────────────────────────────────────────────────────────────

_COUNTS = (
    "import time\nfor i in range(30):\n    print('line', i, flush=True)\n    time.sleep(0.1)\n'end'"
)


def controller_restarted(scene):
    scene.cluster.keep(scene.job)
    scene.cluster.kill("slurmctld")
    scene.before.add(f"child {scene.cluster.start_controller()}")


def node_daemon_restarted(scene):
    scene.cluster.kill("c2")
    scene.before.add(f"child {scene.cluster.start_node('c2')}")


def clients_killed(scene):
    """All that this machine runs to reach the nodes."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() == "srun" and f"--jobid={scene.job}" in process.cmdline():
                process.kill()


def relays_killed(scene):
    scene.kill("relay.py")


def doors_cut(scene):
    """The connections of TCP to all agents."""
    doors = [each._direct for each in scene.pool.context.generations.machines]
    ports = {port for door in doors for _, port in door._admitted.commands}
    found = [
        each
        for each in psutil.Process().net_connections("tcp")
        if each.raddr and each.raddr.port in ports
    ]
    assert len(found) == len(doors)
    for each in found:
        with socket.socket(fileno=os.dup(each.fd)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


async def _shut(_door, _asking):
    return None


GOES_ON = (controller_restarted, node_daemon_restarted, doors_cut)
BY_SRUN = (clients_killed, relays_killed)


def goes_on(pool, job, cluster, before, fault):
    scene, lines = Scene(cluster, pool, job, before), []

    def watch(event):
        if isinstance(event, Output):
            lines.append((event.rank, event.text))
            if event.rank == 0 and "line 5" in event.text:
                fault(scene)

    pool.look(lambda _: None)
    outcome = pool.run(request(pool, _COUNTS), watch)
    assert not outcome.failed
    for rank in pool.ranks:
        said = "".join(text for each, text in lines if each == rank)
        assert re.findall(r"line (\d+)", said) == [str(i) for i in range(30)]
    assert values(pool, "1") == [1] * len(pool.ranks)


@pytest.mark.extensive
@pytest.mark.parametrize("fault", [*GOES_ON, *BY_SRUN], ids=lambda fault: fault.__name__)
def test_what_does_not_end_a_pool_loses_nothing(slurm, cluster, no_leaks, monkeypatch, fault):
    if fault in BY_SRUN:
        for way in ("commands", "values"):
            monkeypatch.setattr(DirectConnection, way, _shut)
    pool = slurm()
    pool.start(lambda _: None)
    job = pool.context.generations.machines[0].allocation.record.job
    goes_on(pool, job, cluster, no_leaks, fault)
    pool.close()
    assert cluster.is_empty()
    until(lambda: not cluster.processes(job))


@pytest.mark.extensive
def test_a_login_whose_connections_are_cut_is_reached_again(
    slurm, cluster, no_leaks, tmp_path, monkeypatch
):
    if ssh_lacks():
        pytest.skip(ssh_lacks())
    real = shutil.which("ssh")
    with sshd(tmp_path / "sshd", cluster.environ) as server:
        folder = tmp_path / "bin"
        folder.mkdir()
        own = f'#!/bin/sh\nexec {real} -F {server.client_config} "$@"\n'
        (folder / "ssh").write_text(own)
        (folder / "ssh").chmod(0o755)
        server.say("Host login", f"HostName {server.address}", f"Port {server.port}")
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        pool = slurm(job={"login": "login"})
        pool.start(lambda _: None)
        job = pool.context.generations.machines[0].allocation.record.job
        goes_on(pool, job, cluster, no_leaks, lambda _: server.cut())
        pool.close()
        assert cluster.is_empty()
        ssh = over_login("login", [])
        subprocess.run([ssh[0], "-O", "exit", *ssh[1:-3], "login"], check=True)


@pytest.mark.extensive
def test_a_controller_that_is_down_at_the_end_is_said_and_the_job_ends_by_itself(
    slurm, cluster, no_leaks
):
    pool = slurm()
    pool.start(lambda _: None)
    job = pool.context.generations.machines[0].allocation.record.job
    # One that does not know of it would give its number to another job, which nodes take for one that has ended.
    cluster.keep(job)
    cluster.kill("slurmctld")
    with pytest.warns(UserWarning, match="Slurm did not confirm the end of job"):
        pool.close()
    assert [*pool.closing.may_run]
    until(lambda: not cluster.processes(job))
    no_leaks.add(f"child {cluster.start_controller()}")
    until(cluster.is_empty)


# ── what does not come up ───────────────────────────────────────────────────────────────


@pytest.mark.extensive
def test_no_room_for_what_the_job_says_is_told(slurm, cluster, tmp_path, monkeypatch):
    """As where the quota of a home is used up."""
    in_the_way = tmp_path / "cache"
    in_the_way.write_text("")
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(in_the_way))
    with pytest.raises(StartError, match=r"Slurm cannot be asked for nodes: mkdir: .*cache"):
        slurm().start(lambda _: None)
    assert cluster.is_empty()


@pytest.mark.extensive
@pytest.mark.skipif(os.getuid() != 0, reason="root mounts a small disk")
def test_a_quota_that_is_used_up_while_nodes_are_readied_is_told(slurm, cluster, access, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "small", str(cache)], check=True
    )
    try:
        lines = (*access().before, f"export SKYWARD_CACHE_DIR={cache}")
        pool = slurm()
        pool.context.spec = replace(pool.spec, slurm=replace(pool.spec.slurm, before=lines))
        with pytest.raises(SkyError, match=r"c[12].*(space|room|full)"):
            pool.start(lambda _: None)
    finally:
        subprocess.run(["umount", "--lazy", str(cache)], check=True)
    assert cluster.is_empty()


# ── without root ────────────────────────────────────────────────────────────────────────


def _python_for_all(folder: Path) -> str:
    """A Python that every user can run, with the packages of this one: this one, else the system's of the same minor version.

    Skips where there is neither.
    """
    if not (closed := _closed(Path(sys.executable).resolve())):
        return sys.executable
    minor, packages = (
        f"{sys.version_info.major}.{sys.version_info.minor}",
        sysconfig.get_path("purelib"),
    )
    other = shutil.which(f"python{minor}", path="/usr/bin:/usr/local/bin")
    if other is None or _closed(Path(packages)):
        pytest.skip(
            f"a plain user cannot run this Python, which is in {closed}, and there is no other {minor}"
        )
    made = folder / "python"
    subprocess.run([other, "-m", "venv", "--without-pip", str(made)], check=True)
    (there,) = made.glob("lib/python*/site-packages")
    (there / "here.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    return str(made / "bin" / "python")


def _mentions(pid: int, folder: bytes) -> bool:
    """Whether a process has a folder in its variables or its command line."""
    with contextlib.suppress(OSError):  # it has ended
        place = Path(f"/proc/{pid}")
        return any(folder in (place / each).read_bytes() for each in ("environ", "cmdline"))
    return False


def _closed(place: Path) -> str:
    """The outermost folder on the way to a place that is closed to other users; "" without one."""
    return next(
        (str(each) for each in reversed(place.parents) if not each.stat().st_mode & 0o001), ""
    )


@pytest.mark.extensive
@pytest.mark.skipif(os.getuid() != 0, reason="these tests run without root already")
def test_all_of_this_holds_for_a_plain_user(tmp_path):
    user = pwd.getpwnam("nobody")
    home = Path("/tmp", f"sky-plain-{os.getpid()}")
    home.mkdir(mode=0o700)
    os.chown(home, user.pw_uid, user.pw_gid)
    python = _python_for_all(home)
    here = Path(__file__).parents[2]
    # What tests have taken is written into the tree, which is another user's.
    own = f"""
def pytest_configure(config):
    import durations, pathlib
    durations.LAST = pathlib.Path({str(home / "durations.json")!r})
"""
    (home / "elsewhere.py").write_text(own)
    words = [
        "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
        python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "elsewhere", "--all",
        f"--basetemp={home}/t", "tests/slurm/test_slurm_pools.py", str(Path(__file__).relative_to(here)),
        "-k", "comes_up or waits_says or soon_and_leaves and (cancelled or preempted or node_down)",
    ]  # fmt: skip
    environ = {
        k: v for k, v in os.environ.items() if not k.startswith(("SKYWARD_", "PYTEST_", "IPYTHON"))
    }
    environ |= {"PYTHONPATH": f"{home}:{here}:{here / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    environ |= {"HOME": str(home), "TMPDIR": str(home), "USER": "nobody", "LOGNAME": "nobody"}
    try:
        with subprocess.Popen(
            words,
            cwd=here,
            env=environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as ran:
            said, _ = ran.communicate()
        assert ran.returncode == 0, said[-4000:]
        assert re.search(r"\d+ passed", said)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    until(lambda: not [pid for pid in psutil.pids() if _mentions(pid, os.fsencode(home))])
