"""Machines that were stopped, against the API alone: who gets them, who leaves them, what sweeps do."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cloud.renter import CPU, offer
from cloud.warm import all_ended, rented, states, stopped, wake

from skyward_nb.protocol.events import Remark
from skyward_nb.providers.aws import rental_records, sweep
from skyward_nb.providers.aws.rental_records import MakerProcess, Warmth
from skyward_nb.words.aws_access import AWSAccess

# ── started ─────────────────────────────────────────────────────────────────────────────


def test_of_two_pools_that_want_them_one_gets_them(api, renter, quick):
    made = stopped(renter)
    entries = [rental_records.entries()[0] for _ in range(8)]

    def claim(number):
        return entries[number].claim(state="launching", used_by=f"pool-{number}")

    with ThreadPoolExecutor(8) as threads:
        claimed = list(threads.map(claim, range(8)))
    assert sum(claimed) == 1
    found = [number for number in range(8) if rental_records.find(f"pool-{number}")]
    assert found == [claimed.index(True)]
    assert not rental_records.find("default-abc"), "they are its own no more"
    assert not made.end()


def test_they_are_started_for_a_pool_with_the_same_needs(api, renter, quick):
    made = stopped(renter)
    found = wake(made)
    assert states(api) == ["running", "running"]
    assert found.entry.record.user_pool == "next-1"
    assert found.entry.record.pool_id == "default-abc"
    assert [each.instance for each in found.machines] == [each.instance for each in made.machines]
    assert all("systemctl restart skyward-deadman" in each.ran[-1] for each in quick)
    (timer,) = api.timers()
    assert timer["State"] == "DISABLED"
    found.entry.note(state="up")
    assert rental_records.find("next-1") is not None
    assert not made.end()
    assert api.left() == {}


@pytest.mark.parametrize(
    "other",
    [
        {"nodes": 1},
        {"aws": AWSAccess(region="us-east-1", disk=200)},
        {"aws": AWSAccess(region="us-east-1", tags=(("team", "a"),))},
        {"aws": AWSAccess(region="us-east-1", ami="ami-0123456789abcdef0")},
        {"max_cost": 0.01},
    ],
    ids=str,
)
def test_others_leave_them(api, renter, quick, other):
    made = stopped(renter)
    assert wake(made, "next-1", **other) is None
    assert states(api) == ["stopped", "stopped"]
    all_ended(api)


def test_a_zone_that_is_not_allowed_leaves_them(api, renter, quick):
    made = stopped(renter)
    assert wake(made, "next-1", offer(zones="b")) is None
    assert wake(made, "next-1", offer(CPU, spot=True)) is None
    all_ended(api)


def test_a_pool_that_does_not_stop_its_own_takes_them_too(api, renter, quick):
    made = stopped(renter)
    assert wake(made, aws=AWSAccess(region="us-east-1")) is not None
    assert not made.end()


def test_without_capacity_they_stay_and_others_are_rented(api, renter, quick):
    made = stopped(renter)
    api.capacity("c6i.large", "us-east-1a", 1)
    told: list[object] = []
    assert wake(made, told=told) is None
    (remark,) = [each.text for each in told if isinstance(each, Remark)]
    assert "InsufficientInstanceCapacity" in remark and "they stay stopped" in remark
    assert states(api) == ["stopped", "stopped"]
    (timer,) = api.timers()
    assert timer["State"] == "ENABLED"
    api.capacity("c6i.large", "us-east-1a", 2)
    assert wake(made) is not None, "later there is"
    assert not made.end()


def test_they_are_waited_for_while_they_are_on_their_way(api, renter, quick):
    api.stopping(3)
    made = stopped(renter)
    assert wake(made) is not None
    assert not made.end()


def test_a_timer_that_cannot_be_switched_off_ends_them(api, renter, quick):
    made = stopped(renter)
    api.fail("UpdateSchedule", "InternalServerException", times=0)
    told: list[object] = []
    assert wake(made, told=told) is None
    api.calm()
    assert "they are ended, and others are rented" in next(
        each.text for each in told if isinstance(each, Remark)
    )
    asyncio.run(sweep.sweep())
    assert api.left() == {}


def test_machines_that_end_soon_are_left_to_that(api, renter, quick):
    made = stopped(renter)
    warmth = made.entry.record.warmth
    made.entry.note(warmth=Warmth(seconds=7200, needs=warmth.needs, until=time.time() + 200))
    assert wake(made) is None
    all_ended(api)


# ── swept ───────────────────────────────────────────────────────────────────────────────


def test_a_sweep_lists_them_and_ends_those_whose_time_is_over(api, renter, quick):
    made = stopped(renter)
    found = asyncio.run(sweep.sweep())
    assert not found and "for a later pool: 2 machines stopped until" in str(found)
    assert states(api) == ["stopped", "stopped"]
    warmth = made.entry.record.warmth
    made.entry.note(warmth=Warmth(seconds=7200, needs=warmth.needs, until=time.time() - 1))
    found = asyncio.run(sweep.sweep())
    assert len(found.machines) == 2
    asyncio.run(sweep.sweep())
    assert api.left() == {}


def test_stopping_that_was_killed_is_ended_by_a_sweep(api, renter, quick):
    made = rented(renter)
    gone = MakerProcess(made.entry.record.maker.pid, 1.0, made.entry.record.maker.host)
    made.entry.note(state="stopping", maker=gone)
    found = asyncio.run(sweep.sweep())
    assert len(found.machines) == 2
    asyncio.run(sweep.sweep())
    assert api.left() == {}
