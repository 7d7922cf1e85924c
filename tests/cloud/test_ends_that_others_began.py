"""Ends of rented machines that another process has begun, or that EC2 tells of late, against the API alone."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from cloud.bakes import all_removed
from cloud.warm import LineThatObeys, rented, states, stopped
from msgspec.structs import replace

from skyward_nb.providers import maker_process
from skyward_nb.providers.aws import image_records, rental_records, sweep, termination
from skyward_nb.providers.aws.aws_machine import Rental
from skyward_nb.providers.aws.image_contents import TAKE_OUT
from skyward_nb.providers.maker_process import MakerProcess


@pytest.fixture
def others(monkeypatch):
    """Have another process, which lives, claim an end."""

    def begin(entry):
        assert entry.claim_end()
        pid = os.getppid()
        other = replace(MakerProcess.this(), pid=pid, since=maker_process._started(pid))
        entry.note(maker=other)
        assert other.may_live

    return begin


def test_who_finds_agents_gone_leaves_machines_to_the_process_that_bakes(
    api, one_rented, others, monkeypatch
):
    baking = Rental(one_rented.cloud, "default-abc")
    other = Rental(one_rented.cloud, "default-abc")
    said = []

    class Line(LineThatObeys):
        async def run(self, script, **how):
            if script == TAKE_OUT:
                # The other one is another process.
                with monkeypatch.context() as patch:
                    own = replace(MakerProcess.this(), pid=os.getppid())
                    patch.setattr(MakerProcess, "this", lambda: own)
                    said.append((await other.give_back(), other.kept, states(api)))
            return await super().run(script, **how)

    line = Line()
    line.name = one_rented.machines[0].instance

    async def ends():
        pass

    baking.has(line, ends)
    baking.bake(line, "torch")
    assert not asyncio.run(baking.give_back())
    (found,) = said
    assert found[0] == "" and f"process {os.getpid()} on" in found[1] and found[2] == ["running"]
    assert "image torch is ami-" in baking.kept and states(api) == ["terminated"]
    assert image_records.entries()[0].record.state == "made"
    all_removed(api)


def test_an_end_for_good_that_was_asked_for_ends_them_all_the_same(api, renter, quick, others):
    made = rented(renter)
    others(made.entry)
    rental = Rental(made.cloud, "default-abc")
    rental.may_stop(None)
    assert not asyncio.run(rental.give_back())
    assert states(api) == ["running", "running"] and "stops its machines" in rental.kept
    rental = Rental(made.cloud, "default-abc")
    rental.end_for_good()
    assert not asyncio.run(rental.give_back())
    assert set(states(api)) == {"terminated"} and api.left() == {}


def test_an_end_that_another_computer_began_counts_from_there(api, one_rented):
    entry = one_rented.entry
    entry.note(created=time.time() - 2 * 86400)
    assert entry.claim_end()
    entry.note(maker=replace(entry.record.maker, host="login1", machine="another"))
    assert not asyncio.run(sweep.sweep()).machines and states(api) == ["running"]
    entry.note(claimed=time.time() - 2 * 86400)
    assert asyncio.run(sweep.sweep()).machines == [one_rented.machines[0].instance]
    assert states(api) == ["terminated"]
    assert rental_records.find("default-abc") is None or not one_rented.end()


def test_timers_stay_until_ec2_says_that_their_machines_end(api, renter, quick, monkeypatch):
    made = stopped(renter)
    asked = termination.asked

    async def asked_late(*arguments):
        return [{**each, "State": {"Name": "stopped"}} for each in await asked(*arguments)]

    with monkeypatch.context() as patch:
        patch.setattr(termination, "_LOOKS", ())
        patch.setattr(termination, "asked", asked_late)
        left = made.end()
    assert len(left.machines) == 2 and any("timer" in each for each in left.others)
    assert len(api.timers()) == 2 and "DeleteSchedule" not in api.actions()
    assert not made.end()
    assert api.left() == {} and not api.timers()
