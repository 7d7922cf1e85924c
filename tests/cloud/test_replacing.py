"""Rented machines that EC2 takes back, and others in their place: `on_preempt=replace`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest
from pools import found, request, values

from skyward_nb.providers.aws import ledger, quoting, sweep
from skyward_nb.wire.payload import unpack
from skyward_nb.words.aws import AWSAccess
from skyward_nb.words.errors import NotReplaced, PoolError
from skyward_nb.words.events import Step
from skyward_nb.words.image import Image
from skyward_nb.words.offers import InstanceType, Offer, Price, Quote

pytestmark = pytest.mark.timeout(300)
KIND = InstanceType(name="c6i.large", arch="x86_64", cpus=2, memory=4)
ZONES = ("us-east-1a", "us-east-1b")


def offer(*, spot, price):
    return Offer(
        type=KIND,
        region="us-east-1",
        zones=ZONES,
        spot=spot,
        price=Price(dollars=price, source="a test"),
    )


SPOT, ON_DEMAND = offer(spot=True, price=0.04), offer(spot=False, price=0.085)
PLACES = """
import socket, skyward_nb as sky
info = sky.instance_info()
peers = [(peer.node, peer.address) for peer in info.peers]
(info.rank, info.world_size, info.generation, info.head_addr, peers, socket.gethostname())
"""


@pytest.fixture
def rented(cloud, make, monkeypatch):
    async def quote_of(spec):
        return Quote(nodes=spec.nodes, offers=(SPOT, ON_DEMAND))

    monkeypatch.setattr(quoting, "quote_of", quote_of)

    def make_one(**options):
        wanted = {
            "provider": "aws", "aws": AWSAccess(region="us-east-1"), "nodes": 2, "spot": "auto",
            "image": Image(interpreter=sys.executable), "on_preempt": "replace",
        }  # fmt: skip
        return make(**{**wanted, **options})

    return make_one


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def machine_of(cloud, pool, node):
    name = pool._generations.machines[node].name
    (found,) = [each for each in cloud.machines if each.instance == name]
    return found


def taken_back(cloud, pool, node):
    """EC2 takes a node's machine back; returns its instance, once the pool knows."""
    machine = machine_of(cloud, pool, node)
    machine.reclaim()
    until(lambda: pool.look(lambda _: None))
    return machine.instance


def ran(pool, body, watch=lambda _: None, namespace=None):
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body, namespace), watch)
    return outcome, [
        unpack(end.value, pool.store) for _, end in sorted(outcome.done.items()) if end.value
    ]


def record():
    (entry,) = ledger.entries()
    return entry.record


def test_a_machine_that_was_taken_back_has_another_in_its_place(cloud, rented):
    pool = rented()
    before = values(pool, PLACES)
    values(pool, "made = 1\nsent", {"sent": b"x" * 3_000_000})
    was = machine_of(cloud, pool, 1)
    was.notice()
    until(lambda: pool.look(lambda _: None) or pool._lines.links[1].noticed)
    old = taken_back(cloud, pool, 1)
    assert pool.bill.dollars == pytest.approx(0.04), "what is gone costs nothing"
    steps = []
    outcome, now = ran(
        pool, PLACES, lambda event: steps.append(event) if isinstance(event, Step) else None
    )
    new = pool._generations.machines[1].name
    assert new != old
    # Every rank's place is true again.
    machines = [machine_of(cloud, pool, node) for node in range(2)]
    peers = [(node, machine.public) for node, machine in enumerate(machines)]
    assert [each[:5] for each in now] == [
        (rank, 2, 2, machines[0].public, peers) for rank in range(2)
    ]
    assert now[0][5] == before[0][5] and now[1][5] != before[1][5]
    # It is told which, why, and how long it took.
    assert outcome.lost_before[1].how.startswith(f"ended with {old} (EC2 says that it is ")
    assert "made" in outcome.names_lost
    (told,) = outcome.pool_lost
    assert (
        told.startswith(f"{new} in place of node 1 ({old}): EC2 says that it is")
        and "; it took " in told
    )
    assert {
        each.nodes for each in steps if each.name in ("replace", "launch", "boot", "environment")
    } == {(1,)}
    assert any(
        each.name == "ending" and each.text == f"{old} has ended, as EC2 says" for each in steps
    )
    # What the notebook has is put back, and what there is costs what it costs.
    assert values(pool, "len(sent)", {"sent": b"x" * 3_000_000}) == [3_000_000] * 2
    assert pool.bill.dollars == pytest.approx(0.08) and pool.bill.before > 0
    assert [each.instance for each in record().machines] == [each.instance for each in machines]
    assert {each.zone for each in record().machines} == {"us-east-1a"}
    assert old not in {name for each in record().attempts for name in each.instances}
    assert [each.token.rpartition("-")[2] for each in record().attempts] == ["0", "1"]
    pool.close()
    cloud.nothing_left()
    assert ledger.entries() == []


def test_the_head_that_will_be_taken_back_is_replaced_before_the_next_cell(cloud, rented):
    pool = rented()
    values(pool, "1")
    head = machine_of(cloud, pool, 0)
    head.notice()
    until(lambda: pool.look(lambda _: None) or pool._lines.links[0].noticed)
    outcome, now = ran(pool, PLACES)
    assert "taken back at " in outcome.pool_lost[0]
    new = machine_of(cloud, pool, 0)
    assert [each[3] for each in now] == [new.public] * 2
    assert head.instance not in {each.instance for each in cloud.machines}
    # It is found by who comes later.
    pool.leave()
    again = found(pool)
    again.attach(lambda _: None)
    assert [each[:3] for each in values(again, PLACES)] == [(0, 2, 2), (1, 2, 2)]
    again.close()
    cloud.nothing_left()


def test_a_run_that_goes_on_ends_as_ranks_that_die_end_it(cloud, rented):
    pool = rented()
    old = machine_of(cloud, pool, 1)
    began = []

    def watch(event):
        if not began and getattr(event, "text", "") == "begun\n":
            began.append(event)
            old.reclaim()

    outcome, _ = ran(pool, "import time\nprint('begun')\ntime.sleep(120)", watch)
    assert outcome.lost[1].how.startswith(f"ended with {old.instance} (EC2 says")
    assert outcome.done[0].interrupted
    assert outcome.pool_lost[0].endswith("the next cell rents another machine in its place")
    assert len(cloud.machines) == 1, "nobody needs one yet"
    assert [each[:3] for each in values(pool, PLACES)] == [(0, 2, 2), (1, 2, 2)]


def test_where_there_is_no_spot_machine_in_its_zone_the_next_way_is_taken(cloud, rented):
    pool = rented(confirm_above=None)
    taken_back(cloud, pool, 1)
    cloud.capacity(KIND.name, "us-east-1a", 0)
    ran(pool, "1")
    assert [(each.zone, each.spot) for each in record().machines] == [
        ("us-east-1a", True), ("us-east-1b", True),
    ]  # fmt: skip
    assert len(set(values(pool, PLACES)[0][4])) == 2


def test_where_none_can_be_had_the_pool_waits_as_it_is(cloud, rented):
    pool = rented()
    values(pool, "kept = 1\nkept")
    old = taken_back(cloud, pool, 1)
    for zone in ZONES:
        cloud.capacity(KIND.name, zone, 0)
    with pytest.raises(NotReplaced) as raised:
        ran(pool, "1")
    text = raised.value.message
    assert text.startswith(f"pool 'default' lacks node 1 ({old}): EC2 says that it is")
    for zone in ZONES:
        assert f"spot c6i.large in {zone}: " in text and f"\n  c6i.large in {zone}: " in text
    assert "It keeps its other machine (1): the next cell tries again" in text
    assert [each.instance for each in cloud.machines] == [pool._generations.machines[0].name]
    assert not pool.closed and not pool.is_ready and record().state == "up"
    assert not asyncio.run(sweep.sweep())
    for zone in ZONES:
        cloud.capacity(KIND.name, zone, 5)
    outcome, now = ran(pool, "2")
    assert now == [2, 2] and outcome.names_lost == ["kept"]
    pool.close()
    cloud.nothing_left()


def test_credentials_of_another_account_rent_nothing(cloud, rented):
    pool = rented()
    taken_back(cloud, pool, 1)
    entry = ledger.find(pool.pool_id)
    own = entry.record.account
    entry.note(account="999999999999")
    with pytest.raises(NotReplaced, match=f"of account {own}, and the pool was in 999999999999"):
        ran(pool, "1")
    assert len(cloud.machines) == 1 and len(record().attempts) == 1
    entry.note(account=own)
    _, now = ran(pool, "2")
    assert now == [2, 2]
    pool.close()
    cloud.nothing_left()


@pytest.mark.parametrize("step", ["launch", "boot", "environment"])
def test_an_interrupt_leaves_nothing_behind(cloud, rented, step):
    pool = rented()
    taken_back(cloud, pool, 1)
    before = record()
    sent = []

    def watch(event):
        if isinstance(event, Step) and event.name == step and not sent:
            sent.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ran(pool, "1", watch)
    until(lambda: len(cloud.machines) == 1)
    assert record().machines == before.machines and not pool.closed
    assert all(each.over for each in record().attempts[1:])
    assert values(pool, "1") == [1, 1]
    pool.close()
    cloud.nothing_left()


def test_what_is_spent_rents_nothing_new(cloud, rented):
    pool = rented(max_cost=5.0)
    machine_of(cloud, pool, 1).reclaim()
    pool.bill = type(pool.bill)(dollars=0.08, began=time.time(), before=5.0, max_cost=5.0)
    with pytest.raises(PoolError, match=r"no other is rented: it has cost \$5.00 of max_cost=5"):
        until(lambda: pool.look(lambda _: None))
    cloud.nothing_left()


def test_two_of_three_are_replaced_at_once_in_their_order(cloud, rented):
    pool = rented(nodes=3)
    before = values(pool, PLACES)
    for node in (2, 1):
        machine_of(cloud, pool, node).reclaim()
    until(lambda: len(pool.look(lambda _: None)) == 2)
    calls = cloud.actions().count("RunInstances")
    outcome, now = ran(pool, PLACES)
    assert sorted(outcome.lost_before) == [1, 2]
    peers = [(node, machine_of(cloud, pool, node).public) for node in range(3)]
    assert [each[:5] for each in now] == [(rank, 3, 2, peers[0][1], peers) for rank in range(3)]
    assert now[0][5] == before[0][5] and not {each[5] for each in now[1:]} & {b[5] for b in before}
    assert cloud.actions().count("RunInstances") == calls + 1, "all or none, by one call"
    pool.close()
    cloud.nothing_left()


def test_an_old_machine_that_is_not_known_to_end_is_told_of_and_ends_with_the_pool(cloud, rented):
    pool = rented()
    old = machine_of(cloud, pool, 1)
    old.notice()
    until(lambda: pool.look(lambda _: None) or pool._lines.links[1].noticed)
    cloud.fail("TerminateInstances", "UnauthorizedOperation", times=1)
    steps = []
    ran(pool, "1", lambda event: steps.append(event) if isinstance(event, Step) else None)
    (told,) = [each.text for each in steps if each.name == "ending"]
    assert told.startswith(f"{old.instance} may still run (")
    assert old.instance in {name for each in record().attempts for name in each.instances}
    assert len(cloud.machines) == 3
    pool.close()
    cloud.nothing_left()
