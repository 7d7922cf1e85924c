"""Whoever is killed, nothing is left: processes, zombies, shared memory, folders."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from pools import values
from tiers import few
from waiting import until

from skyward_nb.pool import registry
from skyward_nb.pool.pool import Pool
from skyward_nb.providers import folders
from skyward_nb.providers.local import LocalMachine, LocalProvider
from skyward_nb.system import processes
from skyward_nb.words.errors import PoolError
from skyward_nb.words.spec import PoolSpec

SHARED = Path("/dev/shm")
HASTE = 3.0

# A daemon as daemons are made: forked twice, in a session of its own, without the rank's pipes.
DAEMON = """
import os, subprocess, sys
code = (
    "import os, sys, time\\n"
    "if os.fork(): os._exit(0)\\n"
    "os.setsid()\\n"
    "if os.fork(): os._exit(0)\\n"
    "print(os.getpid(), flush=True)\\n"
    "os.dup2(os.open(os.devnull, os.O_RDWR), 1)\\n"
    "time.sleep(600)\\n"
)
daemon = int(subprocess.run([sys.executable, "-c", code], stdout=-1, stdin=-3).stdout)
plain = subprocess.Popen(["sleep", "600"])
session = subprocess.Popen(["sleep", "600"], start_new_session=True)
(os.getpid(), os.getppid(), daemon, plain.pid, session.pid)
"""

SHARE = """
import os
from multiprocessing import shared_memory, resource_tracker
block = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.ensure_running()
(block.name, os.getpid(), os.getppid(), resource_tracker._resource_tracker._pid)
"""


def stays(pid):
    """Whether a process is there in any way, be it as a zombie."""
    return psutil.pid_exists(pid)


def left_of(pids, seconds=60.0):
    """Those that are still there after a while; zombies count."""
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if stays(pid)]) and time.monotonic() < until:
        time.sleep(0.02)
    return [psutil.Process(pid) for pid in left]


def there(names):
    """Those of these names in shared memory that are there; all else in it is of others."""
    return {name for name in names if (SHARED / name).exists()}


@pytest.fixture
def make(no_leaks):
    pools = []

    def start(**options):
        spec = PoolSpec(**{"nodes": 2, "grace": 1.0, **options})
        pools.append(Pool(spec, LocalProvider(), lambda _: None))
        pools[-1].start(lambda _: None)
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()


def preload(monkeypatch, module):
    """From now on forges import this, too."""
    start = LocalMachine.start_agent

    async def preloading(machine, idle, ttl, modules):
        await start(machine, idle, ttl, [*modules, module])

    monkeypatch.setattr(LocalMachine, "start_agent", preloading)


@pytest.fixture
def hasty(tmp_path, monkeypatch):
    """Forges wait no longer than this for who tidies up, as one is meant to hang."""
    changed = f"from skyward_nb.system import processes\nprocesses.TIDYING = {HASTE}\n"
    (tmp_path / "hasty_forges.py").write_text(changed)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    preload(monkeypatch, "hasty_forges")


def fail(pool):
    with pytest.raises(PoolError):
        values(pool, "1")


def agent_of(forge):
    return psutil.Process(forge).ppid()


@pytest.mark.parametrize("who", few(2, ["rank", "forge", "agent", "both"]))
def test_what_a_cell_started_goes_whoever_is_killed(make, who):
    pool = make()
    started = values(pool, DAEMON)
    forge = started[0][1]
    agent = agent_of(forge)
    victims = {"rank": [started[0][0]], "forge": [forge], "agent": [agent], "both": [agent, forge]}
    # Neither of two has time to see that the other one is gone.
    for pid in victims[who]:
        os.kill(pid, signal.SIGSTOP)
    for pid in victims[who]:
        os.kill(pid, signal.SIGKILL)
    if who == "rank":
        rank, _, *children = started[0]
        assert not left_of([rank, *children])
        assert len([pid for pid in started[1] if stays(pid)]) == 5, "the other rank is left alone"
        pool.restart(lambda _: None)
        assert values(pool, "1") == [1, 1]
        assert not left_of([started[1][0], *started[1][2:]])
        return
    assert not left_of([forge, started[0][0]])
    fail(pool)
    pool.close()
    assert not left_of({pid for each in started for pid in each} | {agent})


def test_the_next_start_ends_what_an_agent_and_a_forge_left_that_were_killed(make):
    pool = make()
    started = values(pool, DAEMON)
    folder = pool.context.generations.machines[0]._folders.runtime
    forge = started[0][1]
    agent = agent_of(forge)
    for pid in (agent, forge):
        os.kill(pid, signal.SIGSTOP)
    for pid in (agent, forge):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(agent, 0)
    assert not left_of([rank for rank, *_ in started])
    children = [pid for each in started for pid in each[2:]]
    assert all(stays(pid) for pid in children), "there is something to sweep"
    assert {each.pid for each, mark in processes.marked().items() if mark == folder} == {*children}
    swept = folders.sweep()
    assert swept.folders == 1
    assert swept.processes == len(children)
    assert not left_of(children)
    assert not folders.sweep(thoroughly=True)
    assert str(folders.sweep(thoroughly=True)) == "nothing is left over"
    fail(pool)


def test_what_is_marked_with_a_folder_that_is_gone_is_found_when_asked(make):
    pool = make()
    started = values(pool, DAEMON)
    forge = started[0][1]
    agent = agent_of(forge)
    for pid in (agent, forge):
        os.kill(pid, signal.SIGSTOP)
    for pid in (agent, forge):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(agent, 0)
    assert not left_of([rank for rank, *_ in started])
    folders.remove_folders(pool.context.generations.machines[0]._folders)
    children = [pid for each in started for pid in each[2:]]
    assert not folders.sweep(), "nothing dead was seen, so processes are not looked at"
    assert all(stays(pid) for pid in children)
    assert folders.sweep(thoroughly=True).processes == len(children)
    assert not left_of(children)
    fail(pool)


def test_an_agent_whose_client_is_killed_while_it_starts_leaves_nothing(no_leaks):
    made = folders.make_folders("p", "p-1")
    read, write = os.pipe()
    os.close(read)
    with (made.runtime / "agent.log").open("wb") as log:
        lock = made.lock.fileno()
        command = [sys.executable, "-m", "skyward_nb.node", str(lock)]
        command += [made.runtime, made.store, made.spill, "600", "0"]
        agent = subprocess.Popen(command, stdout=write, stderr=log, pass_fds=[lock])
    os.close(write)
    made.let_go()
    assert agent.wait(60) == 0


def test_a_killed_agent_is_known_to_be_dead_while_its_forge_and_ranks_live(make):
    pool = make()
    started = values(pool, DAEMON)
    forge = started[0][1]
    agent, runtime = agent_of(forge), folders.pool_folders(pool.pool_id).runtime
    assert not folders.is_gone(runtime)
    os.kill(forge, signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    os.waitpid(agent, 0)
    assert folders.is_gone(runtime)
    assert stays(forge)
    os.kill(forge, signal.SIGCONT)
    fail(pool)


KILLED = """
import os
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.local import LocalMachine, LocalProvider
from skyward_nb.words.spec import PoolSpec
start = LocalMachine.start_agent
async def killed(self, *arguments):
    await start(self, *arguments)
    os.kill(os.getpid(), 9)
LocalMachine.start_agent = killed
Pool(PoolSpec(nodes=2), LocalProvider(), lambda _: None).start(lambda _: None)
"""


@pytest.mark.extensive
def test_an_agent_whose_client_was_killed_as_it_was_ready_is_found_and_ended(no_leaks):
    """It has had no client, and waits for one."""
    client = subprocess.run([sys.executable, "-c", KILLED])
    assert client.returncode == -signal.SIGKILL
    assert len(registry.entries()) == 1
    ended = subprocess.run([sys.executable, "-m", "skyward_nb", "down", "all"])
    assert ended.returncode == 0
    assert registry.entries() == []


def test_sweeping_leaves_the_living_alone(lend):
    pool = lend(grace=1.0)
    (started, _) = values(pool, DAEMON)
    assert not folders.sweep(thoroughly=True)
    assert all(stays(pid) for pid in started)
    assert values(pool, "1") == [1, 1]


@pytest.mark.parametrize("who", few(1, ["rank", "forge", "agent", "nobody"]))
def test_shared_memory_goes_with_the_rank_that_made_it(make, who):
    pool = make()
    made = values(pool, SHARE)
    lock = "lock = __import__('multiprocessing').get_context('spawn').Lock()\nlock._semlock.name"
    locks = {f"sem.{name.lstrip('/')}" for name in values(pool, lock)}
    shared = {name for name, *_ in made} | locks
    assert there(shared) == shared
    (_, rank, forge, _) = made[0]
    if who == "rank":
        os.kill(rank, signal.SIGKILL)
        assert not left_of([rank, made[0][3]])
        assert there([made[0][0], made[1][0]]) == {made[1][0]}
    elif who != "nobody":
        os.kill(forge if who == "forge" else agent_of(forge), signal.SIGKILL)
        assert not left_of([forge, rank])
        fail(pool)
    pool.close()
    assert not there(shared)
    assert not left_of([pid for each in made for pid in each[1:]])


@pytest.mark.extensive
def test_shared_memory_goes_when_the_pool_is_closed_right_after_the_death(make):
    pool = make()
    made = values(pool, SHARE)
    for _, rank, *_ in made:
        os.kill(rank, signal.SIGKILL)
    pool.close()
    assert not there(name for name, *_ in made)
    assert not left_of([pid for each in made for pid in each[1:]])


def test_a_tracker_that_does_not_end_is_ended(hasty, make):
    pool = make()
    (_, rank, _, tracker), _ = values(pool, SHARE)
    (SHARED / values(pool, "block.name")[0]).unlink()
    os.kill(tracker, signal.SIGSTOP)
    os.kill(rank, signal.SIGKILL)
    assert not left_of([rank, tracker])
    pool.restart(lambda _: None)
    assert values(pool, "1") == [1, 1]


@pytest.mark.extensive
def test_a_tracker_does_not_hold_up_the_next_generation(hasty, make):
    pool = make()
    shared = [*values(pool, SHARE), *values(pool, SHARE)]
    stopped = [tracker for _, _, _, tracker in shared[2:]]
    names = there(name for name, *_ in shared)
    for tracker in stopped:
        os.kill(tracker, signal.SIGSTOP)
    began = time.monotonic()
    pool.restart(lambda _: None)
    # They are stopped, so that they cannot have ended by themselves.
    in_time = time.monotonic() - began < HASTE
    assert not in_time or all(stays(tracker) for tracker in stopped)
    assert not left_of(stopped)
    assert values(pool, "1") == [1, 1]
    for name in names:
        (SHARED / name).unlink()


def test_a_tracker_that_is_held_up_removes_what_its_rank_left(make):
    pool = make()
    (name, rank, _, tracker), _ = values(pool, SHARE)
    os.kill(tracker, signal.SIGSTOP)
    os.kill(rank, signal.SIGKILL)
    assert not left_of([rank])
    time.sleep(4)
    os.kill(tracker, signal.SIGCONT)
    assert not left_of([tracker])
    assert not there({name})


SHARED_BY_A_CHILD = """
import os, time
read, write = os.pipe()
child = os.fork()
if not child:
    from multiprocessing import shared_memory, resource_tracker
    block = shared_memory.SharedMemory(create=True, size=4096)
    os.write(write, f"{block.name} {resource_tracker._resource_tracker._pid}".encode())
    time.sleep(600)
name, tracker = os.read(read, 1000).decode().split()
(name, os.getpid(), child, int(tracker))
"""


def test_what_a_child_of_a_rank_shared_goes_with_the_rank(make):
    """Its tracker is in the rank's process group, and is no child of the rank."""
    (name, rank, child, tracker), _ = values(make(), SHARED_BY_A_CHILD)
    os.kill(rank, signal.SIGKILL)
    assert not left_of([rank, child, tracker])
    assert not there({name})


def test_the_list_of_processes_names_those_there_are(lend):
    pool = lend(grace=1.0)
    folder = pool.context.generations.machines[0]._folders.runtime
    for _ in range(2):
        ranks = values(pool, "__import__('os').getpid()")
        forge = psutil.Process(ranks[0]).ppid()
        started = {*ranks, forge, agent_of(forge)}
        # The agent hears from the forge that a rank was forked; a rank may have answered before.
        until(lambda pids=started: {each.pid for each in processes.noted(folder)} == pids)
        assert len((folder / "processes").read_text().splitlines()) == 5
        pool.restart(lambda _: None)


def trackers_of(rank):
    """The trackers that the forge of a rank has started; a rank of Python 3.14 does not know them."""
    forge = psutil.Process(psutil.Process(rank).ppid())
    started = [each for each in forge.children() if "resource_tracker" in " ".join(each.cmdline())]
    return [each.pid for each in started]


def test_what_an_import_of_the_forge_started_is_kept_and_ended_last(
    no_leaks, tmp_path, monkeypatch
):
    """A tracker of the forge, which ranks inherit but on Python 3.14, outlives the death of any one of them."""
    (tmp_path / "imports_a_tracker.py").write_text(
        "from multiprocessing import shared_memory, resource_tracker\n"
        "block = shared_memory.SharedMemory(create=True, size=4096)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    preload(monkeypatch, "imports_a_tracker")
    pool = Pool(PoolSpec(nodes=2, grace=1.0), LocalProvider(), lambda _: None)
    pool.start(lambda _: None)
    look = "import os, imports_a_tracker as m\n(m.block.name, os.getpid())"
    (name, rank), _ = values(pool, look)
    (tracker,) = trackers_of(rank)
    os.kill(rank, signal.SIGKILL)
    assert not left_of([rank])
    pool.restart(lambda _: None)
    (again, rank), _ = values(pool, look)
    assert (again, trackers_of(rank)) == (name, [tracker])
    assert there([name])
    pool.close()
    assert not there([name])
    assert not left_of([tracker])


WORKERS = """
import os
import torch, torch.multiprocessing
from torch.utils.data import DataLoader
torch.multiprocessing.set_sharing_strategy("file_system")
loader = iter(DataLoader(torch.zeros(1000, 1000), batch_size=10, num_workers=1))
batch = next(loader)
held = torch.zeros(1000).share_memory_()
(os.getpid(), os.getppid())
"""


@pytest.mark.extensive
@pytest.mark.torch
@pytest.mark.parametrize("who", few(1, ["rank", "agent"]))
def test_data_loaders_and_what_they_share_go_with_their_rank(make, monkeypatch, who):
    """Whoever is killed, and then as nobody is."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("what PyTorch leaves in shared memory needs PyTorch")
    preload(monkeypatch, "torch.multiprocessing")
    pool = make()
    loaders = set()
    rank, forge, started = load(pool, loaders)
    if who == "rank":
        os.kill(rank, signal.SIGKILL)
        assert not left_of([rank, *started])
        pool.restart(lambda _: None)
        rank, forge, started = load(pool, loaders)
    else:
        os.kill(agent_of(forge), signal.SIGKILL)
        assert not left_of([rank])
        fail(pool)
    pool.close()
    assert not left_of([forge, rank, *started])
    assert not loaded(loaders)


def load(pool, loaders):
    """Have both ranks, which become `loaders`, load data; the first one, its forge, and what it started."""
    (rank, forge), (other, _) = values(pool, WORKERS)
    for each in (rank, other):
        loaders |= {each, *(child.pid for child in psutil.Process(each).children(recursive=True))}
    started = [each.pid for each in psutil.Process(rank).children(recursive=True)]
    assert loaded((rank, *started))
    assert [pid for pid in started if processes.tidies(pid)]
    return rank, forge, started


def loaded(pids):
    """What these processes have shared; other tests of this machine load data, too."""
    return {path.name for pid in pids for path in SHARED.glob(f"torch_{pid}_*")}
