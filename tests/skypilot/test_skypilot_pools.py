"""Pools on machines that SkyPilot has rented, as its command line and the SSH config that it writes show them."""

import os
import signal
import time
from pathlib import Path

import pytest
from engine_pools import does_as_one_of_this_machine, found_after_its_notebook_was_killed
from msgspec.structs import replace
from pools import values
from waiting import until

from skyward_nb.pool import registry
from skyward_nb.protocol.events import CostChanged, Phase, Remark
from skyward_nb.providers.far import take_down
from skyward_nb.providers.loop_thread import LOOP
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.skypilot.cluster_records import ClusterRecord
from skyward_nb.providers.skypilot.cluster_request import keep_of
from skyward_nb.providers.skypilot.sky_cluster import RentedCluster
from skyward_nb.providers.ssh.host_keys import pin_file
from skyward_nb.reports.cost_approval import dry_lines, quote_for
from skyward_nb.words.errors import AccountError, NothingFits, PoolError, StartError
from skyward_nb.words.provider_access import SkyPilotAccess


def phases(events):
    return [each.text for each in events if isinstance(each, Phase) and each.text]


def verbs(fake):
    return [words[0] for words in fake.calls()]


# ── what runs there ─────────────────────────────────────────────────────────────────────


def test_a_pool_comes_up_costs_and_is_taken_down(rented, fake, machine):
    pool, events = rented(max_cost=100.0), []
    pool.start(events.append)
    said = phases(events)
    assert said[0] == "SkyPilot looks for machines"
    assert "SkyPilot: Launching on GCP us-central1 (us-central1-a)." in said
    (bill,) = [each.bill for each in events if isinstance(each, CostChanged)]
    assert (bill.dollars, bill.what, bill.max_cost) == (
        58.78, "2 × a2-highgpu-8g on GCP (us-central1)", 100.0,
    )  # fmt: skip
    assert values(pool, "import os\nos.environ['RANK']") == ["0", "1"]
    large = os.urandom(3 << 20)
    assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 2
    cluster = f"skyward-{pool.pool_id}"
    launch = fake.calls()[0]
    assert {f"--cluster={cluster}", "--down", "--num-nodes=2", "--infra=gcp"} <= {*launch}
    pins = pin_file().read_text()
    assert f"[{cluster}]:{machine.port} ssh-ed25519" in pins
    assert f"[{cluster}-worker1]:{machine.port}" in pins
    pool.close()
    assert verbs(fake) == ["launch", "status", "down", "status"]
    assert "--refresh" in fake.calls()[-1]
    assert not pool.closing.may_run
    assert not ClusterRecord.every()
    assert cluster not in pin_file().read_text()
    kept = [Path(keep_of(pool.pool_id, node)) for node in range(2)]
    until(lambda: not any(each.exists() for each in kept))


@pytest.mark.extensive
def test_a_pool_whose_notebook_was_killed_is_found_again_until_its_machines_are_gone(
    rented, fake, machine
):
    again = found_after_its_notebook_was_killed(rented(nodes=1).spec)
    assert values(again, "1") == [1]

    # A spot machine is taken back.
    (name,) = known = fake.clusters()
    known[name] |= {"status": "INIT", "why": "1 of 1 nodes terminated"}
    fake.keep(known)
    os.killpg(known[name]["pids"][0], signal.SIGTERM)
    with pytest.raises(
        PoolError, match=r"spot machines are taken back so.*1 of 1 nodes terminated"
    ):
        until(lambda: values(again, "2") != [2])
    again.close()
    assert not fake.clusters()
    assert not registry.entries()


@pytest.mark.extensive
def test_cells_large_values_and_pictures_are_as_on_this_machine(rented):
    pool = rented()
    pool.start(lambda _: None)
    does_as_one_of_this_machine(pool)


# ── what does not come up ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("no-cloud", r"Cloud access is not set up.*`sky check` says what each cloud lacks"),
        pytest.param(
            "fails",
            r"Failed to acquire resources in all zones in us-central1",
            marks=pytest.mark.extensive,
        ),
    ],
)
def test_what_cannot_be_rented_is_said_and_nothing_is_left(rented, fake, wrong, words):
    fake.say(wrong)
    pool = rented()
    with pytest.raises(StartError, match=f"(?s){words}"):
        pool.start(lambda _: None)
    assert verbs(fake)[-2:] == ["down", "status"]
    assert not fake.clusters()
    assert not ClusterRecord.every()


def test_without_skypilot_it_is_said_how_to_have_it(rented, fake, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    pool = rented(skypilot=SkyPilotAccess())
    with pytest.raises(StartError, match=r"uv tool install --python 3\.12 'skypilot"):
        pool.start(lambda _: None)
    assert not ClusterRecord.every()


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_an_interrupt_cancels_the_request_and_takes_down_what_it_made(rented, fake, is_confirmed):
    """Where SkyPilot does not confirm that it has cancelled it, the next pool looks for its cluster again."""
    fake.say("hangs")
    if not is_confirmed:
        fake.say("cancel-fails")
    pool, told = rented(), []
    work = LOOP.start(pool.context.provider.acquire(pool.spec, pool.pool_id, told.append))
    until(lambda: any("Launching on GCP" in text for text in phases(told)))
    assert fake.clusters()
    work.give_up()
    assert ["api", "cancel", "--yes", "1f2e3d4c"] in fake.calls()
    assert verbs(fake)[-2:] == ["down", "status"]
    assert not fake.clusters()
    left = ClusterRecord.every()
    for each in left:
        each.remove()
    assert [each.is_orphan and each.may_appear(time.time()) for each in left] == [True] * (
        not is_confirmed
    )


def test_what_skypilot_does_not_take_down_is_named_and_taken_down_by_the_next_pool(
    rented, fake, monkeypatch
):
    monkeypatch.setattr(take_down, "PAUSE", 0.0)
    fake.say("fails")
    fake.say("down-fails")
    pool = rented()
    with pytest.warns(UserWarning, match="It may cost money: `sky down skyward-rented-"):
        with pytest.raises(StartError):
            pool.start(lambda _: None)
    (record,) = ClusterRecord.every()
    assert record.is_left and record.is_orphan  # also for the next pool of this notebook
    fake.unsay("down-fails")
    events = []
    with pytest.raises(StartError):
        rented().start(events.append)
    assert any(isinstance(each, Remark) and record.pool_id in each.text for each in events)
    assert not fake.clusters()
    assert not ClusterRecord.every()


def test_a_plan_is_shown_before_anything_is_rented(rented, fake):
    spec = rented().spec
    assert quote_for(spec).first == pytest.approx(58.78)
    shown = "\n".join(dry_lines(spec))
    assert "sky launch --yes --detach-run" in shown
    assert "$58.78 / h" in shown
    assert not fake.clusters()
    with pytest.raises(NothingFits, match="max_hourly_cost=20"):
        quote_for(replace(spec, max_hourly_cost=20.0))
    fake.say("no-cloud")
    with pytest.raises(NothingFits, match="Cloud access is not set up"):
        quote_for(spec)
    gone = SkyPilotAccess(executable="/no/such/sky")
    with pytest.raises(AccountError, match="cannot be run"):
        quote_for(replace(spec, skypilot=gone))


def test_max_cost_is_a_lifetime_on_the_machines():
    record = ClusterRecord(
        pool_id="p-1", access=SkyPilotAccess(), maker=MakerProcess.this(), listing="/no/such", nodes=1,
        began=0.0, dollars=None,
    )  # fmt: skip
    assert RentedCluster(record).seconds_for(10) is None
    now = replace(record, began=time.time() - 1800, dollars=10.0)
    assert RentedCluster(now).seconds_for(10) == pytest.approx(1800, abs=60)
    assert RentedCluster(now).seconds_for(1) == 1
