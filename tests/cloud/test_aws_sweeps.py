"""What launches leave, against the API alone: who ends it, and when, and what is left alone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time

import pytest
from msgspec.structs import replace

from skyward_nb.providers.aws import rental_records, sweep
from skyward_nb.providers.aws.aws_provider import AWSProvider
from skyward_nb.providers.folders import far_root
from skyward_nb.reports.cleanup import clean_up


def test_a_group_that_is_still_used_is_left_to_the_next(api, renter):
    made = renter()
    made.launch()
    api.lingering(1)
    left = made.end()
    assert not left.machines and "group sky-default-abc" in str(left)
    assert [each.record.state for each in rental_records.entries()] == ["ending"]
    assert not made.end()
    assert api.left() == {} and not rental_records.entries()


def test_a_machine_that_no_record_has_is_ended_by_the_next_sweep(api, renter):
    made = renter()
    made.launch()
    made.entry.forget()
    found = asyncio.run(sweep.sweep())
    assert sorted(found.machines) == sorted(each.instance for each in made.machines)
    asyncio.run(sweep.sweep())
    assert api.left() == {}


def test_a_record_whose_maker_lives_is_left_alone(api, renter):
    made = renter()
    made.launch()
    assert not asyncio.run(sweep.sweep())
    assert len(api.left()["machines"]) == 2


def gone(entry):
    """As if the process that began it had ended."""
    entry.note(
        maker=rental_records.MakerProcess(entry.record.maker.pid, 1.0, entry.record.maker.host)
    )


@contextlib.contextmanager
def listed(pool_id):
    """As if the pool's agents were there to be attached to."""
    path = far_root() / f"{pool_id}.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch()
    yield
    path.unlink()


def end_machines(made):
    """End them as EC2 or a person does."""
    names = [each.instance for each in made.machines]
    asyncio.run(made.cloud.ask("TerminateInstances", "us-east-1", InstanceIds=names))


def left_behind(renter, **noted):
    """Machines of a process that has ended, with this in their record."""
    made = renter()
    made.launch()
    made.entry.note(**noted)
    gone(made.entry)
    return made


@pytest.mark.parametrize("state", ["launching", "ending"])
def test_what_a_process_that_has_ended_began_is_ended(api, renter, state):
    left_behind(renter, state=state)
    found = asyncio.run(sweep.sweep())
    assert found.records == ["default-abc"] and len(found.machines) == 2
    assert api.left() == {} and not rental_records.entries()


def test_a_pool_that_may_be_attached_is_left_until_its_machines_end(api, renter):
    made = left_behind(renter, state="up")
    with listed("default-abc"):
        assert not asyncio.run(sweep.sweep())
    end_machines(made)
    assert asyncio.run(sweep.sweep()).records == ["default-abc"]
    assert api.left() == {} and not rental_records.entries()


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_pool_that_replaces_its_machines_is_left_while_it_has_none(api, renter, is_elsewhere):
    """Its client lives, and rents others just now, or with the next run."""
    made = renter()
    made.launch()
    made.entry.note(state="up", replaces=True)
    end_machines(made)
    assert not asyncio.run(sweep.sweep())
    assert rental_records.find("default-abc").record.state == "up"
    if is_elsewhere:
        maker = rental_records.MakerProcess(1, 1.0, "another", machine="another")
        made.entry.note(maker=maker)
        assert not asyncio.run(sweep.sweep())
        os.utime(made.entry.folder / "record.json", (0, time.time() - 2 * 86400))
        with listed("default-abc"):
            assert not asyncio.run(sweep.sweep())
        assert asyncio.run(sweep.sweep()).records == ["default-abc"]
    else:
        gone(made.entry)
        with listed("default-abc"):
            assert asyncio.run(sweep.sweep()).records == ["default-abc"]
    assert api.left() == {} and not rental_records.entries()


def test_a_pool_that_another_kernel_has_attached_replaces_its_machines_too(api, renter):
    """The kernel that made it is gone."""
    made = renter()
    made.launch()
    made.entry.note(state="up", replaces=True)
    end_machines(made)
    gone(made.entry)
    AWSProvider().conducted("default-abc")
    assert not asyncio.run(sweep.sweep())
    gone(rental_records.find("default-abc"))
    assert asyncio.run(sweep.sweep()).records == ["default-abc"]


def test_a_pool_that_its_client_has_left_replaces_nothing(api, renter):
    """Its client lives on; another one that has attached is asked for it then."""
    made = renter()
    made.launch()
    made.entry.note(state="up", replaces=True)
    end_machines(made)
    provider = AWSProvider()
    provider.left("default-abc")
    provider.conducted("default-abc")
    assert not asyncio.run(sweep.sweep()), "it has come back"
    maker = rental_records.MakerProcess.this()
    rental_records.find("default-abc").note(maker=replace(maker, host="another", machine="another"))
    provider.left("default-abc")
    assert not asyncio.run(sweep.sweep()), "another one has it"
    rental_records.find("default-abc").note(maker=maker)
    assert asyncio.run(sweep.sweep()).records == ["default-abc"]
    assert api.left() == {} and not rental_records.entries()


def test_a_pool_that_is_listed_elsewhere_is_left(api, renter, tmp_path, monkeypatch):
    """Who sweeps may keep such files in another place than the kernel that made it."""
    made = renter()
    made.launch()
    listing = tmp_path / "of-a-kernel" / "default-abc.json"
    listing.parent.mkdir()
    listing.touch()
    made.entry.note(state="up", listing=str(listing))
    gone(made.entry)
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "of-a-terminal"))
    assert not asyncio.run(sweep.sweep())
    listing.unlink()
    assert len(asyncio.run(sweep.sweep()).machines) == 2
    assert api.left() == {}


def test_a_pool_that_nobody_can_attach_is_ended(api, renter):
    made = renter()
    made.launch()
    made.entry.note(state="up")
    assert not asyncio.run(sweep.sweep()), "whoever made it is there"
    gone(made.entry)
    assert len(asyncio.run(sweep.sweep()).machines) == 2
    assert api.left() == {}


def test_a_pool_that_has_outlived_its_time_is_ended(api, renter):
    left_behind(renter, state="up", deadline=time.time() - 3600)
    with listed("default-abc"):
        assert len(asyncio.run(sweep.sweep()).machines) == 2
    assert api.left() == {}


def test_machines_of_others_are_told_of_and_left(api, renter, tmp_path, monkeypatch):
    made = renter()
    made.launch()
    own = str(tmp_path / "another")
    monkeypatch.setenv("SKYWARD_STATE_DIR", own)
    rental_records.note_used(rental_records.UsedRegion("us-east-1", None, None))
    found = asyncio.run(sweep.sweep())
    assert not found and len(found.foreign) == 2
    assert len(api.left()["machines"]) == 2


@pytest.mark.parametrize("state", ["launching", "up", "ending"])
def test_credentials_of_another_account_end_nothing_and_forget_nothing(api, renter, state):
    """They see none of its machines, which is no sign that there are none."""
    made = left_behind(renter, state=state, account="999999999999", created=time.time() - 7200)
    found = asyncio.run(sweep.sweep())
    assert not found and "rented in account 999999999999" in str(found)
    left = made.end()
    assert sorted(left.machines) == sorted(each.instance for each in made.machines)
    assert "TerminateInstances" not in api.actions()
    assert [each.record for each in rental_records.entries()] == [made.entry.record]
    made.entry.note(account="123456789012")
    assert asyncio.run(sweep.sweep()).records == ["default-abc"]
    assert api.left() == {}


def test_a_pool_of_another_account_that_is_in_use_is_no_news(api, renter):
    made = renter()
    made.launch()
    made.entry.note(state="up", account="999999999999", created=time.time() - 7200)
    end_machines(made)
    assert str(asyncio.run(sweep.sweep())) == "nothing was left"
    assert len(rental_records.entries()) == 1


def test_a_record_stays_while_nobody_says_whose_credentials_these_are(api, renter):
    made = renter()
    made.launch()
    made.entry.note(account="123456789012")
    api.fail("GetCallerIdentity", "ExpiredToken")
    left = made.end()
    assert not left.machines and "the record of default-abc" in str(left)
    assert "aws sso login" in left.why and "machines" not in api.left()
    assert not made.end()
    assert api.left() == {} and not rental_records.entries()


def test_what_a_launch_beside_a_sweep_notes_is_looked_at_too(api, renter):
    made = renter()
    made.launch()
    other = rental_records.UsedRegion("eu-west-1", None, api.url)
    assert not asyncio.run(sweep.sweep(lambda _: rental_records.note_used(other)))
    asked = {call.region for call in api.calls if call.action == "DescribeInstances"}
    assert "eu-west-1" in asked


def test_a_disk_that_is_full_hides_no_machine(api, renter, monkeypatch):
    write = rental_records.write

    def full(path, data):
        if b'"instances": [\n' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(rental_records, "write", full)
    made = renter()
    with pytest.raises(OSError, match="No space left"):
        made.launch()
    assert len(api.left()["machines"]) == 2
    assert not made.end()
    assert api.left() == {} and not rental_records.entries()


def test_a_sweep_that_may_not_look_says_so(api, renter):
    left_behind(renter, state="ending")
    api.fail("DescribeInstances", "ExpiredToken", times=0)
    found = asyncio.run(sweep.sweep())
    assert "aws sso login" in str(found)
    assert len(rental_records.entries()) == 1


def test_credentials_that_are_over_leave_a_record(api, renter):
    made = renter()
    made.launch()
    api.fail("TerminateInstances", "ExpiredToken", times=0)
    left = made.end()
    assert sorted(left.machines) == sorted(each.instance for each in made.machines)
    assert "aws sso login" in left.why
    (entry,) = rental_records.entries()
    assert entry.record.state == "ending"


# ── a person looks ──────────────────────────────────────────────────────────────────────


def test_a_person_is_told_what_a_sweep_has_ended(api, renter):
    made = renter()
    made.launch()
    made.entry.forget()
    said = str(clean_up())
    assert "AWS: ended leftovers: 2 machines" in said
    assert all(each.instance in said for each in made.machines)
    clean_up()
    assert api.left() == {}


def test_a_sweep_of_who_never_rented_asks_nobody(api):
    assert str(clean_up()) == "nothing is left over"
    assert api.calls == []
