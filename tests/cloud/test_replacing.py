"""Rented machines that EC2 takes back, and others in their place: `on_preempt=replace`."""

from __future__ import annotations

import asyncio
import time

import pytest
from cloud import notebooks
from cloud.cases import calls_of
from cloud.replaced import (
    OPTIONS,
    PLACES,
    left_alone,
    machine_of,
    quote_of,
    ran,
    record,
    taken_back,
)
from pools import found, values
from waiting import until

from skyward_nb.pool import registry
from skyward_nb.protocol.events import Remark, Step
from skyward_nb.providers.aws import quoting, rental_records, sweep
from skyward_nb.reports import found_pools
from skyward_nb.words.errors import PoolError, TakenBack

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def rented(cloud, make, monkeypatch):
    monkeypatch.setattr(quoting, "quote_of", quote_of)
    return lambda **options: make(**{**OPTIONS, **options})


def test_a_machine_that_was_taken_back_has_another_in_its_place(cloud, rented):
    pool = rented()
    before = values(pool, PLACES)
    values(pool, "made = 1\nsent", {"sent": b"x" * 3_000_000})
    was = machine_of(cloud, pool, 1)
    was.notice()
    until(lambda: pool.look(lambda _: None) or pool.lines.links[1].noticed)
    calls = len(cloud.calls)
    old = taken_back(cloud, pool, 1)
    assert pool.bill.dollars == pytest.approx(0.04), "what is gone costs nothing"
    alone = pool.bill
    steps = []
    outcome, now = ran(
        pool, PLACES, lambda event: steps.append(event) if isinstance(event, Step) else None
    )
    new = pool.context.generations.machines[1].name
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
    stays = an_old_machine_that_is_not_known_to_end_is_told_of(cloud, pool)
    assert stays in {each.instance for each in cloud.machines}
    pool.close()
    cloud.nothing_left()
    assert rental_records.entries() == []
    made = {each.action for each in cloud.calls[calls:]}
    assert made == set(calls_of("replacement")), "cases are made of these"


def an_old_machine_that_is_not_known_to_end_is_told_of(cloud, pool):
    """And ends with the pool; its instance."""
    old = machine_of(cloud, pool, 1)
    old.notice()
    until(lambda: pool.look(lambda _: None) or pool.lines.links[1].noticed)
    cloud.fail("TerminateInstances", "UnauthorizedOperation", times=1)
    notes = []
    ran(pool, "1", lambda event: notes.append(event.text) if isinstance(event, Remark) else None)
    # On a busy machine it is said of the new one, too, that it is slow to answer.
    (told,) = [each for each in notes if "gives no answer" not in each]
    assert told.startswith(f"{old.instance} may still run (")
    assert old.instance in {name for each in record().attempts for name in each.instances}
    assert len(cloud.machines) == 3
    return old.instance


@pytest.mark.extensive
def test_what_is_spent_rents_nothing_new(cloud, rented):
    pool = rented(max_cost=5.0)
    machine_of(cloud, pool, 1).reclaim()
    pool.context.bill = type(pool.bill)(dollars=0.08, began=time.time(), before=5.0, max_cost=5.0)
    with pytest.raises(PoolError, match=r"no other is rented: it has cost \$5.00 of max_cost=5"):
        until(lambda: pool.look(lambda _: None))
    cloud.nothing_left()


@pytest.mark.extensive
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


@pytest.mark.extensive
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


@pytest.mark.extensive
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
    there = found_pools.others()
    assert there == []
    with pytest.raises(TakenBack) as raised:
        found_pools.choose(None, "", there, found_pools.silent(there))
    assert raised.value.message == said
    (line,) = found_pools.unanswered(there)
    assert f"is gone: the machine {old} has ended (EC2 says" in line
    forgotten = found_pools.forget(pool.pool_id, there)
    assert forgotten.entry.pool_id == pool.pool_id
    assert "what was left of it was ended, nothing left running" in found_pools.forgotten(forgotten)
    cloud.nothing_left()


@pytest.mark.extensive
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
        assert "; the next run gets another machine in its place" in attach.picture
        ran = book.kernel.run("%%sky_remote out=now\nimport socket\nsocket.gethostname()", 120)
        assert ran.status == "ok", ran.traceback
        assert f"in place of node 1 ({machine.instance})" in ran.picture, ran.picture
        first, second = book.here("print(now[0], now[1])").split()
        assert first == head and second not in (head, other)
