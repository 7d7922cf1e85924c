"""Ranks with limits: who wants more gets an error and lives on; who starts others that hold more is ended."""

from __future__ import annotations

import asyncio
import os
import re

import pytest
from later import needs
from pools import request, values

from skyward_nb.node import memory_limit
from skyward_nb.node.memory_limit import MemoryLimit
from skyward_nb.node.memory_watch import MemoryWatch, held_by
from skyward_nb.reports.run_notes import of_a_memory_limit
from skyward_nb.system.memory import own_memory
from skyward_nb.words.errors import StartError

# JAX warns of forks in a process in which other tests have used it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")
MB = 1_000_000
LIMIT = 300 * MB
FILLS = "kept = []\nwhile len(kept) < 1000:\n    kept.append(bytearray(1_000_000))"
HOLDS = "import sys; held = bytearray(200_000_000); print('holds', flush=True); sys.stdin.read()"


@pytest.fixture
def limited(lend):
    return lend(memory_limit=LIMIT, cpu_limit=1)


def test_a_cell_that_takes_too_much_raises_and_its_rank_lives_on(limited):
    before = dict(limited.pids)
    outcome = limited.run(request(limited, FILLS, on_error="wait"), lambda _: None)
    assert {end.failure.type_name for end in outcome.failed} == {"MemoryError"}
    assert limited.pids == before
    # A rank that is full can say so, and be emptied.
    assert all(100 < found < 300 for found in values(limited, "len(kept)"))
    values(limited, "kept.clear()\n0")
    assert values(limited, "taken = bytearray(150_000_000)\nlen(taken)") == [150 * MB] * 2


def test_each_rank_has_its_processors_and_as_many_threads(limited):
    found = values(
        limited, "import os\n(len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    )
    assert found == [(1, "1")] * 2


def test_processes_that_a_rank_starts_count(limited):
    body = (
        "import os, subprocess, sys\n"
        "if os.environ['RANK'] == '1':\n"
        f"    command = [sys.executable, '-c', {HOLDS!r}]\n"
        "    pipe = subprocess.PIPE\n"
        "    held = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in range(2)]\n"
        "    [each.stdout.readline() for each in held]\n"
        "    held[0].wait(120)"
    )
    outcome = limited.run(request(limited, body), lambda _: None)
    assert list(outcome.lost) == [1]
    # It may be ended before they have all that they want.
    how = outcome.lost[1].how
    assert re.match(r"used more than memory_limit=300MB: [34]\d\d MB with the processes", how), how


def test_a_limit_below_what_a_rank_begins_with_is_refused(make):
    with pytest.raises(
        StartError, match=r"memory_limit=5MB is too small.*Write memory_limit=\d+MB"
    ):
        make(memory_limit=5 * MB)


def test_pages_that_a_fork_shares_count_once():
    held = bytearray(os.urandom(MB)) * 64
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        os._exit(len(held) == 0)
    family = (os.getpid(), child)
    try:
        whole = sum(map(own_memory, family))
        # Either of them may touch a few more pages meanwhile.
        assert abs(held_by(family, limit=whole + 20 * MB) - whole) < 20 * MB
        assert held_by(family, limit=MB) < whole - 40 * MB
    finally:
        os.write(write, b"1")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
    assert own_memory(child) == 0


def test_limits_of_the_users_own_stay_and_forked_processes_have_none():
    import resource

    data = resource.RLIMIT_DATA
    before, most = resource.getrlimit(data)
    own = 1 << 40
    try:
        resource.setrlimit(data, (own, most))
        with MemoryLimit(LIMIT, os.getpid()).held():
            limit = resource.getrlimit(data)[0]
            assert limit < own
            if (child := os.fork()) == 0:
                os._exit(resource.getrlimit(data)[0] == limit)
            assert os.waitpid(child, 0)[1] == 0
        assert resource.getrlimit(data) == (own, most)
        with MemoryLimit(LIMIT, os.getpid()).held():
            resource.setrlimit(data, (own - 1, most))
        assert resource.getrlimit(data) == (own - 1, most)
    finally:
        resource.setrlimit(data, (before, most))


def test_without_a_limit_nothing_is_set(monkeypatch):
    monkeypatch.setattr(memory_limit.resource, "setrlimit", None)
    with MemoryLimit(None, os.getpid()).held():
        pass
    assert MemoryLimit(None, os.getpid()).why_too_small() == ""


@needs("torch", "jax")
@pytest.mark.extensive
@pytest.mark.parametrize(
    ("framework", "imports", "takes"),
    [
        (
            "torch",
            "import torch\nfloat(torch.ones(1000, 1000).matmul(torch.ones(1000, 1000)).sum())",
            "torch.ones(400_000_000)",
        ),
        (
            "jax",
            "import jax.numpy as jnp\nfloat(jnp.ones((1000, 1000)).sum())",
            "jnp.ones(400_000_000)",
        ),
    ],
)
def test_frameworks_start_within_a_gigabyte_and_raise_beyond_it(make, framework, imports, takes):
    pool = make(framework=(framework,), memory_limit=1000 * MB)
    assert all(found > 0 for found in values(pool, imports))
    outcome = pool.run(request(pool, takes, on_error="wait"), lambda _: None)
    assert len(outcome.failed) == 2
    said, more = of_a_memory_limit(outcome.failed, {}, 1000 * MB)
    assert said.startswith("ranks 0-1 reached memory_limit=1GB")
    assert more.startswith("for more: memory_limit=2GB replace")


def test_a_rank_that_came_meanwhile_is_not_ended_for_the_one_before_it(monkeypatch):
    """Its memory is read in another thread, which takes its time."""
    pids, told = {0: 11}, asyncio.Event()
    said = []

    def tell(rank, pid, held, limit):
        said.append((rank, pid, held, limit))
        told.set()

    def over(_watch, limit, looked_at):
        pids[0] = 12
        return dict.fromkeys(looked_at, limit + 1)

    async def watch():
        monkeypatch.setattr(MemoryWatch, "_over", over)
        watching = MemoryWatch(lambda: pids, tell)
        watching.begin(LIMIT)
        await told.wait()
        watching.end()

    asyncio.run(watch())
    assert said == [(0, 11, LIMIT + 1, LIMIT)]
