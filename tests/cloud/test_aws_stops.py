"""Machines that are stopped against the API alone: what EC2 refuses, what it costs, what is left."""

from __future__ import annotations

import asyncio
import time

import pytest
from cloud.renter import launches, offer
from cloud.warm import WARM, LineThatObeys, all_ended, rented, states, stopped

from skyward_nb.providers.aws import (
    rental_records,
    stopping,
)
from skyward_nb.providers.aws.aws_machine import Rental
from skyward_nb.words.errors import AccountError
from skyward_nb.words.offers import Bill

# ── stopped ─────────────────────────────────────────────────────────────────────────────


def test_the_timer_is_on_before_machines_are_stopped(api, renter, quick):
    made = stopped(renter)
    actions = api.actions()
    assert actions.index("CreateSchedule") < actions.index("RunInstances")
    assert actions.index("UpdateSchedule") < actions.index("StopInstances")
    assert states(api) == ["stopped", "stopped"]
    assert "2 machines stopped until" in made.said and "200 GB of disks" in made.said
    all_ended(api)


def test_a_machine_that_is_gone_keeps_no_other_from_its_end(api, renter, quick):
    made = stopped(renter)
    first, other = (each.instance for each in made.machines)
    for timer in api.timers():
        assert timer["Target"]["Input"] in {
            f'{{"InstanceIds": ["{each}"]}}' for each in (first, other)
        }
    asyncio.run(made.cloud.ask("TerminateInstances", "us-east-1", InstanceIds=[first]))
    api.timers_go_off()
    assert states(api) == ["terminated", "terminated"] and not api.timers()
    all_ended(api)


def test_who_may_neither_make_timers_nor_remove_them_keeps_no_record(api, renter):
    made = renter(aws=WARM)
    for action in ("CreateSchedule", "DeleteSchedule"):
        api.fail(action, "AccessDeniedException", times=0)
    with pytest.raises(AccountError, match=r"warm= needs a timer"):
        made.launch()
    assert not made.end()
    api.calm()
    assert not launches(api) and api.left() == {} and not rental_records.entries()


def test_without_the_role_nothing_is_rented(api, renter):
    api.roles()
    made = renter(aws=WARM)
    with pytest.raises(AccountError, match=r"warm= needs a timer.*the role skyward-nb-warm"):
        made.launch()
    assert not launches(api)
    assert not made.end()
    assert api.left() == {}


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("UpdateSchedule", "AccessDeniedException"),
        ("StopInstances", "UnauthorizedOperation"),
        ("StopInstances", "IncorrectInstanceState"),
        ("StopInstances", "UnsupportedOperation"),
    ],
)
def test_machines_that_cannot_be_stopped_are_ended(api, renter, quick, action, code):
    made = rented(renter)
    api.fail(action, code, times=0)
    with pytest.raises(stopping.NotStopped):
        asyncio.run(stopping.stop(made.cloud, made.entry, quick, None))
    api.calm()
    assert not made.end()
    assert api.left() == {} and not rental_records.entries()


def test_machines_that_a_sweep_has_begun_to_end_are_not_stopped(api, renter, quick):
    made = rented(renter)
    other = rental_records.find(made.entry.record.pool_id)
    assert other.claim(state="ending")
    with pytest.raises(stopping.NotStopped, match="another process has begun to end them"):
        asyncio.run(stopping.stop(made.cloud, made.entry, quick, None))
    assert "StopInstances" not in api.actions()
    assert not made.end()
    assert api.left() == {}


def test_whatever_fails_they_are_ended(api, renter, quick):
    made = rented(renter)
    rental = Rental(made.cloud, "default-abc")

    async def fails():
        raise ValueError("nobody thought of it")

    for line in quick:
        rental.has(line, fails)
    rental.may_stop(None)
    assert not asyncio.run(rental.give_back())
    assert "nobody thought of it; they are ended" in rental.kept
    assert set(states(api)) == {"terminated"} and api.left() == {}


def test_nothing_that_can_wait_comes_before_machines_are_stopped(api, renter, quick):
    made = rented(renter)
    before = len(api.calls)
    asyncio.run(stopping.stop(made.cloud, made.entry, quick, None))
    actions = [each.action for each in api.calls[before:]]
    first = actions[: actions.index("StopInstances")]
    assert set(first) == {"DescribeInstances", "GetCallerIdentity", "UpdateSchedule"}
    assert first.count("DescribeInstances") == 1
    all_ended(api)


def test_a_machine_that_cannot_be_prepared_is_not_stopped(api, renter, quick):
    made = rented(renter)
    with pytest.raises(stopping.NotStopped, match="it says no"):
        asyncio.run(stopping.stop(made.cloud, made.entry, [LineThatObeys(1)], None))
    assert "StopInstances" not in api.actions()
    assert not made.end()


def test_spot_machines_cannot_be_stopped_as_ec2_says(api, renter, quick):
    made = renter(spot="yes")
    made.launch(offer(spot=True))
    with pytest.raises(Exception, match="one-time Spot Instance request"):
        asyncio.run(
            made.cloud.ask("StopInstances", "us-east-1", InstanceIds=[made.machines[0].instance])
        )
    assert not made.end()


def bill(left):
    """Of machines that cost nothing more, however long the test takes."""
    return Bill(dollars=0.0, began=time.time(), before=5 - left, max_cost=5)


def test_their_disks_are_paid_of_what_the_budget_leaves(api, renter, quick):
    hour, began = 0.08 * 200 / 730, time.time()
    made = stopped(renter, bill=bill(hour))
    until = made.entry.record.warmth.until
    assert began + 3600 <= until + 0.001 and until <= time.time() + 3600.001
    all_ended(api)


def test_a_budget_that_leaves_too_little_ends_them(api, renter, quick):
    made = rented(renter)
    with pytest.raises(stopping.NotStopped, match="max_cost=5 leaves too little"):
        asyncio.run(stopping.stop(made.cloud, made.entry, quick, bill(0.001)))
    assert not made.end()


def test_without_a_price_it_says_so(api, renter, quick):
    api.fail("GetProducts", "AccessDeniedException", times=0)
    made = stopped(renter)
    assert "a price that AWS did not tell" in made.said
    api.calm()
    all_ended(api)
