"""Rented machines that EC2 takes back, and others in their place: `on_preempt=replace`."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest
from cloud import notebooks
from cloud.presses import interrupts_at
from later import needs
from pools import found, request, values
from waiting import until

from skyward_nb.api import left
from skyward_nb.pool import registry
from skyward_nb.providers.aws import ledger, quoting, sweep
from skyward_nb.wire.payload import unpack
from skyward_nb.words.aws import AWSAccess
from skyward_nb.words.errors import NotReplaced, PoolError, TakenBack
from skyward_nb.words.events import Noted, Step
from skyward_nb.words.image import Image
from skyward_nb.words.offers import InstanceType, Offer, Price, Quote

pytestmark = pytest.mark.timeout(300)
needs_torch = needs("torch")
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


ALL_REDUCED = """
import socket, torch, torch.distributed as dist
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
(dist.get_backend(), dist.get_world_size(), total.item(), socket.gethostname())
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


def when_begun(what):
    """Watches a run, and does this once a rank says that it has begun."""
    began = []

    def watch(event):
        if not began and "begun" in getattr(event, "text", ""):
            began.append(event)
            what()

    return watch


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
    alone = pool.bill
    steps = []
    outcome, now = ran(
        pool, PLACES, lambda event: steps.append(event) if isinstance(event, Step) else None
    )
    new = pool._generations.machines[1].name
    assert new != old
    # Every rank's place is true again.
    machines = [machine_of(cloud, pool, node) for node in range(2)]
    peers = [(node, machine.private) for node, machine in enumerate(machines)]
    assert [each[:5] for each in now] == [
        (rank, 2, 2, machines[0].private, peers) for rank in range(2)
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
    assert pool.bill.dollars == pytest.approx(0.08)
    # The other one is paid for since it was asked for.
    both_since, asked = pool.bill.began, record().attempts[-1].at
    assert pool.bill.before == pytest.approx(
        alone.spent(both_since) + 0.04 * (both_since - asked) / 3600
    )
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
    assert [each[3] for each in now] == [new.private] * 2
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
    outcome, _ = ran(pool, "import time\nprint('begun')\ntime.sleep(120)", when_begun(old.reclaim))
    assert outcome.lost[1].how.startswith(f"ended with {old.instance} (EC2 says")
    assert outcome.done[0].interrupted
    assert outcome.pool_lost[0].endswith("the next run rents another machine in its place")
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
    zones = ", ".join(ZONES)
    assert f"spot c6i.large in {zones}: " in text and f"\n  c6i.large in {zones}: " in text
    assert "It keeps its other machine (1): the next run tries again" in text
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
    before, alone = record(), pool.bill
    with pytest.raises(KeyboardInterrupt):
        ran(pool, "1", interrupts_at(step))
    until(lambda: len(cloud.machines) == 1)
    assert record().machines == before.machines and not pool.closed
    assert all(each.over for each in record().attempts[1:])
    assert pool.bill.before > alone.before or step == "launch", "what came to nothing is paid for"
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
    assert pool.bill.dollars == pytest.approx(0.04), "two are gone"
    calls = cloud.actions().count("RunInstances")
    outcome, now = ran(pool, PLACES)
    assert sorted(outcome.lost_before) == [1, 2]
    peers = [(node, machine_of(cloud, pool, node).private) for node in range(3)]
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
    notes = []
    ran(pool, "1", lambda event: notes.append(event.text) if isinstance(event, Noted) else None)
    (told,) = notes
    assert told.startswith(f"{old.instance} may still run (")
    assert old.instance in {name for each in record().attempts for name in each.instances}
    assert len(cloud.machines) == 3
    pool.close()
    cloud.nothing_left()


# ── process groups ──────────────────────────────────────────────────────────────────────


@needs_torch
@pytest.mark.parametrize("node", [0, 1])
def test_a_process_group_spans_the_machine_that_came_in_place_of_another(cloud, rented, node):
    pool = rented(framework=("torch",))
    before = values(pool, ALL_REDUCED)
    assert [each[:3] for each in before] == [("gloo", 2, 3.0)] * 2
    taken_back(cloud, pool, node)
    _, now = ran(pool, ALL_REDUCED)
    assert [each[:3] for each in now] == [("gloo", 2, 3.0)] * 2
    assert [each[3] for each in now] == [machine_of(cloud, pool, n).name for n in range(2)]
    assert now[node][3] != before[node][3] and now[1 - node][3] == before[1 - node][3]
    pool.close()
    cloud.nothing_left()


@needs_torch
def test_ranks_that_wait_for_a_machine_that_is_taken_back_are_let_go(cloud, rented):
    pool = rented(framework=("torch",))
    old = machine_of(cloud, pool, 1)
    body = "import time\nif dist.get_rank():\n    print('begun')\n    time.sleep(120)\n"
    body = f"import torch.distributed as dist\n{body}{ALL_REDUCED}"
    outcome, _ = ran(pool, body, when_begun(old.reclaim))
    assert outcome.lost[1].how.startswith(f"ended with {old.instance} (EC2 says")
    assert outcome.done[0].interrupted or outcome.done[0].failure, outcome
    _, now = ran(pool, ALL_REDUCED)
    assert [each[:3] for each in now] == [("gloo", 2, 3.0)] * 2
    pool.close()
    cloud.nothing_left()


# ── while nobody is there ───────────────────────────────────────────────────────────────


def left_alone(cloud, pool, *nodes):
    """Leave a pool, and have EC2 take nodes' machines back then; returns their instances."""
    machines = [machine_of(cloud, pool, node) for node in nodes]
    pool.leave()
    for machine in machines:
        machine.reclaim()
    return [machine.instance for machine in machines]


def attached(pool):
    """Another client that has attached to what there is."""
    again = found(pool)
    (entry,) = registry.entries()
    again.started, again.bill = entry.started, entry.bill
    again.attach(lambda _: None)
    return again


@pytest.mark.parametrize("node", [0, 1])
def test_who_attaches_has_another_for_one_that_went_while_nobody_was_there(cloud, rented, node):
    pool = rented(idle=120)
    before = values(pool, PLACES)
    (old,) = left_alone(cloud, pool, node)
    ((_, condition),) = registry.conditions(registry.entries())
    assert condition.ranks == (1 - node,)
    again = attached(pool)
    (lacks,) = again.lacks
    assert lacks.startswith(f"node {node} ({old}): EC2 says that it is ")
    assert lacks.endswith("; the next run rents another machine in its place")
    assert again.bill.dollars == pytest.approx(0.04) and not again.is_ready
    assert [info.node for info in again.infos] == [0, 1], "where it was is known all the same"
    assert len(cloud.machines) == 1, "nobody needs one yet"
    outcome, now = ran(again, PLACES)
    assert outcome.lost_before[node].how.startswith(f"ended with {old} (EC2 says that it is ")
    new = machine_of(cloud, again, node)
    assert outcome.pool_lost[0].startswith(f"{new.instance} in place of node {node} ({old}): EC2")
    assert [each[:3] for each in now] == [(0, 2, 2), (1, 2, 2)]
    assert now[node][5] == new.name and now[1 - node][5] == before[1 - node][5]
    assert again.bill.dollars == pytest.approx(0.08) and not again.lacks
    again.close()
    cloud.nothing_left()
    assert ledger.entries() == []


def test_who_attaches_to_a_run_that_lost_a_machine_sees_how_it_ends(cloud, rented):
    pool = rented(idle=120)
    pool.begin(request(pool, "import time\nprint('begun')\ntime.sleep(120)"), lambda _: None)
    (old,) = left_alone(cloud, pool, 1)
    again = attached(pool)
    assert again.unseen.ranks == (0, 1)
    outcome = again.follow(lambda _: None)
    assert outcome.lost[1].how.startswith(f"ended with {old} (EC2 says")
    assert outcome.done[0].interrupted
    assert [each[:3] for each in values(again, PLACES)] == [(0, 2, 2), (1, 2, 2)]
    again.close()
    cloud.nothing_left()


def test_a_pool_whose_machines_all_went_while_nobody_was_there_is_gone(cloud, rented):
    pool = rented(idle=120)
    old = left_alone(cloud, pool, 0, 1)
    with pytest.raises(TakenBack) as raised:
        found(pool).attach(lambda _: None)
    for each in old:
        assert f"the machine {each} has ended (EC2 says that it is " in raised.value.why
    assert raised.value.message.endswith("). The next run makes a new one.")
    assert registry.entries() == []
    asyncio.run(sweep.sweep())
    cloud.nothing_left()


def test_a_pool_that_is_not_to_replace_is_gone_with_the_machine_that_went(cloud, rented):
    pool = rented(idle=120, on_preempt="tell")
    (old,) = left_alone(cloud, pool, 1)
    with pytest.raises(TakenBack) as raised:
        found(pool).attach(lambda _: None)
    said = raised.value.message
    assert said.startswith(
        f"pool 'default' is gone: the machine {old} has ended (EC2 says that it is "
    )
    assert f"`%sky down pool={pool.pool_id}` ends the rest of it now" in said
    assert "With on_preempt=replace a pool goes on" in said
    # Kernels, which ask first who is there, say the same.
    there = left.others()
    assert there == []
    with pytest.raises(TakenBack) as raised:
        left.choose(None, "", there, left.silent(there))
    assert raised.value.message == said
    (line,) = left.unanswered(there)
    assert f"is gone: the machine {old} has ended (EC2 says" in line
    forgotten = left.forget(pool.pool_id, there)
    assert forgotten.entry.pool_id == pool.pool_id
    assert "what was left of it was ended, nothing left running" in left.forgotten(forgotten)
    cloud.nothing_left()


def test_a_kernel_that_attaches_tells_what_lacks_and_its_next_cell_rents_another(cloud):
    with notebooks.rented(cloud) as book:
        book.options += " on_preempt=replace spot=yes idle=10m"
        head, other = book.values("socket.gethostname()", timeout=120)
        (machine,) = [each for each in cloud.machines if each.name == other]
        book.kernel.restart()
        machine.reclaim()
        attach = book.kernel.run("%sky attach", 90)
        assert attach.status == "ok", attach.traceback
        assert f"node 1 ({machine.instance}): EC2 says that it is " in attach.picture
        assert "; the next run rents another machine in its place" in attach.picture
        ran = book.kernel.run("%%sky_remote out=now\nimport socket\nsocket.gethostname()", 120)
        assert ran.status == "ok", ran.traceback
        assert f"in place of node 1 ({machine.instance})" in ran.picture, ran.picture
        first, second = book.here("print(now[0], now[1])").split()
        assert first == head and second not in (head, other)
