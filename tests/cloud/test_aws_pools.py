"""Pools on machines that are rented: launched, logged in to, used, and gone afterwards."""

from __future__ import annotations

import asyncio

import pytest
from cloud.offered import KIND, OFFER, ZONES, started, swept, wanted
from pools import found, request, values
from waiting import until

from skyward_nb.pickling.payload import unpack
from skyward_nb.pool import registry
from skyward_nb.protocol.events import Output, Step
from skyward_nb.providers.aws import boot, launch_request, provisioning, quoting, user_data
from skyward_nb.providers.far.far_machine import FarMachine
from skyward_nb.words.errors import PoolError, StartError
from skyward_nb.words.offers import Offer, Quote
from skyward_nb.words.spec import PoolSpec

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def rented(offered, make):
    def make_one(**options):
        return make(**wanted(**options))

    return make_one


# ── the way through ─────────────────────────────────────────────────────────────────────


def test_each_step_is_told_and_a_pool_is_found_again_and_then_ended(offered):
    steps = []

    def watch(event):
        if isinstance(event, Step):
            steps.append(event)

    pool = started(watch, max_cost=2, idle=60)
    assert pool.bill.dollars == 0.085 and pool.bill.what == "1 × c6i.large in us-east-1a"
    assert pool.bill.max_cost == 2
    done = [each.name for each in steps if each.done]
    assert done[:3] == ["launch", "boot", "login"]
    assert any(each.text == "1 × c6i.large in us-east-1a" for each in steps)
    values(pool, "x = 5\nx")
    calls = len(offered.calls)
    pool.leave()
    again = found(pool)
    again.attach(lambda _: None)
    assert values(again, "x") == [5]
    assert len(offered.calls) == calls, "it is found without AWS"
    again.close()
    offered.nothing_left()


# ── it ends by itself ───────────────────────────────────────────────────────────────────


def test_machines_that_were_left_end_by_themselves(cloud, rented):
    pool = rented(idle=30)
    values(pool, "1")
    pool.leave()
    assert not swept(), "somebody may come for it"
    cloud.leases_run_out()
    assert swept().records == [pool.pool_id]
    cloud.nothing_left()
    assert registry.conditions(registry.entries()) == []
    assert registry.entries() == []


@pytest.mark.extensive
def test_a_machine_that_nobody_readies_ends_by_itself(offered, monkeypatch):
    async def stuck(*_: object):
        # As a client that sleeps: what it does next, it does too late.
        await asyncio.get_running_loop().run_in_executor(None, offered.leases_run_out)
        raise StartError("default", "it slept")

    monkeypatch.setattr(boot, "_change_keys", stuck)
    with pytest.raises(StartError, match="it slept"):
        started()
    offered.nothing_left()


@pytest.mark.extensive
def test_machines_wait_for_as_long_as_they_are_readied(offered, monkeypatch):
    monkeypatch.setattr(boot, "_RENEWED_AFTER", 0.1)
    monkeypatch.setattr(boot, "_RENEWED_EVERY", 1.0)
    made_ready = provisioning.made_ready

    def passes():
        (machine,) = offered.machines
        lease = machine.file("/var/lib/skyward/lease")
        for _ in range(3):
            before = lease.stat().st_mtime_ns
            until(lambda before=before: lease.stat().st_mtime_ns != before)
            machine.pass_time(0.6 * user_data.BOOT)
        offered.ask("settled")

    async def slow(*args):
        await asyncio.get_running_loop().run_in_executor(None, passes)
        return await made_ready(*args)

    monkeypatch.setattr(provisioning, "made_ready", slow)
    pool = started(idle=user_data.BOOT)
    values(pool, "1")
    pool.close()
    offered.nothing_left()


def test_a_budget_ends_the_machines(cloud, rented, monkeypatch):
    terms = user_data.LeaseTerms(1e6, 1e6, 600, every=1)
    monkeypatch.setattr(launch_request, "lease_for", lambda *_: terms)
    pool = rented(max_cost=0.01)
    values(pool, "1")
    cloud.leases_run_out()
    pool.close()
    cloud.nothing_left()


@pytest.mark.extensive
def test_a_budget_is_a_time():
    spec = PoolSpec(provider="aws", max_cost=5, ttl=7200, idle=600)
    # A minute is paid for before it is counted; one is paid for in any case.
    assert user_data.lease_for(spec, 10.0).deadline == 1740
    assert user_data.lease_for(spec, 10.0, spent=2.5).deadline == 840
    assert user_data.lease_for(spec, 10.0, spent=4.9).deadline == 60
    assert user_data.lease_for(spec, 1.0).deadline == 7200
    assert user_data.lease_for(spec, None).deadline == 7200
    assert user_data.lease_for(PoolSpec(provider="aws"), 1.0).deadline == 0


# ── taken back ──────────────────────────────────────────────────────────────────────────

WAITS = """
import os, skyward_nb as sky, time
kept = []
@sky.on_preempt
def save():
    kept.append("saved")
until = time.monotonic() + 100
while not kept and time.monotonic() < until:
    time.sleep(0.05)
kept
"""


def test_a_notice_is_shown_what_is_to_be_saved_is_saved_and_what_was_taken_back_is_missed_soon(
    cloud, rented, monkeypatch
):
    spot = Offer(type=KIND, region="us-east-1", zones=ZONES, spot=True, price=OFFER.price)

    async def quote_of(spec):
        return Quote(nodes=spec.nodes, offers=(spot,))

    monkeypatch.setattr(quoting, "quote_of", quote_of)
    pool = rented(spot="yes")
    (machine,) = cloud.machines
    heard = []

    def watch(event):
        if isinstance(event, Output):
            heard.append(event.text)

    pool.look(lambda _: None)
    machine.notice()
    outcome = pool.run(request(pool, WAITS), watch)
    (end,) = outcome.done.values()
    assert unpack(end.value, pool.store) == ["saved"]
    assert "EC2 takes this machine back at" in "".join(heard)
    asked = []
    monkeypatch.setattr(FarMachine, "agent_log", lambda *each: asked.append(each))
    machine.reclaim()
    # Not only when it could not be reached for as long as `idle`.
    with pytest.raises(PoolError, match="is gone"):
        values(pool, "1")
    assert not asked, "nobody logs in to it again, for its agent's log"
    cloud.nothing_left()
