"""One pool whose machines EC2 takes back again and again: each test leaves it whole to the next."""

from __future__ import annotations

import asyncio

import pytest
from cloud.presses import interrupts_at
from cloud.replaced import (
    KIND,
    PLACES,
    ZONES,
    attached,
    keeping,
    left_alone,
    machine_of,
    ran,
    record,
    taken_back,
    when_begun,
)
from pools import follow, request, values
from waiting import until

from skyward_nb.pool import registry
from skyward_nb.providers.aws import rental_records, sweep
from skyward_nb.words.errors import NotReplaced

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kept(shared_cloud, account):
    yield from keeping(shared_cloud, idle=120, confirm_above=None)


@pytest.fixture
def cloud(shared_cloud):
    yield shared_cloud
    for zone in ZONES:
        shared_cloud.capacity(KIND.name, zone, 100)


def generation(pool):
    return values(pool, PLACES)[0][2]


def test_where_none_can_be_had_the_pool_waits_as_it_is(cloud, pool):
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
    assert [each.instance for each in cloud.machines] == [pool.context.generations.machines[0].name]
    assert not pool.closed and not pool.is_ready and record().state == "up"
    assert not asyncio.run(sweep.sweep())
    for zone in ZONES:
        cloud.capacity(KIND.name, zone, 5)
    outcome, now = ran(pool, "2")
    assert now == [2, 2] and outcome.names_lost == ["kept"]


@pytest.mark.extensive
def test_the_head_that_will_be_taken_back_is_replaced_before_the_next_cell(cloud, kept, pool):
    before = generation(pool)
    head = machine_of(cloud, pool, 0)
    head.notice()
    until(lambda: pool.look(lambda _: None) or pool.lines.links[0].noticed)
    outcome, now = ran(pool, PLACES)
    assert "taken back at " in outcome.pool_lost[0]
    new = machine_of(cloud, pool, 0)
    assert [each[3] for each in now] == [new.private] * 2
    assert head.instance not in {each.instance for each in cloud.machines}
    # It is found by who comes later.
    pool.leave()
    kept.pool = attached(pool)
    places = [(0, 2, before + 1), (1, 2, before + 1)]
    assert [each[:3] for each in values(kept.pool, PLACES)] == places


@pytest.mark.extensive
def test_a_run_that_goes_on_ends_as_ranks_that_die_end_it(cloud, pool):
    before, old = generation(pool), machine_of(cloud, pool, 1)
    outcome, _ = ran(pool, "import time\nprint('begun')\ntime.sleep(120)", when_begun(old.reclaim))
    assert outcome.lost[1].how.startswith(f"ended with {old.instance} (EC2 says")
    assert outcome.done[0].interrupted
    assert outcome.pool_lost[0].endswith("the next run gets another machine in its place")
    assert len(cloud.machines) == 1, "nobody needs one yet"
    places = [(0, 2, before + 1), (1, 2, before + 1)]
    assert [each[:3] for each in values(pool, PLACES)] == places


def test_credentials_of_another_account_rent_nothing(cloud, pool):
    taken_back(cloud, pool, 1)
    entry = rental_records.find(pool.pool_id)
    own, attempts = entry.record.account, entry.record.attempts
    entry.note(account="999999999999")
    with pytest.raises(
        NotReplaced, match=f"belong to account {own}, and the pool to account 999999999999"
    ):
        ran(pool, "1")
    assert len(cloud.machines) == 1 and record().attempts == attempts
    entry.note(account=own)
    _, now = ran(pool, "2")
    assert now == [2, 2]


@pytest.mark.extensive
@pytest.mark.parametrize(
    "step",
    [
        "environment",
        *(pytest.param(each, marks=pytest.mark.extensive) for each in ("launch", "boot")),
    ],
)
def test_an_interrupt_leaves_nothing_behind(cloud, pool, step):
    taken_back(cloud, pool, 1)
    before, alone = record(), pool.bill
    with pytest.raises(KeyboardInterrupt):
        ran(pool, "1", interrupts_at(step))
    until(lambda: len(cloud.machines) == 1)
    assert record().machines == before.machines and not pool.closed
    assert all(each.over for each in record().attempts[len(before.attempts) :])
    assert pool.bill.before > alone.before or step == "launch", "what came to nothing is paid for"
    assert values(pool, "1") == [1, 1]


@pytest.mark.parametrize("node", [0, pytest.param(1, marks=pytest.mark.extensive)])
def test_who_attaches_has_another_for_one_that_went_while_nobody_was_there(cloud, kept, pool, node):
    before = values(pool, PLACES)
    (old,) = left_alone(cloud, pool, node)
    ((_, condition),) = until(lambda: registry.conditions(registry.entries()))
    assert condition.ranks == (1 - node,)
    kept.pool = again = attached(pool)
    (lacks,) = again.renewal.lacks
    assert lacks.startswith(f"node {node} ({old}): EC2 says that it is ")
    assert lacks.endswith("; the next run gets another machine in its place")
    assert again.bill.dollars == pytest.approx(0.04) and not again.is_ready
    assert [info.node for info in again.infos] == [0, 1], "where it was is known all the same"
    assert len(cloud.machines) == 1, "nobody needs one yet"
    outcome, now = ran(again, PLACES)
    assert outcome.lost_before[node].how.startswith(f"ended with {old} (EC2 says that it is ")
    new = machine_of(cloud, again, node)
    assert outcome.pool_lost[0].startswith(f"{new.instance} in place of node {node} ({old}): EC2")
    places = [(0, 2, before[0][2] + 1), (1, 2, before[0][2] + 1)]
    assert [each[:3] for each in now] == places
    assert now[node][5] == new.name and now[1 - node][5] == before[1 - node][5]
    assert again.bill.dollars == pytest.approx(0.08) and not again.renewal.lacks


@pytest.mark.extensive
def test_who_attaches_to_a_run_that_lost_a_machine_sees_how_it_ends(cloud, kept, pool):
    before = generation(pool)
    pool.begin(request(pool, "import time\nprint('begun')\ntime.sleep(120)"), lambda _: None)
    (old,) = left_alone(cloud, pool, 1)
    kept.pool = again = attached(pool)
    assert again.runs.unseen.ranks == (0, 1)
    outcome = follow(again, lambda _: None)
    assert outcome.lost[1].how.startswith(f"ended with {old} (EC2 says")
    assert outcome.done[0].interrupted
    places = [(0, 2, before + 1), (1, 2, before + 1)]
    assert [each[:3] for each in values(again, PLACES)] == places


@pytest.mark.extensive
def test_where_there_is_no_spot_machine_in_its_zone_the_next_way_is_taken(cloud, pool):
    taken_back(cloud, pool, 1)
    cloud.capacity(KIND.name, "us-east-1a", 0)
    ran(pool, "1")
    assert [(each.zone, each.spot) for each in record().machines] == [
        ("us-east-1a", True), ("us-east-1b", True),
    ]  # fmt: skip
    assert len(set(values(pool, PLACES)[0][4])) == 2
