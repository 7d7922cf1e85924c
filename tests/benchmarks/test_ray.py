"""A pool on Ray beside Ray's own tasks for the same, on one cluster of this machine: `make bench`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from contenders import OURS
from ray_pools.raylets import PYTHON, Raylets, lacks, raylets

from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import RayAccess
from skyward_nb.words.spec import PoolSpec

SIZE = 256 << 20
STORE = 700_000_000
pytestmark = [pytest.mark.skipif(bool(lacks()), reason=lacks()), pytest.mark.timeout(900)]

_TIMES = """
import json, os, sys, time
from statistics import median
SIZE = int(sys.argv[1])
def seconds(step, *words):
    began = time.perf_counter()
    step(*words)
    return time.perf_counter() - began
def told(cell, give, give_back):
    for _ in range(20):
        cell()
    warm = median(seconds(cell) for _ in range(100))
    values = [os.urandom(SIZE) for _ in range(3)]
    there = median(seconds(give, each) for each in values)
    back = median(seconds(give_back) for _ in range(3))
    print(json.dumps([warm, there, back]), flush=True)
"""
_OURS = f"""{_TIMES}
sys.path[:0] = json.loads(sys.argv[2])
import dataclasses
import msgspec
from pools import request, values
from skyward_nb.pickling.payload import unpack
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.spec import PoolSpec
if __name__ == "__main__":
    pool = Pool(msgspec.json.decode(sys.stdin.read(), type=PoolSpec), PROVIDERS["ray"](), lambda _: None)
    pool.start(lambda _: None)
    def cell():
        pool.run(request(pool, "x = 1"), lambda _: None)
    def give(large):
        values(pool, "len(big)", {{"big": large}})
    def give_back():
        pool.look(lambda _: None)
        body = f"import os\\nos.urandom({{SIZE}}) if os.environ['RANK'] == '1' else None"
        outcome = pool.run(dataclasses.replace(request(pool, body), limit=1 << 30), lambda _: None)
        assert len(unpack(outcome.done[1].value, pool.store)) == SIZE
    pool.look(lambda _: None)
    told(cell, give, give_back)
    pool.close()
"""
_THEIRS = f"""{_TIMES}
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(address=sys.argv[2], logging_level=40, log_to_driver=False)
there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in ray.nodes() if node["Alive"]]
def everywhere(task, *words):
    return [task.options(scheduling_strategy=each).remote(*words) for each in there]
@ray.remote
def one():
    x = 1
@ray.remote
def size(large):
    return len(large)
@ray.remote
def large(size):
    return os.urandom(size)
def cell():
    ray.get(everywhere(one))
def give(value):
    assert ray.get(everywhere(size, ray.put(value))) == [SIZE] * len(there)
def give_back():
    assert len(ray.get(large.options(scheduling_strategy=there[-1]).remote(SIZE))) == SIZE
told(cell, give, give_back)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Raylets]:
    folder = Path(tempfile.mkdtemp(prefix="raylets-", dir="/tmp"))
    try:
        with raylets(folder / "r", STORE) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(cluster: Raylets, words: list[str], data: bytes = b"") -> list[float]:
    """The seconds that a program on a node of the cluster prints."""
    environ = {**os.environ, **cluster.environ, "SKYWARD_RAY_PYTHON": str(PYTHON)}
    ran = subprocess.run(
        [*cluster.within, *words], input=data, env=environ, stdout=subprocess.PIPE, check=True
    )
    return json.loads(ran.stdout.splitlines()[-1])


def test_ray(cluster, figure):
    spec = PoolSpec(
        name="bench", provider="ray", nodes=2, grace=20.0, image=Image(interpreter=sys.executable),
        ray=RayAccess(address=cluster.address),
    )  # fmt: skip
    ours = measured(
        cluster,
        [sys.executable, "-c", _OURS, str(SIZE), json.dumps(sys.path)],
        msgspec.json.encode(spec),
    )
    theirs = measured(cluster, [str(PYTHON), "-c", _THEIRS, str(SIZE), cluster.address])
    what = ("a warm cell, x = 1 on 2 nodes", "256 MB to 2 nodes", "256 MB from a node")
    for number, (name, most) in enumerate(zip(what, (1.0, 1.5, 1.5), strict=True)):
        own, task = ours[number], theirs[number]
        unit, by = ("ms", 1000) if number == 0 else ("s", 1)
        figure(
            f"Ray: {name}",
            f"{OURS} {by * own:.2f} {unit}, Ray's own task {by * task:.2f} {unit}: {own / task:.2f} ×",
            f"{most:g} × Ray's own task",
            own <= most * task,
        )
