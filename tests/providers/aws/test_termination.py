"""Machines come to an end: told by a cloud that shows them as late as EC2 may, with a disk that is full."""

import asyncio
import errno
import time

import pytest

from skyward_nb.providers.aws import rental_records, termination
from skyward_nb.providers.aws.aws_machine import Rental
from skyward_nb.providers.aws.rental_records import (
    LaunchAttempt,
    RentalFolder,
    RentalRecord,
)
from skyward_nb.providers.maker_process import MakerProcess


class Machines:
    """A cloud with these machines of one launch, of which `shown` are told of."""

    def __init__(self, count, shown):
        self.states = {f"i-{number}": "running" for number in range(count)}
        self.shown = shown

    async def ask_all(self, operation, region, **words):
        machines = [
            {"InstanceId": name, "ClientToken": "sky-default-abc-0", "State": {"Name": state}}
            for name, state in list(self.states.items())[: self.shown]
        ]
        return {"Reservations": [{"Instances": machines}]}

    async def ask(self, operation, region, **words):
        assert operation == "TerminateInstances"
        self.states |= dict.fromkeys(words["InstanceIds"], "shutting-down")

    @property
    def running(self):
        return [name for name, state in self.states.items() if state == "running"]


@pytest.fixture
def entry(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(termination, "_LOOKS", (0.0, 0.0))
    made = RentalFolder.begin(
        RentalRecord(
            pool_id="default-abc", name="default", owner=rental_records.owner(), maker=MakerProcess.this(),
            created=time.time(),
        )
    )  # fmt: skip
    made.attempt(
        LaunchAttempt(
            token="sky-default-abc-0", region="us-east-1", zone="us-east-1a", type="c6i.large",
            count=8, at=time.time(),
        )
    )  # fmt: skip
    return made


def end(cloud, entry):
    return asyncio.run(termination.end(cloud, entry))


def test_a_launch_that_was_not_answered_is_over_when_all_its_machines_are_seen(entry):
    cloud = Machines(8, shown=1)
    left = end(cloud, entry)
    assert left.machines == ("machines of attempt sky-default-abc-0 in us-east-1, if it made any",)
    assert len(cloud.running) == 7 and rental_records.find("default-abc") is not None
    cloud.shown = 8
    assert not end(cloud, entry)
    assert not cloud.running and rental_records.find("default-abc") is None


def test_what_is_not_seen_for_long_was_never_launched(entry, monkeypatch):
    cloud = Machines(1, shown=1)
    assert end(cloud, entry).machines
    monkeypatch.setattr(termination, "_SEEN_LATE", 0.0)
    assert not end(cloud, entry)


def test_a_disk_that_is_full_lets_no_machine_run(entry, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rental_records, "write", full)
    cloud = Machines(8, shown=8)
    assert not end(cloud, entry)
    assert not cloud.running and rental_records.find("default-abc") is None


def test_a_record_that_is_gone_was_ended_by_another(entry):
    entry.forget()
    assert not end(Machines(8, shown=8), entry)


def test_another_file_that_is_not_found_is_no_end(entry, monkeypatch):
    def lacks(*_):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(rental_records, "write", lacks)
    cloud = Machines(8, shown=8)
    with pytest.raises(FileNotFoundError):
        end(cloud, entry)
    assert cloud.running and entry.is_there


class Deaf(Machines):
    """A cloud that answers, and ends nothing until it hears."""

    hears = False

    async def ask(self, operation, region, **words):
        if self.hears:
            return await super().ask(operation, region, **words)
        assert operation == "TerminateInstances"
        return {
            "TerminatingInstances": [
                {"InstanceId": each, "CurrentState": {"Name": "shutting-down"}}
                for each in words["InstanceIds"]
            ]
        }


def test_an_answer_that_machines_end_is_not_believed(entry):
    """It is looked at them: while they run they are left, and the record stays."""
    cloud = Deaf(8, shown=8)
    assert end(cloud, entry).machines == tuple(f"i-{number}" for number in range(8))
    found = rental_records.find("default-abc").record
    assert found.state == "ending" and not found.attempts[0].over
    cloud.hears = True
    assert not end(cloud, entry)
    assert rental_records.find("default-abc") is None


def test_who_takes_a_pool_down_is_told_of_machines_that_do_not_end(entry):
    async def given_back():
        return await Rental(Deaf(1, shown=1), "default-abc").give_back()

    with pytest.warns(UserWarning, match=r"did not confirm the end of i-0.*%sky sweep"):
        assert asyncio.run(given_back()) == "i-0"
    assert rental_records.find("default-abc") is not None
