"""Machines that were stopped, against the API alone: who gets them, who leaves them, what sweeps do."""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cloud.renter import CPU, offer
from cloud.warm import all_ended, states, stopped, wake

from skyward_nb.protocol.events import CostChanged, Remark
from skyward_nb.providers.aws import (
    boot,
    provisioning,
    rental_records,
    sweep,
    termination,
    waking,
)
from skyward_nb.providers.aws.aws_machine import Rental
from skyward_nb.providers.aws.launch import Launch
from skyward_nb.providers.aws.launch_request import LaunchRequest
from skyward_nb.providers.aws.rental_records import Warmth
from skyward_nb.providers.aws.tags import spell_time
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import AccountError, LaunchError, StartError
from skyward_nb.words.offers import Need
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.volume import Volume

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
    assert [each["State"] for each in api.timers()] == ["DISABLED", "DISABLED"]
    found.entry.note(state="up")
    assert rental_records.find("next-1") is not None
    assert not made.end()
    assert api.left() == {}


OTHERS = (
    {"nodes": 1},
    {"aws": AWSAccess(region="us-east-1", disk=200)},
    {"aws": AWSAccess(region="us-east-1", tags=(("team", "a"),))},
    {"aws": AWSAccess(region="us-east-1", ami="ami-0123456789abcdef0")},
    {"aws": AWSAccess(region="us-east-1", instance_type="c6i.large")},
    {"volumes": (Volume(bucket="data", mount="/data"),)},
    {"accelerator": Accelerator("L4")},
    {"cpus": Need(2)},
    {"memory": Need(4, more=True)},
    {"spot": "auto"},
    {"max_cost": 0.01},
)


def test_others_leave_them(api, renter, quick):
    made = stopped(renter)
    for other in OTHERS:
        assert wake(made, "next-1", **other) is None, other
        assert states(api) == ["stopped", "stopped"], other
    assert wake(made, "next-1") is not None
    assert not made.end()


def test_a_zone_that_is_not_allowed_leaves_them(api, renter, quick):
    made = stopped(renter)
    assert wake(made, "next-1", offer(zones="b")) is None
    assert wake(made, "next-1", offer(CPU, spot=True)) is None
    all_ended(api)


def test_a_pool_that_does_not_stop_its_own_takes_them_too(api, renter, quick):
    made = stopped(renter)
    assert wake(made, aws=AWSAccess(region="us-east-1")) is not None
    assert not made.end()


@pytest.mark.parametrize(("warm", "seconds"), [(None, None), (900.0, 900)])
def test_the_new_pool_says_whether_and_how_long_they_are_stopped(api, renter, quick, warm, seconds):
    made = stopped(renter)
    found = wake(made, aws=AWSAccess(region="us-east-1", warm=warm))
    found.entry.note(state="up")
    rental = Rental(made.cloud, "next-1")
    for line in found.lines:
        rental.has(line, nothing)
    rental.may_stop(None)
    assert not asyncio.run(rental.give_back())
    if seconds is None:
        assert not rental.kept and set(states(api)) == {"terminated"}
        return
    assert "2 machines stopped until" in rental.kept and states(api) == ["stopped", "stopped"]
    (entry,) = rental_records.entries()
    assert entry.record.warmth.until == pytest.approx(time.time() + seconds, abs=30)
    all_ended(api)


async def nothing():
    """An agent that has ended."""


def test_their_time_counts_from_their_start(api, renter, quick, monkeypatch):
    made = stopped(renter)
    login = boot.log_in_again

    async def late(*given):
        began = time.time
        monkeypatch.setattr(waking.time, "time", lambda: began() + 100)
        return await login(*given)

    monkeypatch.setattr(boot, "log_in_again", late)
    assert wake(made, ttl=1000.0) is not None
    found = re.search(r'"\d+ \d+ (\d+)"', quick[0].ran[-1])
    deadline = int(found[1])
    assert 880 <= deadline <= 900
    monkeypatch.undo()
    assert not made.end()


def test_their_timer_is_put_off_while_they_start(api, renter, quick):
    made = stopped(renter)
    until = made.entry.record.warmth.until
    api.capacity("c6i.large", "us-east-1a", 1)
    before = len(api.calls)
    assert wake(made) is None
    actions = [each.action for each in api.calls[before:]]
    assert actions.index("UpdateSchedule") < actions.index("StartInstances")
    times = [
        each.parameters["ScheduleExpression"]
        for each in api.calls
        if each.action == "UpdateSchedule"
    ]
    assert f"at({spell_time(until + 3600)[:-1]})" in times
    assert {each["ScheduleExpression"] for each in api.timers()} == {
        f"at({spell_time(until)[:-1]})"
    }
    all_ended(api)


def test_a_start_that_fails_at_ec2_is_seen_at_once(api, renter, quick, monkeypatch):
    made = stopped(renter)
    asked, began = termination.asked, []

    async def failing(*given):
        told = await asked(*given)
        if any(each["State"]["Name"] in ("pending", "running") for each in told):
            began.append(1)
            for each in told:
                each["State"] = {"Name": "pending" if len(began) == 1 else "stopped"}
                each["StateReason"] = {"Code": "Client.InternalError", "Message": "no key"}
        return told

    monkeypatch.setattr(termination, "asked", failing)
    told: list[object] = []
    assert wake(made, told=told) is None
    (remark,) = [each.text for each in told if isinstance(each, Remark)]
    assert "InternalError" in remark and "no key" in remark and len(began) < 5
    monkeypatch.setattr(termination, "asked", asked)
    all_ended(api)


def test_a_start_that_failed_is_paid_for(api, renter, quick, monkeypatch):
    made = stopped(renter)

    async def fails(*_: object):
        raise StartError("default", "no login")

    monkeypatch.setattr(boot, "log_in_again", fails)
    assert wake(made, max_cost=1.0) is None
    least = 2 * 0.1 * 60 / 3600
    assert made.spent == pytest.approx(least, rel=0.2)
    next_one = renter("default-new")
    request = LaunchRequest(next_one.spec, made.cloud, next_one.entry, None, None)
    assert Launch(request, lambda _: None, made.spent).cost(time.time()) == made.spent
    next_one.entry.forget()
    asyncio.run(sweep.sweep())
    assert api.left() == {}


def test_without_capacity_they_stay_and_others_are_rented(api, renter, quick):
    made = stopped(renter)
    api.capacity("c6i.large", "us-east-1a", 1)
    told: list[object] = []
    assert wake(made, told=told) is None
    (remark,) = [each.text for each in told if isinstance(each, Remark)]
    assert "InsufficientInstanceCapacity" in remark and "they stay stopped" in remark
    assert states(api) == ["stopped", "stopped"]
    assert [each["State"] for each in api.timers()] == ["ENABLED", "ENABLED"]
    api.capacity("c6i.large", "us-east-1a", 2)
    assert wake(made) is not None, "later there is"
    assert not made.end()


def test_a_start_whose_answer_is_lost_is_ended_and_paid_for(api, renter, quick):
    """EC2 may say "stopped" of machines that it is about to start."""
    made = stopped(renter)
    api.lose("StartInstances", times=0)
    told: list[object] = []
    assert wake(made, told=told) is None
    api.calm()
    (remark,) = [each.text for each in told if isinstance(each, Remark)]
    assert "they are ended, and others are rented" in remark and made.spent > 0
    asyncio.run(sweep.sweep())
    assert api.left() == {}


def test_machines_that_may_run_on_have_no_others_beside_them(api, renter, quick, monkeypatch):
    made = stopped(renter)

    async def fails(*_: object):
        raise StartError("default", "no login")

    monkeypatch.setattr(boot, "log_in_again", fails)
    api.fail("TerminateInstances", "UnauthorizedOperation", times=0)
    with pytest.raises(LaunchError, match=r"no login: i-.* may still run"):
        wake(made)
    api.calm()
    asyncio.run(sweep.sweep())
    asyncio.run(sweep.sweep())
    assert api.left() == {}


def test_they_are_waited_for_while_they_are_on_their_way(api, renter, quick):
    api.stopping(3)
    made = stopped(renter)
    assert wake(made) is not None
    assert not made.end()


def test_those_that_stop_for_long_are_left_alone(api, renter, quick, monkeypatch):
    api.stopping(3)
    made = stopped(renter)
    monkeypatch.setattr(waking, "_STOPPING_LIMIT", 0.0)
    told: list[object] = []
    assert wake(made, told=told) is None and made.spent == 0
    (remark,) = [each.text for each in told if isinstance(each, Remark)]
    assert "are still stopping): they are left alone, and others are rented" in remark
    assert not {"StartInstances", "TerminateInstances"} & {each.action for each in api.calls}
    (record,) = [each.record for each in rental_records.entries()]
    assert record.state == "stopped"
    all_ended(api)


@pytest.mark.parametrize("is_mine", [True, False])
def test_those_that_somebody_has_started_are_neither_started_nor_ended(
    api, renter, quick, monkeypatch, is_mine
):
    """As where a home was copied while they were stopped: another computer's pool has them by its own record."""
    made = stopped(renter)
    names = [each.instance for each in made.entry.record.machines]
    asyncio.run(made.cloud.ask("StartInstances", "us-east-1", InstanceIds=names))
    told: list[object] = []
    with monkeypatch.context() as there:
        if not is_mine:
            there.setattr(rental_records, "owner", lambda: "me@there 2")
        assert wake(made, told=told) is None and made.spent == 0
        (remark,) = [each.text for each in told if isinstance(each, Remark)]
        assert "run already, started by somebody else): they are left alone" in remark
        report = asyncio.run(sweep.sweep())
        assert not report.machines and states(api) == ["running", "running"]
        said = report.left if is_mine else report.foreign
        assert [each for each in said if "which somebody else has started" in each]
        report = asyncio.run(sweep.sweep(ends_stopped=True))
        assert sorted(report.machines) == (sorted(names) if is_mine else [])
    all_ended(api)


def test_what_a_failed_start_cost_is_told_although_no_other_machine_is_rented(api, renter):
    made = renter()
    told: list[object] = []
    request = LaunchRequest(made.spec, made.cloud, made.entry, None, None)
    launch = Launch(request, told.append, 0.5)
    api.fail("DescribeSubnets", "UnauthorizedOperation", times=0)
    with pytest.raises(AccountError):
        asyncio.run(
            provisioning._reached(
                made.spec, made.cloud, made.entry, launch, (offer(),), told.append
            )
        )
    (bill,) = [each.bill for each in told if isinstance(each, CostChanged)]
    assert bill.before == 0.5 and bill.spent(time.time()) == 0.5
    assert not made.end()


def test_a_start_that_ec2_refuses_costs_nothing(api, renter, quick):
    made = stopped(renter)
    api.capacity("c6i.large", "us-east-1a", 1)
    assert wake(made) is None
    assert made.spent == 0
    all_ended(api)


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
