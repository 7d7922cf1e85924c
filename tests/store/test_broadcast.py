"""Values that machines give on to each other: who is let in, what goes where, and what if one cannot."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from skyward_nb.node import peer_agents
from skyward_nb.node.value_service import ValueService
from skyward_nb.store import broadcast as fan_module
from skyward_nb.store.blobs import BlobStore, CorruptValue, digest_of
from skyward_nb.store.broadcast import BroadcastStores, BroadcastTree
from skyward_nb.store.pool_key import MutualTLS, new_key
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.store.value_messages import (
    ANSWERS,
    AdmitPeers,
    BytesFollow,
    Done,
    DropValues,
    FetchBytes,
    IdentifyMachine,
    PeersAdmitted,
    SpreadBranch,
    SpreadFailures,
    SpreadValue,
)
from skyward_nb.store.value_stream import StoreRefused, ValueStream, request
from skyward_nb.system.addresses import is_private

LARGE = os.urandom(1 << 20) * 5 + b"end"

HOME = "127.0.0.1"


class Far:
    """A machine: its service, and a line to it that counts what goes over it."""

    def __init__(self, folder, name, loop):
        folder.mkdir()
        self.store = BlobStore(folder / "memory", folder / "disk")
        self.store.memory.mkdir()
        self.values = ValueService(folder, self.store)
        self.folder = folder
        self.sent = 0
        asyncio.run_coroutine_threadsafe(self._do(self.values.listen), loop).result()
        self._loop = loop
        self.near = RemoteStore(self.open, 60.0, name)

    async def _do(self, what):
        what(asyncio.get_running_loop())

    def close(self):
        self.near.close()
        asyncio.run_coroutine_threadsafe(self._do(self.values.close), self._loop).result()

    def open(self):
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(self.folder / "values.sock"))
        near, far = socket.socketpair()
        threading.Thread(target=self._carry, args=(far, line, True)).start()
        threading.Thread(target=self._carry, args=(line, far, False)).start()
        return near

    def _carry(self, source, sink, counts):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.sent += len(data) * counts
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def files(self):
        return [path.name for path in self.store.memory.iterdir()]


@contextlib.contextmanager
def machines_of(kind, folder, count):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = [kind(folder / f"far{i}", f"far{i}", loop) for i in range(count)]
    try:
        yield made
    finally:
        for each in made:
            each.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def machines(tmp_path):
    with machines_of(Far, tmp_path, 8) as made:
        yield made


@pytest.fixture
def together(machines):
    stores = [each.near for each in machines]
    return BroadcastStores(stores, BroadcastTree(stores, {store.name: HOME for store in stores}))


@pytest.fixture
def patient(monkeypatch):
    """A machine that is held up for seconds is waited for, not given up: else what is sent depends on the load here."""
    monkeypatch.setattr(peer_agents, "_CONNECT_TIMEOUT", 60.0)
    monkeypatch.setattr(peer_agents, "_PATIENCE", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_large_value_goes_over_one_line_and_is_everywhere(machines, together):
    met = together._fan.addresses(lambda: None)
    assert all(met.values()), met
    digest = digest_of([LARGE])
    assert together.put(digest, [LARGE[:10], LARGE[10:]])
    assert [each.files() for each in machines] == [[digest]] * 8
    assert all(each.store.map(digest) == LARGE for each in machines)
    assert not together._fan._lost
    assert sum(each.sent for each in machines) < 1.05 * len(LARGE)
    assert not together.put(digest, [LARGE])


@pytest.mark.usefixtures("patient")
def test_what_one_machine_has_goes_from_there(machines, together):
    digest = digest_of([LARGE])
    machines[5].near.put(digest, [LARGE])
    before = sum(each.sent for each in machines)
    assert together.put(digest, [LARGE])
    assert [each.files() for each in machines] == [[digest]] * 8
    assert sum(each.sent for each in machines) - before < 100_000


def test_small_values_go_to_each(machines, together):
    digest = digest_of([b"small"])
    assert together.put(digest, [b"small"])
    assert [each.files() for each in machines] == [[digest]] * 8
    assert not together._fan._met, "nobody was told of a key for that"


def test_a_machine_that_others_cannot_reach_has_its_own_line(machines, together, monkeypatch):
    monkeypatch.setattr(peer_agents, "_CONNECT_TIMEOUT", 0.3)
    together._fan.addresses(lambda: None)
    met = together._fan._met
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        met["far1"] = (deaf.getsockname()[:2],)  # it takes who comes, and says nothing
        met["far2"] = met["far3"]  # it is another one that is reached
        met["far4"] = ()
        digest = digest_of([LARGE])
        assert together.put(digest, [LARGE])
    assert [each.files() for each in machines] == [[digest]] * 8
    known = together._fan.addresses(lambda: None)
    assert known["far1"] == known["far2"] == known["far4"] == ()


@pytest.mark.usefixtures("patient")
def test_what_is_behind_a_machine_that_cannot_be_reached_is_reached(
    machines, together, monkeypatch
):
    monkeypatch.setattr(peer_agents, "_PATIENCE", 0.3)  # with one that was reached, and is another
    together._fan.addresses(lambda: None)
    met = together._fan._met
    for other in ("far2", "far3"):  # one that others are behind, one that is behind another
        before = sum(each.sent for each in machines)
        at, met[other] = met[other], met["far1"]
        value = other.encode() + LARGE
        assert together.put(digest_of([value]), [value])
        assert all(digest_of([value]) in each.files() for each in machines)
        assert sum(each.sent for each in machines) - before < 2.05 * len(LARGE)
        assert not together._fan.addresses(lambda: None)[other]
        met[other] = at
        together._fan._lost.clear()


@pytest.mark.usefixtures("patient")
def test_where_there_is_one_stream_to_each_machine_a_value_is_everywhere_all_the_same(tmp_path):
    """As where programs carry streams over sessions of sshd, of which there are few."""

    class Single(Far):
        """A machine that is asked over one stream at a time."""

        def open(self):
            if self.is_taken:
                raise OSError(errno.EBUSY, "one at a time")
            self.is_taken = True
            return super().open()

        is_taken = False

    with machines_of(Single, tmp_path, 4) as machines:
        stores = [each.near for each in machines]
        homes = {store.name: HOME for store in stores}
        together = BroadcastStores(stores, BroadcastTree(stores, homes))
        values = [bytes([number]) + LARGE for number in range(3)]
        with ThreadPoolExecutor(3) as threads:
            assert all(threads.map(lambda each: together.put(digest_of([each]), [each]), values))
        assert all({*each.files()} == {digest_of([value]) for value in values} for each in machines)
        assert sum(each.sent for each in machines) < 1.1 * len(values) * len(LARGE)


@pytest.mark.usefixtures("patient")
def test_a_machine_that_could_not_be_reached_is_tried_again(machines, together, monkeypatch):
    monkeypatch.setattr(fan_module, "_LOST_FOR", 0.0)
    monkeypatch.setattr(peer_agents, "_PATIENCE", 0.3)
    together._fan.addresses(lambda: None)
    met = together._fan._met
    at, met["far1"] = met["far1"], met["far2"]
    assert together.put(digest_of([LARGE]), [LARGE])
    met["far1"] = at
    before = sum(each.sent for each in machines)
    again = b"again" + LARGE
    assert together.put(digest_of([again]), [again])
    assert sum(each.sent for each in machines) - before < 1.05 * len(LARGE)


def test_a_machine_without_room_is_told_and_nothing_is_left(machines, together, monkeypatch):
    full = machines[6].store

    def lacking(size, coming):
        raise OSError(28, "there is no room")

    monkeypatch.setattr(full, "folder_for", lacking)
    digest = digest_of([LARGE])
    with pytest.raises(OSError, match="there is no room"):
        together.put(digest, [LARGE])
    monkeypatch.undo()
    for each in machines:
        each.near.put(digest_of([b"x"]), [b"x"])  # what was forgotten is so before that
    assert not any(digest in each.files() for each in machines)


def test_a_value_that_changed_on_the_way_is_nowhere(machines, together):
    digest = digest_of([b"other"])
    with pytest.raises(CorruptValue):
        together.put(digest, [LARGE])
    for each in machines:
        each.near.put(digest_of([b"x"]), [b"x"])
    assert not any(digest in each.files() for each in machines)


@pytest.mark.usefixtures("patient")
def test_a_neighbour_that_was_given_other_bytes_is_told_of(machines):
    first, second, key = *machines[:2], new_key()
    addresses = [far.near.meet(key, (HOME,), lambda: None) for far in (first, second)]
    digest = digest_of([LARGE])
    first.near.put(digest, [LARGE])
    (first.store.memory / digest).write_bytes(bytes(len(LARGE)))
    with pytest.raises(StoreRefused) as refused:
        spread = SpreadValue(digest, len(LARGE), (SpreadBranch("far1", tuple(addresses[1])),))
        request(ValueStream(first.open(), ANSWERS), spread, SpreadFailures)
    assert refused.value.code == errno.EBADMSG
    assert second.files() == []


def test_whoever_interrupts_is_not_kept(machines, together):
    together._fan.addresses(lambda: None)
    calls = iter(range(3))

    def tick():
        if next(calls, None) is None:
            raise KeyboardInterrupt

    big = LARGE * 20
    with pytest.raises(KeyboardInterrupt):
        together.put(digest_of([big]), [big], tick)
    assert together.put(digest_of([LARGE]), [LARGE])


def door(far, key):
    """A neighbour's stream to a machine that was told of a key."""
    near = far.near
    (address,) = near.meet(key, (HOME,), lambda: None)
    connection = socket.create_connection(address, 60)
    return MutualTLS(key, far.folder).enter(connection)


@pytest.mark.usefixtures("patient")
def test_neighbours_give_and_do_not_take(machines):
    far = machines[0]
    value = digest_of([b"value"])
    far.near.put(value, [b"value"])
    stream = ValueStream(door(far, new_key()), ANSWERS)
    assert request(stream, IdentifyMachine("far0"), Done)
    with pytest.raises(StoreRefused, match="another one"):
        request(stream, IdentifyMachine("far1"), Done)
    for ask in (FetchBytes(value, 0, 5), DropValues((value,)), AdmitPeers("me", new_key())):
        with pytest.raises(StoreRefused, match="other machines may not ask"):
            request(stream, ask, BytesFollow)
    stream.close()
    assert far.files() == [value]


@pytest.mark.usefixtures("patient")
def test_nobody_comes_in_without_the_key(machines):
    far = machines[0]
    key, other = new_key(), new_key()
    (address,) = far.near.meet(key, (HOME,), lambda: None)
    with pytest.raises(OSError, match=r"CERTIFICATE|certificate|alert|verify|reset|closed"):
        stream = MutualTLS(other, far.folder).enter(socket.create_connection(address, 60))
        stream.recv(1)
    blank = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blank.check_hostname, blank.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address, 60) as connection:
        with pytest.raises(OSError):
            stream = blank.wrap_socket(connection)
            stream.sendall(b"\x00\x00\x00\x01x")
            if not stream.recv(1):
                raise OSError("hung up")
    with socket.create_connection(address, 60) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in plain.recv(100)
    assert not list(far.folder.glob(".key-*")), "no key is left in a file"
    assert str(key) == "PoolKey(…)"


@pytest.mark.usefixtures("patient")
def test_a_new_key_ends_the_old_one(machines):
    far = machines[0]
    old = new_key()
    far.near.meet(old, (HOME,), lambda: None)
    (another,) = far.near.meet(new_key(), (HOME,), lambda: None)
    with pytest.raises(OSError):
        MutualTLS(old, far.folder).enter(socket.create_connection(another, 60)).recv(1)


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("172.31.0.1", True),
        ("172.32.0.1", False),
        ("192.168.1.1", True),
        ("169.254.1.1", True),
        ("100.64.0.1", True),
        ("100.128.0.1", False),
        ("8.8.8.8", False),
        ("0.0.0.0", False),
        ("::1", True),
        ("::", False),
        ("fd00::1", True),
        ("fe80::1%eth0", False),
        ("2001:db8::1", False),
        ("2600::1", False),
        ("a name", False),
    ],
)
def test_private_addresses(host, private):
    assert is_private(host) is private


def test_a_machine_listens_at_private_addresses_alone(machines):
    far = machines[0]
    own = request(ValueStream(far.open(), ANSWERS), AdmitPeers("me", new_key()), PeersAdmitted)
    assert own.addresses and all(is_private(host) for host, *_ in own.addresses)
    assert request(
        ValueStream(far.open(), ANSWERS),
        AdmitPeers("me", new_key(), ("8.8.8.8", "::")),
        PeersAdmitted,
    ) == PeersAdmitted(())


def test_trees_have_each_machine_once():
    names = [(f"m{i}", ()) for i in range(15)]
    grown = fan_module._grown(names)
    assert sorted(name for each in grown for name in each.names()) == sorted(n for n, _ in names)

    def depth(branches):
        return (
            1 + max(map(depth, (each.branches for each in branches)), default=0) if branches else 0
        )

    assert depth(grown) <= 4
