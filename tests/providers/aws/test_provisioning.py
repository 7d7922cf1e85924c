"""What goes on around a launch: with machines that are only said to be rented."""

import asyncio
import errno

import pytest
from msgspec.structs import replace

from skyward_nb.protocol.events import Remark
from skyward_nb.providers.aws import boot, provisioning, rental_records, replacement, waking
from skyward_nb.providers.aws import sweep as sweeping
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.offer_walk import ZoneAttempt
from skyward_nb.providers.aws.user_data import BOOT
from skyward_nb.providers.folders import far_root
from skyward_nb.providers.provider_protocol import AgentGone, ReplacementRequest
from skyward_nb.words.errors import LaunchError, NothingFits
from skyward_nb.words.offers import InstanceType, Offer, Price
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

KIND = InstanceType(name="c6i.large", arch="x86_64", cpus=2, memory=4)
OFFER = Offer(type=KIND, region="us-east-1", price=Price(dollars=0.1, source="a test"))
MACHINE = rental_records.RunningInstance(
    instance="i-1", region="us-east-1", zone="us-east-1a", type=KIND.name, public="1.2.3.4", private="10.0.0.9", host_key="ssh-ed25519 AAAA",
)  # fmt: skip


class Account:
    """A cloud that says whose credentials these are, and nothing else."""

    async def account(self, region):
        return "123456789012"


@pytest.fixture
def rent(tmp_path, monkeypatch):
    """Rents a pool for which `launch` gives machines; the pool's steps are told to it."""
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(provisioning.AWSClient, "of", lambda access: Account())

    def run(launch, offers=(), **fields):
        monkeypatch.setattr(provisioning, "_rented", launch)
        spec = PoolSpec(provider="aws", aws=AWSAccess(region="us-east-1"), **fields)
        return asyncio.run(provisioning.rent(spec, "default-abc", offers or [OFFER], told.append))

    told = run.told = []
    return run


async def found_nothing():
    return sweeping.SweepReport()


def test_a_sweep_that_fails_undoes_no_launch(rent, monkeypatch):
    async def sweep():
        raise KeyError("a profile that was noted just now")

    async def launch(*_):
        return ("a machine",)

    monkeypatch.setattr(provisioning, "sweep", sweep)
    assert rent(launch) == ("a machine",)
    record = rental_records.find("default-abc").record
    assert (record.state, record.listing) == ("up", str(far_root() / "default-abc.json"))
    (note,) = [each for each in rent.told if isinstance(each, Remark)]
    assert "a profile that was noted just now" in note.text


def test_machines_that_cannot_be_noted_as_up_are_ended(rent, monkeypatch):
    """On a full disk they would run, and no pool would have them."""
    ended, noted = [], rental_records.RentalFolder.note

    def note(self, **changes):
        if changes.get("state") == "up":
            raise OSError(errno.ENOSPC, "No space left on device")
        noted(self, **changes)

    async def launch(*_):
        return ("a machine",)

    async def undone(cloud, entry, tell):
        ended.append(entry.record.pool_id)

    monkeypatch.setattr(provisioning, "sweep", found_nothing)
    monkeypatch.setattr(provisioning, "_undone", undone)
    monkeypatch.setattr(rental_records.RentalFolder, "note", note)
    with pytest.raises(OSError, match="No space left"):
        rent(launch)
    assert ended == ["default-abc"]


def test_a_start_waits_for_a_sweep_only_so_long_and_says_so(rent, monkeypatch):
    async def sweep():
        await asyncio.Event().wait()

    async def launch(*_):
        return ("a machine",)

    monkeypatch.setattr(provisioning, "sweep", sweep)
    monkeypatch.setattr(provisioning, "BESIDE", 0.01)
    assert rent(launch) == ("a machine",)
    assert rental_records.find("default-abc").record.state == "up"
    assert rent.told == [Remark("the search for earlier leftovers goes on")]


def test_new_machines_are_ended_before_a_sweep_is_waited_for(rent, monkeypatch):
    """A sweep that is cancelled waits for its call of AWS."""
    seen = []

    async def sweep():
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            seen.append("the sweep has ended")

    async def launch(*_):
        await asyncio.sleep(0)
        raise LaunchError("default", [("c6i.large", "no capacity")])

    async def undone(*_):
        seen.append("machines are ended")

    monkeypatch.setattr(provisioning, "sweep", sweep)
    monkeypatch.setattr(provisioning, "_undone", undone)
    with pytest.raises(LaunchError):
        rent(launch)
    assert seen == ["machines are ended", "the sweep has ended"]


class Denied:
    """A cloud that answers the first `good` of its questions, and denies all others."""

    def __init__(self, good, *found):
        self.good, self.found = good, found

    async def ask_all(self, operation, region, **words):
        self.good -= 1
        if self.good < 0:
            raise AWSError("ExpiredToken", "it has expired", operation)
        return {"Reservations": [{"Instances": [*self.found]}]}


def _taken_back():
    return {
        "InstanceId": "i-1",
        "State": {"Name": "terminated"},
        "StateReason": {"Code": "Server.SpotInstanceTermination", "Message": "Spot ends it"},
    }


class Line:
    name = "i-1"


def entry_of(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    entry = rental_records.RentalFolder.begin(
        rental_records.RentalRecord(
            pool_id="p-1", name="p", owner="me", maker=rental_records.MakerProcess.this(), created=0.0, machines=(MACHINE,),
        )
    )  # fmt: skip
    entry.attempt(
        rental_records.LaunchAttempt(
            token="t", region="us-east-1", zone="", type=KIND.name, instances=("i-1",)
        )
    )
    return entry


def test_one_answer_says_that_ec2_took_a_machine_back(tmp_path, monkeypatch):
    entry = entry_of(tmp_path, monkeypatch)
    with pytest.raises(boot.EndedByEC2, match="i-1: EC2 says that it is terminated: Spot ends it"):
        asyncio.run(boot._see_that_they_run(Denied(1, _taken_back()), entry, [Line()]))
    asyncio.run(boot._see_that_they_run(Denied(0), entry, [Line()]))


def test_credentials_that_end_before_the_next_offer_are_no_riddle(tmp_path, monkeypatch):
    class Launched:
        chosen = ZoneAttempt(OFFER, "")

    entry = entry_of(tmp_path, monkeypatch)
    with pytest.raises(LaunchError, match=r"took machines back.*gone") as raised:
        asyncio.run(
            provisioning._next_offers(Denied(0), entry, Launched(), [OFFER], "gone", lambda _: None)
        )
    assert "aws sso login" in str(raised.value) and "none is left" not in raised.value.message


@pytest.mark.parametrize("policy", ["tell", "replace"])
def test_a_record_says_whether_its_pool_replaces_machines(rent, monkeypatch, policy):
    async def launch(*_):
        return ("a machine",)

    monkeypatch.setattr(provisioning, "sweep", found_nothing)
    rent(launch, on_preempt=policy)
    record = rental_records.find("default-abc").record
    assert record.replaces is (policy == "replace")
    spec = PoolSpec(provider="aws", aws=AWSAccess(), on_preempt=policy)
    assert waking._claimed(spec, "p-1")["replaces"] is record.replaces


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_pool_that_ends_while_machines_are_replaced_is_said_to_be_gone(
    tmp_path, monkeypatch, is_ready
):
    """Another process ends it before the new machine is asked for, or as that is ready."""
    entry = entry_of(tmp_path, monkeypatch)
    entry.note(state="up", maker=rental_records.MakerProcess(1, 1.0, "another"))
    ended = []

    async def see_whose(*_):
        assert rental_records.find("p-1").record.maker == rental_records.MakerProcess.this()
        if not is_ready:
            entry.forget()

    async def wish(spec, record, lack, nodes):
        return replacement._Wish(spec, [], [], [])

    async def rented(*_):
        return (), ()

    async def readied(_machines):
        entry.forget()

    async def undone(*_):
        ended.append("new machines")

    for name, instead in (
        ("_see_whose", see_whose),
        ("_wish", wish),
        ("_rented", rented),
        ("_undone", undone),
    ):
        monkeypatch.setattr(replacement, name, instead)
    monkeypatch.setattr(replacement.key_pairs, "kept", lambda folder: (folder / "key").read_bytes())
    (entry.folder / "key").write_bytes(b"")
    spec, lack = PoolSpec(provider="aws", aws=AWSAccess()), ReplacementRequest((), "it ended")
    with pytest.raises(AgentGone, match="another process has ended it"):
        asyncio.run(replacement.replaced(spec, "p-1", lack, readied, lambda _: None))
    assert ended == ["new machines"]


@pytest.mark.parametrize(
    ("elapsed", "pause"), [(0, 900), (700, 900), (1000, 680), (1500, 180), (2400, 0), (1e9, 0)]
)
def test_a_lease_is_renewed_before_its_machine_ends(elapsed, pause):
    assert boot.first_renewal(elapsed) == pause
    assert elapsed + pause < BOOT or not pause


def test_leases_count_from_the_launch_of_their_machines(tmp_path, monkeypatch):
    entry = entry_of(tmp_path, monkeypatch)
    attempt = entry.record.attempts[0]
    entry.attempt(replace(attempt, at=1000.0))
    entry.attempt(replace(attempt, token="another", at=500.0, instances=("i-0",)))
    assert boot._began(entry, [MACHINE]) == 1000.0


def test_a_budget_that_is_gone_before_machines_are_of_use_rents_none(rent, monkeypatch):
    tried = []

    async def launch(spec, cloud, entry, offers, tell, spent):
        tried.extend(offers)
        return ("a machine",)

    monkeypatch.setattr(provisioning, "sweep", found_nothing)
    dear = Offer(type=KIND, region="us-east-1", price=Price(dollars=27.0, source="a test"))
    with pytest.raises(NothingFits, match=r"max_cost=0.5 is spent in 67 s by 1 × c6i.large"):
        rent(launch, [dear], max_cost=0.5)
    assert not tried and rental_records.find("default-abc") is None
    assert rent(launch, [dear, OFFER], max_cost=0.5)
    assert tried == [OFFER]
