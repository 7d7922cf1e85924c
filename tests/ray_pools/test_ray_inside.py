"""A notebook on a node of the cluster: commands and values go by TCP, and Ray's own libraries work beside the pool."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest
from pools import found, values
from ray_pools.raylets import PYTHON

from skyward_nb.providers.ray.group_records import GroupRecord

pytestmark = [pytest.mark.extensive, pytest.mark.timeout(300)]

_INSIDE = """
import json, os, sys
import msgspec
sys.path[:0] = json.loads(sys.argv[1])
from pools import values
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.spec import PoolSpec
if __name__ == "__main__":
    spec = msgspec.json.decode(sys.stdin.read(), type=PoolSpec)
    pool = Pool(spec, PROVIDERS["ray"](), lambda _: None)
    pool.start(lambda _: None)
    large = os.urandom(3 << 20)
    back = values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 2
    doors = [machine._direct for machine in pool.context.generations.machines]
    by_door = [door._tls is not None and not door._shut_until for door in doors]
    cells = [values(pool, f"{number}") for number in range(20)]
    pool.close()
    print(json.dumps([back, by_door, cells == [[each] * 2 for each in range(20)]]))
"""


def test_a_pool_of_the_cluster_that_auto_led_to_is_found_there(on_ray, cluster, monkeypatch):
    """`RAY_ADDRESS` is set in every pod of KubeRay; another cluster's later must not hide the pool."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    pool = on_ray(access={"address": "auto"})
    pool.start(lambda _: None)
    monkeypatch.setenv("RAY_ADDRESS", "10.77.0.9:6379")
    helper = pool.context.generations.machines[0].group.helper
    os.kill(helper._process.pid, signal.SIGKILL)
    assert values(pool, "1") == [1, 1]
    pool.leave()
    record = GroupRecord.find(pool.pool_id)
    assert (record.access.address, record.cluster) == ("auto", cluster.address)
    again = found(pool)
    again.attach(lambda _: None)
    assert values(again, "2") == [2, 2]
    again.close()
    assert not cluster.groups()
    assert GroupRecord.find(pool.pool_id) is None


def test_on_a_node_of_the_cluster_commands_and_values_go_by_tcp(on_ray, cluster, monkeypatch):
    monkeypatch.setenv("SKYWARD_RAY_PYTHON", str(PYTHON))
    ran = subprocess.run(
        [*cluster.within, sys.executable, "-c", _INSIDE, json.dumps(sys.path)],
        input=msgspec.json.encode(on_ray().spec), capture_output=True, env={**os.environ}, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr.decode()[-2000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == [True, [True, True], True]
    assert not cluster.groups()


_DATA = """
import ray
ray.init(address={address!r}, logging_level=40, log_to_driver=False)
print("data", ray.data.range(1000).map(lambda row: {{"id": 2 * row["id"]}}).sum("id"))
print("end")
"""
_TRAIN = """
import pathlib
import ray, ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
ray.init(address={address!r}, logging_level=40, log_to_driver=False)
def work():
    context = ray.train.get_context()
    pathlib.Path({folder!r}, str(context.get_world_rank())).write_text(str(context.get_world_size()))
scaling = ray.train.ScalingConfig(num_workers=2, resources_per_worker={{"CPU": 0.5}})
config = ray.train.RunConfig(storage_path={folder!r}, name="beside")
DataParallelTrainer(work, scaling_config=scaling, run_config=config).fit()
print("train", *(pathlib.Path({folder!r}, rank).read_text() for rank in "01"))
print("end")
"""


@pytest.mark.parametrize(
    ("program", "told"), [(_DATA, "data 999000"), (_TRAIN, "train 2 2")], ids=["data", "train"]
)
def test_rays_own_libraries_work_beside_a_pool(on_ray, cluster, tmp_path, program, told):
    pool = on_ray()
    pool.start(lambda _: None)
    said = cluster.say(program.format(address=cluster.address, folder=str(tmp_path)))
    assert told in said.splitlines(), said
    assert values(pool, "1") == [1, 1]
