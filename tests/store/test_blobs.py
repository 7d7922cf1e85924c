"""The content store: whole or not at all, in memory or on disk, and never what it is not."""

import contextlib
import errno
import os
import time
from pathlib import Path

import pytest

from skyward_nb.store import blobs
from skyward_nb.store.blobs import BlobStore, CorruptValue, digest_of
from skyward_nb.store.file_mapping import map_privately


@pytest.fixture
def store(tmp_path):
    return BlobStore(tmp_path / "memory", tmp_path / "disk", spare=1000)


def put(store, content):
    digest = digest_of([content])
    store.put(digest, [content])
    return digest


def there(store):
    folders = [folder for folder in (store.memory, store.disk) if folder.exists()]
    return {path.name for folder in folders for path in folder.iterdir()}


def test_parts_have_the_digest_of_the_whole():
    assert digest_of([b"ab", b"", memoryview(b"c")]) == digest_of([b"abc"])
    assert len(digest_of([b""])) == 32


@pytest.mark.parametrize("size", [0, 10, blobs.MAPPED_FROM + 3])
def test_there_and_back_private_and_writable(store, size):
    digest = put(store, os.urandom(size))
    first, second = store.map(digest), store.map(digest)
    assert first == second and len(first) == size
    if size:
        first[0] ^= 255
        assert first != second == store.map(digest)
    assert digest in store and not store.on_disk(digest)


@pytest.mark.parametrize("size", [100, blobs.MAPPED_FROM + 3])
def test_what_is_not_what_its_name_says_is_refused_and_forgotten(store, size):
    content = bytearray(os.urandom(size))
    digest = digest_of([content])
    content[size // 2] ^= 1  # as a thread does between hashing and writing
    store.put(digest, [content])
    with pytest.raises(CorruptValue):
        store.map(digest)
    assert there(store) == set()


@pytest.fixture
def verified(monkeypatch):
    """How often bytes of the store were verified."""
    times = []
    monkeypatch.setattr(blobs, "digest_of", lambda parts: times.append(1) or digest_of(parts))
    return times


def damage(store, digest, later=1):
    """Write to the file, by a clock that may be coarse."""
    path = store.memory / digest
    written = path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.write(b"y")
    os.utime(path, ns=(written, written + later))


def test_what_was_hashed_as_it_was_written_is_not_verified_again(store, verified):
    digest = put(store, b"x" * blobs.MAPPED_FROM)
    assert store.map(digest) == BlobStore(store.memory).map(digest)
    put(store, b"x" * blobs.MAPPED_FROM)
    store.map(digest)
    assert not verified, "used again, and not written"
    damage(store, digest)
    with pytest.raises(CorruptValue):
        store.map(digest)
    put(store, b"x" * blobs.MAPPED_FROM)
    assert bytes(store.map(digest)[:1]) == b"x"


def test_a_large_file_that_others_wrote_is_verified_once_and_again_when_it_was_written(
    store, verified
):
    digest = put(store, b"x" * blobs.MAPPED_FROM)
    os.utime(store.memory / digest)  # as where a file system has no such times
    assert store.map(digest) == store.map(digest)
    put(store, b"x" * blobs.MAPPED_FROM)
    store.map(digest)
    assert verified == [1]
    damage(store, digest)
    with pytest.raises(CorruptValue):
        store.map(digest)


def test_a_file_system_that_keeps_no_such_times_has_readers_verify(store, verified, monkeypatch):
    def refused(*args, **options):
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", refused)
        digest = put(store, b"x" * blobs.MAPPED_FROM)
    assert store.map(digest) == b"x" * blobs.MAPPED_FROM
    assert verified == [1]


def test_parts_of_any_sizes_are_written_in_a_row(store, monkeypatch):
    monkeypatch.setattr(blobs, "_PIECE", 1000)
    monkeypatch.setattr(blobs, "MAPPED_FROM", 1)
    parts = [os.urandom(size) for size in (0, 1, 999, 1, 1000, 2500, 0, 3)]
    digest = digest_of(parts)
    store.put(digest, parts)
    assert bytes(store.map(digest)) == b"".join(parts)
    table = memoryview(bytes(range(240))).cast("Q", (5, 6))
    digest = digest_of([table])
    store.put(digest, [table])
    assert bytes(store.map(digest)) == table.tobytes()


def test_no_room_in_memory_goes_to_disk(store, monkeypatch):
    monkeypatch.setattr(blobs, "memory_room", lambda _: 0)
    digest = put(store, b"x" * 100)
    assert store.on_disk(digest)
    assert bytes(store.map(digest)) == b"x" * 100
    assert not store.memory.exists()


def test_memory_that_fills_up_meanwhile_goes_to_disk(store, monkeypatch):
    write = store._write

    def full(folder, *args):
        if folder == store.memory:
            raise OSError(errno.ENOSPC, "full")
        write(folder, *args)

    monkeypatch.setattr(store, "_write", full)
    assert store.on_disk(put(store, b"y" * 100))


def test_no_room_at_all_is_told_before_anything_is_written(store, monkeypatch):
    monkeypatch.setattr(blobs, "memory_room", lambda _: 50_000_000)
    monkeypatch.setattr(blobs, "disk_room", lambda _: 70_000_000)
    with pytest.raises(OSError, match=r"it is 10 MB, and there are 50 MB .* 70 MB") as caught:
        put(store, bytes(10_000_000))
    assert caught.value.errno == errno.ENOSPC
    assert there(store) == set()


def test_a_put_that_fails_leaves_no_half_blob(store):
    with pytest.raises(TypeError):
        store._write(store.memory, "d", [b"x" * 100, object()])
    assert there(store) == set()


def test_the_least_recently_used_go_first_and_what_is_needed_stays(store):
    old, mid, new = (put(store, bytes([n]) * 400) for n in range(3))
    for age, digest in enumerate((new, mid, old)):
        os.utime(store.memory / digest, (1000 - age, 1000 - age))
    store.put(old, [bytes([0]) * 400])  # used again: there already
    assert store.trim(needed=set()) == [mid]
    assert there(store) == {old, new}
    assert store.trim(needed={new}) == []
    big = put(store, b"z" * 2000)
    os.utime(
        store.memory / big, (time.time() + 1, time.time() + 1)
    )  # files begin with a coarser clock
    assert set(store.trim(needed={big})) == set()
    assert set(store.trim(needed=set())) == {old, new, big}


def test_the_spare_room_is_a_share_of_memory_unless_said(tmp_path, monkeypatch):
    monkeypatch.setattr(blobs, "memory_room", lambda _: 8000)
    store = BlobStore(tmp_path)
    monkeypatch.setattr(blobs, "_RESERVE", 0)
    first, second = put(store, b"a" * 600), put(store, b"b" * 600)
    os.utime(tmp_path / first, (1, 1))
    assert store.trim(needed=()) == [first]
    assert there_in(tmp_path) == {second}


def test_what_was_not_used_for_a_minute_has_a_smaller_share(tmp_path, monkeypatch):
    monkeypatch.setattr(blobs, "_MOST_UNUSED", 1000)
    store = BlobStore(tmp_path, spare=2000)
    fresh = [put(store, bytes([n]) * 600) for n in range(3)]
    assert store.trim(needed=()) == [], "all were used just now"
    for age, digest in enumerate(fresh):
        os.utime(tmp_path / digest, (1000 - age, 1000 - age))
    assert store.trim(needed=()) == fresh[1:]


def test_what_is_used_while_others_are_trimmed_stays(tmp_path, monkeypatch):
    store = BlobStore(tmp_path, spare=0)
    digest = put(store, b"a" * 600)
    clock = time.time_ns

    def meanwhile():
        monkeypatch.setattr(time, "time_ns", clock)
        os.utime(tmp_path / digest, (time.time() + 1, 1))
        return clock()

    monkeypatch.setattr(time, "time_ns", meanwhile)  # asked once all were looked at
    assert store.trim(needed=()) == []
    assert there_in(tmp_path) == {digest}


def test_whoever_found_a_blob_damaged_leaves_the_one_that_was_put_anew(store, monkeypatch):
    digest = put(store, b"value")
    (store.memory / digest).write_bytes(b"other")

    def verified(parts):
        monkeypatch.setattr(blobs, "digest_of", digest_of)
        store.drop([digest])
        put(store, b"value")
        return digest_of(parts)

    monkeypatch.setattr(blobs, "digest_of", verified)
    with pytest.raises(CorruptValue):
        store.map(digest)
    assert bytes(store.map(digest)) == b"value"


def open_files():
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(each.readlink()))
    return found


def test_a_mapping_holds_no_descriptor(store):
    mapped = store.map(put(store, b"x" * blobs.MAPPED_FROM))
    # Not how many there are: threads of tests before may still close theirs.
    assert not [path for path in open_files() if path.startswith(str(store.memory))]
    assert str(store.memory) in Path("/proc/self/maps").read_text()
    del mapped
    assert str(store.memory) not in Path("/proc/self/maps").read_text()


def test_a_file_that_cannot_be_mapped_is_told():
    with pytest.raises(OSError, match="cannot be mapped: Bad file descriptor"):
        map_privately(10_000, 100)


def test_values_can_be_read_whatever_umask_the_users_code_has_set(store):
    before = os.umask(0o777)
    try:
        digest = put(store, b"x")
    finally:
        os.umask(before)
    assert (store.memory / digest).stat().st_mode & 0o777 == 0o600
    assert store.memory.stat().st_mode & 0o777 == 0o700


def there_in(folder):
    return {path.name for path in folder.iterdir()}


def test_rooms_are_what_the_system_says(tmp_path):
    assert 0 < blobs.memory_room(tmp_path) <= blobs.disk_room(tmp_path)
    assert blobs.disk_room(tmp_path / "not" / "there") > 0


def test_writing_much_lets_others_know_that_it_goes_on(tmp_path, monkeypatch):
    for each in ("_STEP", "_PIECE", "MAPPED_FROM"):
        monkeypatch.setattr(blobs, each, 100)
    ticks = []
    store = BlobStore(tmp_path)
    store.put("d", [b"x" * 950, b"y"], lambda: ticks.append(1))
    assert len(ticks) == 9


def test_there_is_a_folder_where_there_is_room_also_when_somebody_took_it_away(store):
    """As systemd-logind does with what a user has in memory, when their last login is over."""
    assert store.folder_for(10).is_dir()
    store.memory.rmdir()
    assert store.folder_for(10).is_dir()
    assert store.memory.stat().st_mode & 0o777 == 0o700


def test_a_path_is_no_digest(store, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for name in (str(victim), "../victim", "/dev/zero"):
        assert name not in store
        with pytest.raises(blobs.CorruptValue):
            store.map(name)
        with pytest.raises(FileNotFoundError):
            store.open(name)
        store.drop([name])
    assert victim.read_text() == "kept"
