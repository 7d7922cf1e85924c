"""Pools whose machines are stopped at their end, and started for later pools, on machines that one can log in to."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import pytest
from cloud.notebooks import OPTIONS, START
from kernels import kernel
from leaks import leaves_nothing
from pools import start, values
from waiting import until

from skyward_nb.providers.aws import rental_records, sweep
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import AWSAccess

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cloud(shared_cloud, account):
    shared_cloud.reset()
    yield shared_cloud
    asyncio.run(sweep.sweep(ends_stopped=True))
    asyncio.run(sweep.sweep())
    shared_cloud.nothing_left()
    assert not rental_records.entries()


def made(*, warm=7200.0, kind="c6i.large", nodes=1, **options):
    return start(
        provider="aws",
        aws=AWSAccess(region="us-east-1", instance_type=kind, warm=warm),
        nodes=nodes,
        image=Image(interpreter=sys.executable),
        **options,
    )


def the_record():
    (entry,) = rental_records.entries()
    return entry.record


def launches(cloud):
    return cloud.actions().count("RunInstances")


def test_machines_are_stopped_with_a_timer_and_the_next_pool_has_them(cloud):
    with leaves_nothing():
        pool = made(nodes=2)
        assert [each["State"] for each in cloud.timers()] == ["DISABLED", "DISABLED"]
        before = {
            each.instance: each.file("/etc/ssh/ssh_host_ed25519_key.pub").read_text()
            for each in cloud.machines
        }
        for each in cloud.machines:
            each.sh("mkdir -p /home/ubuntu/.cache && echo made > /home/ubuntu/.cache/environment")
        began, first = time.time(), pool.pool_id
        pool.close()
        said = pool.closing.spell_end()
        assert "2 machines stopped until" in said and "$0.022 / h for 200 GB of disks" in said
        assert all(each in said for each in before)
        assert set(cloud.states().values()) == {"stopped"} and not cloud.machines
        assert [each["State"] for each in cloud.timers()] == ["ENABLED", "ENABLED"]
        ended = [json.loads(each["Target"]["Input"])["InstanceIds"] for each in cloud.timers()]
        assert sorted(ended) == sorted([each] for each in before)
        record = the_record()
        assert record.state == "stopped" and record.user_pool == ""
        assert record.warmth.until == pytest.approx(began + 7200, abs=60)
        pool = made(nodes=2)
        told = values(pool, "import os\nos.environ['RANK']", {"os": os})
        assert sorted(told) == ["0", "1"]
        for each in cloud.machines:
            assert each.file("/home/ubuntu/.cache/environment").read_text() == "made\n"
            there = each.sh(
                "find /home /tmp /var/tmp /dev/shm /run -xdev -name '*default-*' -print",
                check=False,
            )
            assert pool.pool_id in there and first not in there, "nothing of the first pool is left"
        assert launches(cloud) == 1 and cloud.actions().count("StartInstances") == 1
        after = {
            each.instance: each.file("/etc/ssh/ssh_host_ed25519_key.pub").read_text()
            for each in cloud.machines
        }
        assert after == before
        assert [each["State"] for each in cloud.timers()] == ["DISABLED", "DISABLED"]
        assert the_record().user_pool == pool.pool_id
        pool.close(for_good=True)
        assert "stopped" not in pool.closing.spell_end()
        cloud.nothing_left()


@pytest.mark.extensive
def test_a_notebook_tells_of_machines_that_are_stopped(cloud):
    with leaves_nothing(), kernel() as running:
        assert running.run(START).status == "ok"
        ran = running.run(f"%sky up {OPTIONS} nodes=1 warm=2h", 120)
        assert ran.status == "ok", ran.traceback
        ran = running.run(f"%sky up {OPTIONS} nodes=1 warm=3h replace", 120)
        assert ran.status == "ok", ran.traceback
        assert "was taken down for this one; 1 machine stopped until" in ran.picture
        ran = running.run("%sky down", 60)
        assert "1 machine stopped until" in ran.stdout and "/ h for 100 GB of disks" in ran.stdout
        assert "for a later pool: 1 machine stopped until" in running.run("%sky sweep", 60).stdout
        said = running.run("%sky down now", 60).stdout
        (instance,) = cloud.states()
        assert f"stopped for a later pool: {instance}; %sky sweep now ends them" in said
        ran = running.run("%sky sweep now", 60)
        assert "ended leftovers: 1 machine" in ran.stdout
        assert running.run("%sky sweep", 60).status == "ok"


def test_nobody_has_to_come_for_stopped_machines_to_end(cloud):
    made().close()
    assert list(cloud.states().values()) == ["stopped"]
    cloud.timers_go_off()
    assert list(cloud.states().values()) == ["terminated"]
    found = asyncio.run(sweep.sweep())
    assert not found.left and len(found.records) == 1
    cloud.nothing_left()


def test_a_machine_that_is_started_by_hand_ends_by_itself(cloud):
    made().close()
    instance = the_record().machines[0].instance
    import boto3

    boto3.client("ec2", "us-east-1").start_instances(InstanceIds=[instance])
    (machine,) = cloud.up(1)
    cloud.ask("settled")
    # Its timer has looked at the clock before it writes that down.
    until(machine.file("/var/lib/skyward/boot").exists)
    machine.pass_time(1000)
    cloud.up(0)
    assert cloud.states()[instance] == "terminated"
