"""Pools on a real Ray cluster of this machine: they come up, run, are found again, and end."""

import os
import signal
import sys
from pathlib import Path

import pytest
from engine_pools import does_as_one_of_this_machine, found_after_its_notebook_was_killed
from msgspec.structs import replace
from pools import found, request, values
from ray_pools.raylets import PYTHON
from waiting import until

from skyward_nb.protocol.events import Output, Phase, Remark
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.ray.group_records import GroupRecord
from skyward_nb.providers.ray.group_words import keep_of
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import PoolError, StartError


def phases(events):
    return [each.text for each in events if isinstance(each, Phase) and each.text]


_WHERE = """
import os
(os.environ['RANK'], os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('SKYWARD_SECRET'),
 sorted(name for name in os.environ if name.startswith(('RAY_JOB_ID', 'RAY_RAYLET', 'RAY_WORKER'))))
"""


def test_a_pool_comes_up_on_its_nodes_and_goes_with_its_group(on_ray, cluster, monkeypatch):
    monkeypatch.setenv("SKYWARD_SECRET", "hunter2")
    pool, events = on_ray(ranks_per_node=2, access={"resources": (("GPU", 1.0),)}), []
    pool.start(events.append)
    said = phases(events)
    assert said[0] == f"reaching Ray at address={cluster.address}"
    assert any(text.startswith("Ray has given ") for text in said)
    told = values(pool, _WHERE)
    assert [each[0] for each in told] == ["0", "1", "2", "3"]
    assert all(each[1] in ("0", "1") for each in told)  # the GPU of its actor
    assert {each[2] for each in told} == {None}  # a notebook's variables stay where they are
    assert [each[3] for each in told] == [[]] * 4
    large = os.urandom(3 << 20)
    assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 4
    assert "ray" not in sys.modules or Path(str(sys.modules["ray"].__file__)).parent.name != "ray"
    assert len(cluster.groups()) == 3
    pool.close()
    assert not cluster.groups()
    assert not pool.closing.may_run
    assert not GroupRecord.every()
    kept = [Path(keep_of(pool.pool_id, number)) for number in range(2)]
    until(lambda: not any(each.exists() for each in kept))


@pytest.mark.extensive
def test_of_two_pools_on_one_cluster_each_has_its_own_and_goes_alone(on_ray, cluster):
    first, second = on_ray(name="first"), on_ray(name="second")
    first.start(lambda _: None)
    second.start(lambda _: None)
    assert len(cluster.groups()) == 6
    assert values(first, "x = 'first'\nx") == ["first"] * 2
    assert values(second, "'x' in globals()") == [False] * 2
    # One that ends in the middle of the other's run takes nothing of it.
    going = second.begin(request(second, "import time\ntime.sleep(3)\n'whole'"), lambda _: None)
    first.close()
    assert len(cluster.groups()) == 3
    outcome = second.finish(going, lambda _: None)
    assert not outcome.failed and not outcome.lost
    assert values(second, "1") == [1, 1]
    second.close()
    assert not cluster.groups()


@pytest.mark.extensive
def test_a_pool_whose_notebook_and_helper_were_killed_is_found_again(on_ray, cluster):
    again = found_after_its_notebook_was_killed(on_ray().spec)
    assert values(again, "1") == [1, 1]
    other = on_ray(name="other", nodes=1)
    other.start(lambda _: None)  # beside it
    assert values(other, "2") == [2]
    assert values(again, "3") == [3, 3]
    other.close()

    # The helper is started anew when it has ended, and the run goes on.
    helper = again.context.generations.machines[0].group.helper
    os.kill(helper._process.pid, signal.SIGKILL)
    assert values(again, "4") == [4, 4]
    assert helper.number == 2
    again.close()
    assert not cluster.groups()


@pytest.mark.extensive
def test_a_node_whose_raylet_is_killed_ends_the_pool_with_rays_words(on_ray, cluster, no_leaks):
    pool = on_ray()
    pool.start(lambda _: None)

    def watch(event):
        if isinstance(event, Output) and "begun" in event.text and event.rank == 1:
            cluster.kill_raylet("second")

    body = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    pool.look(lambda _: None)
    try:
        with pytest.raises(PoolError, match=r"is gone: The actor died|has ended \(The actor died"):
            pool.run(request(pool, body), watch)
        pool.close()
    finally:
        cluster.stop_one("second")
        no_leaks.add(f"child {cluster.start_second()}")
    assert not cluster.groups()


# ── what does not come up ───────────────────────────────────────────────────────────────


def test_what_cannot_be_held_is_said_at_once_and_nothing_is_left(on_ray, cluster):
    for options, words in (
        ({"nodes": 3}, r"3 nodes with 1 CPU each are asked for, and 2 of the cluster's 2 can have"),
        (
            {"accelerator": Accelerator("H100", 1)},
            r"1 GPU \(H100\) each are asked for, and none of the cluster's 2 can have",
        ),
        ({"access": {"resources": (("TPU", 4.0),)}}, r"none of the cluster's 2 can have .*2 GPU"),
    ):
        pool = on_ray(**options)
        with pytest.raises(StartError, match=words):
            pool.start(lambda _: None)
        assert not GroupRecord.every()


@pytest.mark.extensive
def test_a_pool_that_waits_says_for_what_and_an_interrupt_removes_its_group(on_ray, cluster):
    from skyward_nb.providers.loop_thread import LOOP

    pool, told = on_ray(nodes=3, access={"waits": True}), []
    work = LOOP.start(pool.context.provider.acquire(pool.spec, pool.pool_id, told.append))
    until(lambda: any("Ray waits for its autoscaler" in text for text in phases(told)))
    assert len(cluster.groups()) == 1
    (record,) = GroupRecord.every()
    assert (record.pool_id, record.nodes) == (pool.pool_id, ())
    work.give_up()
    assert not GroupRecord.every()


@pytest.mark.extensive
def test_a_group_whose_notebook_was_killed_is_removed_by_the_next_pool(on_ray, cluster):
    cluster.say(f"""
import ray, ray.util
ray.init(address={cluster.address!r}, namespace="skyward_nb")
ray.util.placement_group([{{"CPU": 1}}] * 3, strategy="STRICT_SPREAD", name="skyward-lost-123456", lifetime="detached")
""")
    assert len(cluster.groups()) == 1
    GroupRecord(
        pool_id="lost-123456",
        access=on_ray().spec.ray,
        maker=replace(MakerProcess.this(), since=1.0),
        listing="/no/such",
        count=3,
    ).write()
    pool, events = on_ray(nodes=3), []
    with pytest.raises(StartError):
        pool.start(events.append)
    assert any(isinstance(each, Remark) and "lost-123456" in each.text for each in events)
    assert not cluster.groups()
    assert not GroupRecord.every()


@pytest.mark.extensive
@pytest.mark.parametrize("by_rays_client", [False, True])
def test_cells_large_values_and_pictures_are_as_on_this_machine(on_ray, cluster, by_rays_client):
    pool = on_ray(access={"address": cluster.client_address} if by_rays_client else {})
    pool.start(lambda _: None)
    does_as_one_of_this_machine(pool)
    pool.close()
    assert not cluster.groups()


@pytest.mark.extensive
def test_a_pool_that_nobody_comes_back_to_ends_its_group(on_ray, cluster):
    pool = on_ray(idle=15.0)
    pool.start(lambda _: None)
    pool.leave()
    until(lambda: not cluster.groups())
    with pytest.raises(PoolError, match="gone"):
        found(pool).attach(lambda _: None)


def test_where_no_ray_is_and_where_it_is_another_one_is_said(on_ray, tmp_path):
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    pool = on_ray(access={"python": str(other)})
    with pytest.raises(StartError, match=r"has no Ray: `pip install 'skyward-nb\[ray\]'`"):
        pool.start(lambda _: None)
    assert GroupRecord.find(pool.pool_id) is None
    assert PYTHON.exists()


_ANOTHER = """
import runpy, sys
import ray._private.utils
ray._private.utils.compute_version_info = lambda: ('2.9.0', '3.10.12')
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name='__main__')
"""


@pytest.mark.extensive
@pytest.mark.parametrize("by_rays_client", [False, True])
def test_ray_of_another_release_and_python_is_said_by_ray_itself(
    on_ray, cluster, tmp_path, by_rays_client
):
    """Of the helper's environment only what it takes for its own versions is another."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nshift\nexec {cluster.python} -I -c "{_ANOTHER}" "$@"\n')
    other.chmod(0o755)
    address = cluster.client_address if by_rays_client else cluster.address
    pool = on_ray(access={"python": str(other), "address": address})
    words = r"the cluster runs Ray 2\.\d+\.\d+ and Python 3\.\d+\.\d+, and .* has Ray 2\.9\.0 and Python 3\.10\.12"
    with pytest.raises(StartError, match=words):
        pool.start(lambda _: None)
    assert not cluster.groups()
