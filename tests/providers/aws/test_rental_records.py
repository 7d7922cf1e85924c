"""What was rented is on disk before it is, and is found again."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import time

import pytest

from skyward_nb.providers import maker_process, state_files
from skyward_nb.providers.aws import rental_records
from skyward_nb.providers.aws.rental_records import (
    CreatedResource,
    LaunchAttempt,
    RentalRecord,
    UsedRegion,
)
from skyward_nb.providers.maker_process import MakerProcess


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "aws"


def begun(pool_id="default-abc", **fields):
    return rental_records.RentalFolder.begin(
        RentalRecord(**{
            "pool_id": pool_id, "name": "default", "owner": rental_records.owner(), "maker": MakerProcess.this(),
            "created": time.time(), **fields,
        })
    )  # fmt: skip


def attempt(number=0, region="us-east-1", **fields):
    return LaunchAttempt(
        token=rental_records.token_of("default-abc", number), region=region, zone="us-east-1a",
        type="c6i.large", **fields,
    )  # fmt: skip


def test_a_record_is_there_for_whoever_comes_next(state):
    entry = begun()
    entry.attempt(attempt())
    entry.make(CreatedResource("group", "eu-west-1", "sky-default-abc"))
    (found,) = rental_records.entries()
    assert found.record == entry.record == rental_records.find("default-abc").record
    assert found.record.regions == ("us-east-1", "eu-west-1")
    assert rental_records.used() == [
        UsedRegion("us-east-1", None, None),
        UsedRegion("eu-west-1", None, None),
    ]


def test_nobody_else_may_read_it(state):
    entry = begun()
    entry.attempt(attempt())
    assert stat.S_IMODE(entry.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in entry.folder.iterdir()} == {0o600}


def test_what_becomes_of_an_attempt_takes_its_place():
    entry = begun()
    entry.attempt(attempt(0))
    entry.attempt(attempt(1))
    entry.attempt(attempt(0, over=True))
    assert [(each.token[-1], each.over) for each in entry.record.attempts] == [
        ("0", True),
        ("1", False),
    ]


def test_a_pool_that_is_forgotten_leaves_its_regions_alone(state):
    entry = begun()
    entry.attempt(attempt())
    entry.forget()
    assert not entry.folder.exists()
    assert rental_records.entries() == [] and rental_records.find("default-abc") is None
    assert [each.region for each in rental_records.used()] == ["us-east-1"]


def test_what_two_write_at_once_is_whole(tmp_path, monkeypatch):
    """The second begins when the first has written, and is ready before it."""
    path, others = tmp_path / "record.json", [b"second"]

    def synced(_handle):
        if others:
            state_files.write(path, others.pop())
            assert path.read_bytes() == b"second"

    monkeypatch.setattr(os, "fsync", synced)
    state_files.write(path, b"first")
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        state_files.write(tmp_path / "record.json", b"whole")
    assert not list(tmp_path.iterdir())


def test_each_note_is_made_under_the_lock(monkeypatch):
    entry, locked = begun(), []
    monkeypatch.setattr(fcntl, "flock", lambda _file, how: locked.append(how))
    entry.note(user="ubuntu")
    assert entry.claim(state="up")
    entry.forget()
    assert locked == [fcntl.LOCK_EX] * 3


def test_a_record_that_is_gone_is_not_written_anew():
    entry = begun()
    (entry.folder / "record.json").unlink()
    assert not entry.is_there
    with pytest.raises(FileNotFoundError, match="the record of pool default-abc is gone"):
        entry.note(state="up")
    assert not entry.is_there and not entry.claim(state="up")


def test_a_record_of_another_version_is_nobodys_to_change(state):
    entry = begun()
    (entry.folder / "record.json").write_text('{"from": "tomorrow"}')
    assert rental_records.entries() == []
    assert rental_records.pool_ids() == {"default-abc"}


def test_tokens_differ_and_are_short():
    long = "ü" * 80 + "-abc"
    tokens = [rental_records.token_of(name, number) for name in ("a-1", long) for number in (0, 1)]
    assert len(set(tokens)) == 4
    assert all(len(each) <= 64 and each.isascii() for each in tokens)
    assert rental_records.token_of("a-1", 0) == "sky-a-1-0"


def test_the_owner_stays_the_same(state):
    first = rental_records.owner()
    assert rental_records.owner() == first
    assert len(list(state.glob("owner*"))) == 1


@pytest.fixture
def computer(tmp_path, monkeypatch):
    """Makes this computer another one, by the id that it has."""

    def become(name):
        path = tmp_path / f"machine-id-{name}"
        path.write_text(f"{name * 32}\n")
        monkeypatch.setattr(maker_process, "_MACHINE", path)

    return become


def test_a_copy_of_a_home_has_an_owner_of_its_own(state, computer):
    computer("a")
    first = rental_records.owner()
    computer("b")
    assert rental_records.owner() != first
    computer("a")
    assert rental_records.owner() == first
    assert not any("a" * 32 in path.name + path.read_text() for path in state.glob("owner*"))


@pytest.mark.parametrize("words", ["", "uninitialized\n"])
def test_a_computer_without_an_id_has_a_mark_all_the_same(state, tmp_path, monkeypatch, words):
    path = tmp_path / "machine-id"
    path.write_text(words)
    monkeypatch.setattr(maker_process, "_MACHINE", path)
    assert rental_records.owner() == rental_records.owner()
    assert MakerProcess.this().is_here


def test_a_maker_on_the_computer_that_this_one_is_a_copy_of_may_live(computer):
    computer("a")
    maker = MakerProcess.this()
    gone = MakerProcess(maker.pid, 1.0, maker.host, maker.boot, maker.machine)
    assert gone.is_here and not gone.may_live
    computer("b")
    assert not gone.is_here and gone.may_live


def test_a_maker_that_has_ended_is_known_to():
    script = "from skyward_nb.providers.maker_process import MakerProcess as Maker; import msgspec; print(msgspec.json.encode(Maker.this()).decode())"
    import msgspec

    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    gone = msgspec.json.decode(told, type=MakerProcess)
    assert gone.pid != os.getpid() and not gone.may_live
    assert MakerProcess.this().may_live
    assert MakerProcess(gone.pid, gone.since, "another host").may_live
