"""A store by way of streams: what arrives, what is lost on the way, and what there is no room for."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from skyward_nb.node import value_service as service
from skyward_nb.node.incoming_value import IncomingValue
from skyward_nb.node.value_service import ValueService
from skyward_nb.store import blobs
from skyward_nb.store.blobs import BlobStore, CorruptValue, digest_of
from skyward_nb.store.receive_window import ReceiveWindow
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.store.several_stores import SeveralStores
from skyward_nb.store.stream_pool import StreamPool
from skyward_nb.store.value_messages import (
    ANSWERS,
    ASKS,
    ByteGaps,
    BytesStored,
    Done,
    DropValues,
    StoreBytes,
    framed,
)
from skyward_nb.store.value_source import ValueParts
from skyward_nb.store.value_stream import ValueStream, answer, request

LARGE = os.urandom(1 << 20) * 9 + b"end"


class Far:
    """A service, the store of its machine, and lines to it that can be cut after so many bytes."""

    def __init__(self, folder, loop):
        self.store = BlobStore(folder / "memory", folder / "disk", spare=0)
        self.store.memory.mkdir(parents=True)
        self.values = ValueService(folder, self.store)
        self.path = str(folder / "values.sock")
        self.opened = 0
        self.cut_after: list[int] = []
        asyncio.run_coroutine_threadsafe(self._listen(), loop).result()
        self._loop = loop

    async def _listen(self):
        self.values.listen(asyncio.get_running_loop())

    async def _close(self):
        self.values.close(asyncio.get_running_loop())

    def close(self):
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    def open(self):
        self.opened += 1
        line = socket.socket(socket.AF_UNIX)
        line.connect(self.path)
        # Several threads open lines: to look first and take then would be a race.
        try:
            most = self.cut_after.pop(0)
        except IndexError:
            return line
        near, far = socket.socketpair()
        threading.Thread(target=self._carry, args=(far, line, most)).start()
        threading.Thread(target=self._carry, args=(line, far, 1 << 60)).start()
        return near

    def _carry(self, source, sink, most):
        with contextlib.suppress(OSError):
            while most > 0 and (data := source.recv(min(most, 1 << 16))):
                sink.sendall(data)
                most -= len(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def files(self):
        return [path.name for path in self.store.memory.iterdir()]


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.fixture
def make_far(tmp_path, loop):
    made = []

    def make():
        folder = tmp_path / f"far{len(made)}"
        folder.mkdir()
        made.append(Far(folder, loop))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def far(make_far):
    return make_far()


@pytest.fixture
def near(far):
    store = RemoteStore(far.open, patience=60.0)
    yield store
    store.close()


@pytest.mark.parametrize("value", [b"", b"small", bytes(70_000), LARGE], ids=len)
def test_a_value_goes_and_comes_back(near, far, value):
    digest = digest_of([value])
    assert near.put(digest, [value[:3], bytearray(value[3:])])
    assert far.files() == [digest]
    assert far.store.map(digest) == value
    assert not near.put(digest, [value]), "it was there"
    near.fetch([digest])
    assert near.map(digest) == value
    mine = near.map(digest)
    mine[:1] = b"x"[: len(value)]
    assert near.map(digest) == value, "what is mapped is the caller's own"
    near.drop([digest])
    with pytest.raises(CorruptValue, match="not in the store any more"):
        near.map(digest)
    assert far.files() == []


def test_over_a_long_way_values_go_in_many_streams(near, far, monkeypatch):
    monkeypatch.setattr(ReceiveWindow, "delay", 0.05)
    several = threading.Event()
    keep = ValueService._keep

    def held(self, stream, ask, room):
        # One that is quick sends all before the others have begun.
        if far.opened > 1:
            several.set()
        assert several.wait(60)
        return keep(self, stream, ask, room)

    monkeypatch.setattr(ValueService, "_keep", held)
    digest = digest_of([LARGE])
    assert near.put(digest, [LARGE])
    assert far.opened > 1
    assert near.map(digest) == LARGE


def test_a_value_that_was_missing_is_new_whichever_stream_is_answered_last(near, far, monkeypatch):
    monkeypatch.setattr(ReceiveWindow, "delay", 0.05)
    keep, answers = ValueService._keep, []

    def late(self, stream, ask, room):
        stored = keep(self, stream, ask, room)
        if stored.is_whole:
            # Another stream's bytes, answered before, were the last.
            answers.append(stored)
            stored = BytesStored(is_whole=True, on_disk=stored.on_disk)
        return stored

    monkeypatch.setattr(ValueService, "_keep", late)
    digest = digest_of([LARGE])
    assert near.put(digest, [LARGE])
    assert answers
    assert not near.put(digest, [LARGE]), "it was there"


def test_what_is_forgotten_is_so_before_what_is_said_next(near, far):
    digest = digest_of([b"value"])
    for _ in range(200):
        assert near.put(digest, [b"value"])
        near.drop([digest])


def test_a_stream_on_which_nothing_comes_is_closed_and_nothing_is_lost(near, far, monkeypatch):
    monkeypatch.setattr(service, "_SILENT", 0.2)
    digests = [digest_of([word]) for word in (b"one", b"two")]
    stuck = far.open()
    stuck.sendall(b"\x00\x00")  # half a message
    stuck.settimeout(60)
    near.put(digests[0], [b"one"])
    assert stuck.recv(1) == b"", "it was hung up on"
    stuck.close()
    until(lambda: not far.values._streams)
    near.drop(digests[:1])
    near.put(digests[1], [b"two"])
    assert far.files() == digests[1:]


def test_what_was_forgotten_over_a_stream_that_was_lost_is_gone_all_the_same(near, far):
    """The stream looks sound when the word is sent, and ends before it is read."""
    digests = [digest_of([word]) for word in (b"one", b"two")]
    near.put(digests[0], [b"one"])
    (stream,) = near._streams._idle
    stream.say = lambda message: stream._way.socket.shutdown(socket.SHUT_RDWR)
    near.drop(digests[:1])
    assert digests[0] in far.store, "nobody there has heard of it"
    near.put(digests[1], [b"two"])
    assert far.files() == digests[1:]


@pytest.mark.parametrize("streams", [1, 5])
def test_a_line_that_is_cut_goes_on_where_it_was(near, far, streams, monkeypatch):
    dice = random.Random(streams)
    monkeypatch.setattr(RemoteStore, "_stream_count", lambda *_: streams)
    digest = digest_of([LARGE])
    far.cut_after = [dice.randrange(3 << 20) for _ in range(12)]
    ticks = []
    assert near.put(digest, [LARGE], lambda: ticks.append(1))
    assert far.store.map(digest) == LARGE
    assert ticks
    near.close()
    again = RemoteStore(far.open, patience=60.0)
    far.cut_after = [dice.randrange(200) for _ in range(9)]
    assert again.map(digest) == LARGE
    again.close()


def test_no_way_there_ends_after_a_while(tmp_path):
    def nowhere():
        raise OSError(errno.ENETUNREACH, "no way")

    with pytest.raises(OSError, match=r"no way there for 0\.3 s: no way") as told:
        RemoteStore(nowhere, patience=0.3).put("0" * 32, [b"x"])
    assert told.value.errno == errno.ETIMEDOUT


def test_whoever_interrupts_leaves_nothing_half_written(near, far):
    digest = digest_of([LARGE])
    far.cut_after = [3 << 20, *[0] * 1000]  # all of it cannot come, however late the interrupt is
    left = iter(range(5))

    def tick():
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        near.put(digest, [LARGE], tick)
    far.cut_after.clear()
    near.put(digest_of([b"x"]), [b"x"])
    assert digest not in far.store
    assert near.put(digest, [LARGE]), "and it can be put afterwards"
    assert set(far.files()) == {digest, digest_of([b"x"])}


def test_a_value_that_changed_on_the_way_has_no_name(near, far):
    for value in (b"other", bytes(5 << 20)):
        with pytest.raises(CorruptValue, match="not those that were packed"):
            near.put(digest_of([b"value"]), [value])
        assert far.files() == []


def test_what_has_come_whole_is_not_verified_by_each_rank(near, far, monkeypatch):
    # Of several streams one may still be within its last write when all is there.
    monkeypatch.setattr(RemoteStore, "_stream_count", lambda *_: 1)
    digest = digest_of([LARGE])
    near.put(digest, [LARGE])
    monkeypatch.setattr(blobs, "digest_of", lambda _: pytest.fail("verified"))
    assert BlobStore(far.store.memory).map(digest) == LARGE


@pytest.mark.parametrize("value", [b"small", LARGE], ids=["small", "large"])
def test_a_value_that_is_forgotten_as_it_comes_comes_once_more(near, far, monkeypatch, value):
    """Another thread may have had the same value, and let it go."""
    write, dropped = IncomingValue.write, []

    def forgotten(self, at, data):
        if not dropped:
            dropped.append(True)
            far.values._forget(DropValues((self.digest,), "word"))
        write(self, at, data)

    monkeypatch.setattr(IncomingValue, "write", forgotten)
    digest = digest_of([value])
    assert near.put(digest, [value])
    assert dropped and far.store.map(digest) == value


@pytest.mark.parametrize("rest", [LARGE[5:], bytes(len(LARGE) - 5)], ids=["the same", "others"])
def test_what_comes_late_over_a_line_that_was_cut_is_there_already(far, rest):
    """The agent still reads from the earlier stream while all of the value comes over the next one."""
    digest = digest_of([LARGE])
    whole = StoreBytes(digest, len(LARGE), 0, len(LARGE))
    earlier, later = (ValueStream(far.open(), ANSWERS) for _ in range(2))
    earlier.say(whole, [LARGE[:5]])
    until(lambda: digest in far.values._arrivals and far.values._arrivals[digest].left < len(LARGE))
    assert request(later, whole, BytesStored, [LARGE]).is_new
    earlier._send(memoryview(rest))
    found = answer(earlier, BytesStored)
    assert found.is_whole and not found.is_new
    assert far.store.map(digest) == LARGE
    earlier.close(), later.close()


def test_bytes_that_came_twice_are_verified_by_readers(far):
    half = len(LARGE) // 2
    arrival = IncomingValue(digest_of([LARGE]), len(LARGE), far.store.folder_for(len(LARGE)))
    arrival.write(0, memoryview(LARGE)[:half])
    arrival.write(0, memoryview(bytes(half)))  # other bytes by another stream
    arrival.write(half, memoryview(LARGE)[half:])
    assert arrival.arriving.digest() == arrival.digest, "of the first ones"
    arrival.finish()
    arrival.remove()
    with pytest.raises(CorruptValue):
        far.store.map(arrival.digest)


def test_a_value_that_finds_no_room_at_last_has_no_name(near, far, monkeypatch):
    def full(number):
        raise OSError(errno.EDQUOT, "quota")

    digest = digest_of([LARGE])
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", full)
        with pytest.raises(OSError, match="quota"):
            near.put(digest, [LARGE])
    assert far.files() == []
    near.put(digest, [LARGE])
    assert far.store.map(digest) == LARGE


def test_a_value_that_is_damaged_there_is_told_and_forgotten(near, far):
    digest = digest_of([b"value"])
    (far.store.memory / digest).write_bytes(b"other")
    with pytest.raises(CorruptValue, match="not those that were packed"):
        near.map(digest)
    near.put(digest_of([b"next"]), [b"next"])
    assert digest not in far.store


def test_no_room_there_is_told_as_such(near, far, monkeypatch):
    monkeypatch.setattr("skyward_nb.store.blobs.memory_room", lambda _: 0)
    monkeypatch.setattr("skyward_nb.store.blobs.disk_room", lambda _: 0)
    for value in (b"small", LARGE):
        with pytest.raises(OSError, match=r"it is .*, and there are 0 B free") as told:
            near.put(digest_of([value]), [value])
        assert told.value.errno == errno.ENOSPC
    assert far.files() == []


def test_what_finds_no_room_in_memory_goes_to_disk(near, far, monkeypatch):
    monkeypatch.setattr("skyward_nb.store.blobs.memory_room", lambda _: 0)
    digest = digest_of([LARGE])
    near.put(digest, [LARGE])
    assert near.on_disk(digest)
    assert near.map(digest) == LARGE


def test_a_name_that_is_no_digest_opens_nothing(near, far, tmp_path):
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(OSError, match="not a digest"):
        near.map("../../secret")
    with pytest.raises(OSError, match="not a digest"):
        near.put("../evil", [b"x"])


def test_what_nobody_needs_is_trimmed(near, far):
    values = [bytes([i]) * 100 for i in range(3)]
    digests = [digest_of([value]) for value in values]
    for digest, value in zip(digests, values, strict=True):
        near.put(digest, [value])
    near.trim([digests[1]])
    assert near.map(digests[1]) == values[1]
    assert far.files() == [digests[1]]


def test_what_stopped_coming_is_given_up_in_time(near, far):
    far.cut_after = [3 << 20, *[0] * 1000]  # nothing more of it comes

    def tick():
        if far.opened > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        near.put(digest_of([LARGE]), [LARGE], tick)
    near.close()
    until(lambda: not far.values._streams)  # what was sent has been read, and no more can come
    assert [name[:6] for name in far.files()] == [".part-"]
    for each in far.values._arrivals.values():
        each.touched -= 2 * service._ABANDONED
    far.cut_after.clear()
    other = digest_of([b"other"])
    with contextlib.closing(RemoteStore(far.open, patience=60.0)) as next_one:
        next_one.put(other, [b"other"])
    assert far.files() == [other]


def test_several_machines_have_it_all_or_none(make_far):
    fars = [make_far() for _ in range(3)]
    stores = [RemoteStore(far.open, patience=60.0) for far in fars]
    several = SeveralStores(stores)
    digest = digest_of([LARGE])
    assert several.put(digest, [LARGE])
    assert [far.files() for far in fars] == [[digest]] * 3
    assert not several.put(digest, [LARGE])
    several.drop([digest])

    def nowhere():
        raise OSError(errno.ENETUNREACH, "no way")

    lacking = RemoteStore(nowhere, patience=0.2)
    with pytest.raises(OSError, match="no way there"):
        SeveralStores([*stores, lacking]).put(digest, [LARGE])
    for store in stores:
        store.put(digest_of([b"x"]), [b"x"])  # what was forgotten is so before that
    assert digest not in [name for far in fars for name in far.files()]
    only = digest_of([b"only there"])
    stores[2].put(only, [b"only there"])
    assert several.map(only) == b"only there"
    for store in stores:
        store.close()


@given(st.lists(st.binary(max_size=9), max_size=9), st.data())
def test_parts_are_bytes_in_a_row(parts, data):
    whole = b"".join(parts)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert b"".join(ValueParts(parts).views(start, stop)) == whole[start:stop]


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_gaps_are_what_was_not_filled(size, spans):
    gaps, missing = ByteGaps(size), set(range(size))
    for one, other in spans:
        start, stop = sorted((min(one, size), min(other, size)))
        gaps.fill(start, stop)
        missing -= set(range(start, stop))
    assert {at for start, stop in gaps for at in range(start, stop)} == missing
    assert all(start < stop for start, stop in gaps)
    assert (gaps.size, bool(gaps)) == (len(missing), bool(missing))


def test_a_message_and_the_few_bytes_behind_it_are_one_write():
    """Of two, some carriers keep the second back for 40 ms. Each write is a packet here."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message = StoreBytes("digest", 5, 0, 5)
    with near, far:
        ValueStream(near, ANSWERS).say(message, [b"he", b"llo"])
        assert far.recv(1 << 16) == framed(message) + b"hello"


# ── who is held up ──────────────────────────────────────────────────────────────────────


def is_sealed(folder, digest):
    """Whether a file has the note of its digest, as one that is sealed now has."""
    other = folder / "other"
    other.touch()
    blobs.seal(other, digest)
    noted, found = (each.stat().st_mtime_ns % 10**9 for each in (other, folder / digest))
    return noted == found


def test_a_value_is_sealed_though_who_wrote_the_last_of_it_is_held_up(tmp_path):
    data = memoryview(os.urandom(2_000_000))
    value = IncomingValue(digest_of([data]), len(data), tmp_path)
    came, told, go_on = value.arriving.came, threading.Event(), threading.Event()

    def held(start, whole):
        is_new = came(start, whole)
        if start:
            told.set()
            go_on.wait(60)
        return is_new

    value.arriving.came = held
    late = threading.Thread(target=value.write, args=(1_000_000, data[1_000_000:]))
    late.start()
    assert told.wait(60)
    value.write(0, data[:1_000_000])
    assert value.arriving.digest() == value.digest
    value.finish()
    value.remove()
    assert not is_sealed(tmp_path, value.digest)
    go_on.set()
    late.join()
    assert is_sealed(tmp_path, value.digest)


def test_what_is_to_be_dropped_is_so_before_another_thread_has_a_stream(monkeypatch):
    """Though the thread that hangs up is held up in that."""
    obeyed, held, go_on = [], threading.Event(), threading.Event()

    def serve(far):
        stream = ValueStream(far, ASKS)
        with contextlib.suppress(OSError):
            while True:
                obeyed.append(stream.hear())
                stream.say(Done())

    def connect():
        near, far = socket.socketpair()
        threading.Thread(target=serve, args=(far,), daemon=True).start()
        return near

    def late(stream, close=ValueStream.close):
        held.set()
        go_on.wait(60)
        close(stream)

    pool = StreamPool(connect)
    with pool.stream(lambda: None):
        pass
    pool.post(DropValues(("a" * 32,)))
    until(lambda: len(obeyed) == 1)
    monkeypatch.setattr(ValueStream, "close", late)
    hanging_up = threading.Thread(target=pool.hang_up)
    hanging_up.start()
    assert held.wait(60)
    with pool.stream(lambda: None):
        assert len(obeyed) == 2, "first of all it is said once more, as its answer was not heard"
    go_on.set()
    hanging_up.join()
    with pool.stream(lambda: None):
        assert len(obeyed) == 2, "nothing is dropped that was stored since"
    pool.close()


class HeldUp:
    """A program between a client and a service, which passes on what it is given once it is let."""

    def __init__(self, serve):
        self.ours, self._middle = socket.socketpair()
        self._inner, far = socket.socketpair()
        self.goes_on, self.is_over = threading.Event(), threading.Event()
        self.goes_on.set()
        for each, words in ((serve, (far,)), (self._up, ()), (self._down, ())):
            threading.Thread(target=each, args=words, daemon=True).start()

    def _up(self):
        while True:
            data = self._middle.recv(1 << 16)
            self.goes_on.wait()
            if not data:
                self._inner.shutdown(socket.SHUT_WR)
                return
            self._inner.sendall(data)

    def _down(self):
        with contextlib.suppress(OSError):
            while data := self._inner.recv(1 << 16):
                self._middle.sendall(data)
        self.is_over.set()


def test_what_was_to_be_dropped_over_a_stream_that_is_given_up_is_not_dropped_later(tmp_path):
    there = BlobStore(tmp_path)
    values = ValueService(tmp_path, there)
    programs = []

    def connect():
        programs.append(HeldUp(lambda far: values._serve(far, values._answer)))
        return programs[-1].ours

    store = RemoteStore(connect)
    value = b"x" * 100
    digest = digest_of([value])
    store.put(digest, [value])
    programs[0].goes_on.clear()
    store.drop([digest])
    store._streams.hang_up()  # as where another stream was lost
    store.put(digest, [value])  # the drop is said once more before that
    assert digest in there
    programs[0].goes_on.set()
    assert programs[0].is_over.wait(60)
    assert digest in there
    store.close()
