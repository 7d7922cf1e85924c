"""Values that arrive while others are given up, in threads of one agent."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from waiting import until

from skyward_nb.node import value_service
from skyward_nb.node.incoming_value import IncomingValue
from skyward_nb.node.value_service import ValueService
from skyward_nb.store.blobs import BlobStore, digest_of
from skyward_nb.store.reassembly import Reassembly
from skyward_nb.store.value_messages import BytesStored, DropValues, ValueRefused

VALUE = os.urandom(1000)


@pytest.fixture
def service(tmp_path):
    return ValueService(tmp_path, BlobStore(tmp_path / "memory", tmp_path / "disk"))


def test_a_value_whose_last_bytes_come_just_now_is_passed_on_all_the_same(service, monkeypatch):
    opened, digest = IncomingValue.opened, digest_of([VALUE])
    service._arrival(digest, len(VALUE)).write(0, memoryview(VALUE)[:10])

    def after_the_rest(arrival):
        arrival.write(10, memoryview(VALUE)[10:])
        service._settle(arrival)
        return opened(arrival)

    monkeypatch.setattr(IncomingValue, "opened", after_the_rest)
    with service._passing(digest, len(VALUE)) as passed:
        assert b"".join(passed.views(0, len(VALUE), lambda: None)) == VALUE


def test_a_value_that_still_comes_is_not_given_up_however_slow_its_line_is(service):
    """A piece of some megabytes may take longer than that."""
    slow = service._arrival(digest_of([VALUE]), len(VALUE))
    slow.touched -= 2 * value_service._ABANDONED
    slow.write(0, memoryview(VALUE)[:10])
    other = service._arrival(digest_of([b"other"]), 5)
    slow.write(10, memoryview(VALUE)[10:])
    assert service._settle(slow) == BytesStored(is_whole=True, is_new=True)
    other.remove()


@pytest.mark.timeout(60)
def test_a_value_that_is_given_up_as_its_last_bytes_are_digested_holds_nobody_up(
    service, monkeypatch
):
    """As of an agent that was stopped for longer than after which an unfinished value is dropped."""
    goes_on, digest = threading.Event(), Reassembly.digest

    def slowly(reassembly):
        goes_on.wait(60)
        return digest(reassembly)

    monkeypatch.setattr(Reassembly, "digest", slowly)
    late = service._arrival(digest_of([VALUE]), len(VALUE))
    late.write(0, memoryview(VALUE))
    late.touched -= 2 * value_service._ABANDONED
    said, came = [], []
    others = (
        lambda: said.append(service._settle(late)),
        lambda: came.append(service._arrival(digest_of([b"other"]), 5)),
    )
    threads = [threading.Thread(target=each, daemon=True) for each in others]
    threads[0].start()
    until(lambda: late.is_settled)
    threads[1].start()
    until(service._lock.locked)
    goes_on.set()
    for each in threads:
        each.join(20)
    assert not any(each.is_alive() for each in threads), "each waits for the other"
    assert said == [BytesStored(is_whole=True, is_new=True)]
    came[0].remove()


def test_bytes_that_come_late_do_not_go_into_the_value_that_has_its_name(service, monkeypatch):
    digest = digest_of([VALUE])
    arrival = service._arrival(digest, len(VALUE))
    arrival.write(0, memoryview(VALUE))
    late = []

    def looked(_digest):
        with pytest.raises(OSError, match="dropped"):
            arrival.write(0, memoryview(bytes(len(VALUE))))
        late.append(True)
        return False

    monkeypatch.setattr(service._store, "on_disk", looked)
    assert service._settle(arrival).is_new and late
    assert service._store.map(digest) == VALUE


def test_a_value_that_was_given_up_as_its_last_bytes_came_is_refused(service):
    arrival = service._arrival(digest_of([VALUE]), len(VALUE))
    arrival.write(0, memoryview(VALUE))
    arrival.remove()
    assert service._settle(arrival) == ValueRefused(
        errno.ESTALE, "the unfinished value was dropped"
    )


def test_streams_that_come_later_are_told_the_trouble_of_the_first(service):
    """The one whose answer is read first may not be the one that found the disk full."""
    arrival = service._arrival(digest_of([VALUE]), len(VALUE))
    service._give_up(arrival, OSError(errno.ENOSPC, "the disk is full"))
    with pytest.raises(OSError, match="the disk is full"):
        arrival.write(0, memoryview(VALUE))


def test_whoever_brings_the_last_bytes_is_told_why_they_have_no_name(service, monkeypatch):
    def full(_arrival):
        raise OSError(errno.EDQUOT, "quota")

    monkeypatch.setattr(IncomingValue, "finish", full)
    arrival = service._arrival(digest_of([VALUE]), len(VALUE))
    arrival.write(0, memoryview(VALUE))
    refused = ValueRefused(errno.EDQUOT, "quota")
    assert [service._settle(arrival) for _ in range(2)] == [refused, refused]


def test_a_value_that_is_forgotten_as_it_comes_is_not_there_when_the_rest_has_come(service):
    digest = digest_of([VALUE])
    arrival = service._arrival(digest, len(VALUE))
    arrival.write(0, memoryview(VALUE)[:10])
    with arrival._using():  # a thread is held up as it writes
        service._forget(DropValues((digest,), "word"))
        arrival.arriving.came(10, memoryview(VALUE)[10:])
    assert isinstance(service._settle(arrival), ValueRefused)
    assert digest not in service._store
    assert service._arrival(digest, len(VALUE)) is not arrival
