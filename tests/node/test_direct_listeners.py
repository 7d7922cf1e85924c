"""Doors by which a client comes to an agent by TCP: for whom, where, how many, and what goes through."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import ssl
import threading
from functools import partial

import pytest
from leaks import leaves_nothing
from waiting import until

from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.node.direct_listeners import DirectListeners
from skyward_nb.node.peer_agents import private_listeners
from skyward_nb.pool.link import Link
from skyward_nb.protocol.commands import Ping, QueryStatus, Stop
from skyward_nb.protocol.events import AgentStatus, Pong
from skyward_nb.protocol.frames import FrameError, event_frames, frame
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.far import direct_connection
from skyward_nb.providers.far.direct_connection import DirectConnection
from skyward_nb.providers.far.engine_machine import EngineMachine
from skyward_nb.providers.far.far_machine import FarMachine
from skyward_nb.providers.far.tls_stream import carried_by_tls
from skyward_nb.providers.local import LocalProvider
from skyward_nb.providers.loop_thread import LOOP
from skyward_nb.store.pool_key import AGENT, MutualTLS, new_key
from skyward_nb.store.value_messages import ANSWERS, AdmitPeers, MissingQuery, PeersAdmitted
from skyward_nb.store.value_stream import ValueStream, request
from skyward_nb.system.addresses import is_private
from skyward_nb.words.spec import PoolSpec

_LONG = 60.0
_HOSTS = ("127.0.0.1",)


def do(work):
    return LOOP.start(work).future.result(_LONG)


@pytest.fixture(scope="module")
def machine():
    """One with an agent, without ranks."""
    with leaves_nothing():
        pool_id = f"door-{secrets.token_hex(3)}"
        (made,) = asyncio.run(LocalProvider().acquire(PoolSpec(), pool_id, lambda _: None))
        asyncio.run(made.start_agent(_LONG, 0.0, []))
        yield made
        link = linked(made.name, asyncio.run(made.connect()))
        link.send(Stop())
        asyncio.run(made.release())
        link.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """An agent that is held up has a way all the same, and it listens where no other test's network comes and goes."""
    for limit in ("_LIMIT", "_SOON"):
        monkeypatch.setattr(direct_connection, limit, _LONG)
    monkeypatch.setattr(direct_connection, "AdmitPeers", partial(AdmitPeers, hosts=_HOSTS))


@pytest.fixture
def door(machine):
    """What a client makes for itself."""
    made = Door(machine)
    yield made
    do(made.close())


class Door(DirectConnection):
    """What a client makes for itself; a machine on this one is asked at its own socket."""

    def __init__(self, machine):
        super().__init__(machine.name)
        self.asked = 0
        self._machine = machine

    async def _ask(self):
        self.asked += 1
        return self._machine.values()

    async def commands(self):
        return await super().commands(self._ask)

    async def values(self):
        return await super().values(self._ask)


def linked(name, connection):
    client = Client(key="by hand", pid=os.getpid(), host="", since=0.0)
    link = Link(name, client, _LONG)
    link.open(connection)
    until(lambda: link.read() is not None and link.is_greeted)
    return link


def answer_to(connection, command):
    """The first event that comes back."""
    connection.settimeout(_LONG)
    connection.sendall(frame(command))
    frames = event_frames()
    while data := connection.recv(1 << 16):
        for event, _ in frames.feed_both(data):
            return event
    return None


def admitted(machine, key, hosts=_HOSTS):
    stream = ValueStream(machine.values(), ANSWERS)
    try:
        return request(stream, AdmitPeers("me", key, hosts, is_client=True), PeersAdmitted)
    finally:
        stream.close()


def test_commands_and_values_go_through_one_door(machine, door):
    near = do(door.commands())
    assert isinstance(answer_to(near, QueryStatus()), AgentStatus)
    assert isinstance(answer_to(near, Ping()), Pong)
    near.close()
    values = ValueStream(do(door.values()), ANSWERS)
    assert values is not None
    digest = "0" * 32
    values.say(MissingQuery(digest, 5))
    assert values.hear().spans == ((0, 5),)
    values.close()


def test_only_whoever_has_the_key_comes_in_and_only_at_private_addresses(machine):
    key = new_key()
    found = admitted(machine, key, hosts=())
    assert found.commands
    assert all(is_private(host) for host, _ in (*found.commands, *found.addresses))
    found = admitted(machine, key)
    with socket.create_connection(found.commands[0], _LONG) as plain:
        plain.settimeout(_LONG)
        plain.sendall(frame(QueryStatus()))
        with contextlib.suppress(OSError, FrameError):
            assert not [*event_frames().feed_both(plain.recv(1 << 16))]
    with contextlib.closing(socket.create_connection(found.commands[0], _LONG)) as other:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with pytest.raises(OSError, match=r"certificate|handshake|reset|EOF"):
            stranger = context.wrap_socket(other, server_hostname=AGENT)
            stranger.settimeout(_LONG)
            stranger.sendall(frame(QueryStatus()))
            assert not stranger.recv(1)  # an alert of TLS 1.3 comes after its handshake
            raise ssl.SSLEOFError("EOF")


def test_whoever_overhears_how_a_door_was_asked_for_does_not_come_in(machine, tmp_path):
    """An engine may carry that as plain text: the agent's key is in it, and the client's is not."""
    key, own = new_key(), new_key()
    stream = ValueStream(machine.values(), ANSWERS)
    ask = AdmitPeers("me", key, _HOSTS, is_client=True, other=own.certificate)
    found = request(stream, ask, PeersAdmitted)
    stream.close()
    tls = MutualTLS(own, tmp_path, key.certificate)
    near = do(carried_by_tls(socket.create_connection(found.commands[0], _LONG), tls, _LONG))
    assert isinstance(answer_to(near, QueryStatus()), AgentStatus)
    near.close()
    for addresses in (found.commands, found.addresses):
        connection = socket.create_connection(addresses[0], _LONG)
        with contextlib.suppress(OSError):  # told by an alert after the handshake of TLS 1.3
            near = do(carried_by_tls(connection, MutualTLS(key, tmp_path), _LONG))
            near.settimeout(_LONG)
            near.sendall(frame(QueryStatus()))
            assert not near.recv(1)
            near.close()


def test_another_key_is_refused_on_this_side_too(machine, tmp_path):
    """Whoever answers at the address has to have the key."""
    found = admitted(machine, new_key())
    connection = socket.create_connection(found.commands[0], _LONG)
    with pytest.raises(OSError, match="certificate"):
        do(carried_by_tls(connection, MutualTLS(new_key(), tmp_path), _LONG))


def test_doors_by_which_nobody_is_here_are_closed_once_there_are_many(machine, door):
    near = do(door.commands())
    link = linked(machine.name, near)
    first = admitted(machine, new_key())
    for _ in range(8):
        last = admitted(machine, new_key())

    def is_open(found):
        with contextlib.suppress(OSError), socket.create_connection(found.commands[0], _LONG):
            return True
        return False

    assert is_open(last)
    until(lambda: not is_open(first))
    # The one by which a client is here has stayed.
    again = do(door.commands())
    assert isinstance(answer_to(again, QueryStatus()), AgentStatus)
    again.close()
    link.say_no_more()
    link.close()


def test_a_door_that_nobody_answers_at_is_no_way_and_is_not_tried_again_at_once(
    machine, monkeypatch
):
    monkeypatch.setattr("skyward_nb.providers.far.direct_connection.time", Clock())
    door = Door(machine)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nothing listens there
        nowhere = PeersAdmitted((held.getsockname(),), (held.getsockname(),))
        monkeypatch.setattr(
            "skyward_nb.providers.far.direct_connection.request", lambda *_: nowhere
        )
        assert do(door.commands()) is None
        assert do(door.values()) is None
        assert door.asked == 1


def test_an_agent_that_knows_no_such_way_is_reached_as_before(machine, monkeypatch):
    door = Door(machine)
    found = admitted(machine, new_key())
    monkeypatch.setattr(
        "skyward_nb.providers.far.direct_connection.request",
        lambda *_: PeersAdmitted(found.addresses),
    )
    assert do(door.commands()) is None


def test_an_engine_that_does_not_answer_is_not_waited_for_long(monkeypatch):
    """Neither one that opens no stream, nor one whose stream is silent."""
    monkeypatch.setattr("skyward_nb.providers.far.direct_connection._ASK_LIMIT", 0.05)
    near, far = socket.socketpair()

    async def silent():
        return near

    for asking in (asyncio.Event().wait, silent):
        assert do(DirectConnection("m").values(asking)) is None
    while far.recv(1 << 16):
        """It was asked, and is hung up on."""
    far.close()


def test_a_line_is_opened_again_while_the_engine_does_not_answer(machine):
    """So the end of Slurm's controller, in which an interface goes whose address the line had, ends no pool."""
    door = Door(machine)
    assert do(door.again()) is None, "nothing is known yet"
    linked(machine.name, do(door.commands())).close()
    asked, away = door.asked, OfNoEngine("p", "f", 0, NoEngine())
    away._direct, away._is_reached, away._runtime, away._found_over = door, True, "there", 7
    linked(machine.name, do(FarMachine.connect(away))).close()
    assert door.asked == asked
    # The address is gone for a while, in which both ways are tried in vain.
    there = door._admitted
    with socket.create_server(("127.0.0.1", 0)) as gone:
        door._admitted = PeersAdmitted((gone.getsockname(),), (gone.getsockname(),))
    assert do(door.values()) is None
    with pytest.raises(ConnectionError, match="does not answer"):
        do(FarMachine.connect(away))
    door._admitted = there
    linked(machine.name, do(FarMachine.connect(away))).close()
    # Nor is the engine asked for what comes then, by whichever connection.
    assert do(away._found()) == 7
    do(door.values()).close()
    assert door.asked == asked
    do(door.close())


class OfNoEngine(EngineMachine):
    async def why_ended(self):
        return ""


class NoEngine:
    """The line of an engine that does not answer."""

    name = "m"
    number = 7

    async def reached(self):
        return self.number

    async def run(self, script, *, limit):
        raise ShellGone("its controller does not answer")


class Clock:
    """A clock that is moved by hand alone: how long the test takes is no matter."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return self.ahead


def test_a_slow_engine_is_asked_again_soon_and_has_more_time_then(machine, monkeypatch):
    monkeypatch.setattr("skyward_nb.providers.far.direct_connection.time", clock := Clock())
    door = DirectConnection(machine.name)
    asked = []

    async def never():
        asked.append(door._ask_limit)
        await asyncio.Event().wait()

    async def ask():
        return machine.values()

    limits = (0.01, 0.02, 0.04)
    door._ask_limit = limits[0]
    for longer in (1, 2, 4):
        for _ in range(2):  # the second one is not asked for
            assert do(door.values(never)) is None
        clock.ahead += 4.5 * longer
        assert do(door.values(never)) is None
        clock.ahead += 1.5 * longer
    assert asked == [2 * each for each in limits]
    door._ask_limit = _LONG
    do(door.values(ask)).close()
    # It is as if nothing had been: the next time in vain shuts it for as short.
    door._tls = None
    door._ask_limit = limits[0]
    assert do(door.values(never)) is None
    clock.ahead += 5.5
    door._ask_limit = _LONG
    do(door.values(ask)).close()
    do(door.close())


def test_an_address_that_an_agent_named_before_is_asked_for_anew_soon(
    machine, monkeypatch, tmp_path
):
    """As after a while in which the agent has let the client's key go."""
    monkeypatch.setattr("skyward_nb.providers.far.direct_connection.time", clock := Clock())
    door = Door(machine)
    do(door.values()).close()
    door._tls = MutualTLS(new_key(), tmp_path)
    assert do(door.values()) is None
    clock.ahead += 6
    do(door.values()).close()
    assert door.asked == 2
    do(door.close())


def test_a_door_is_asked_for_over_the_connection_of_that_time(monkeypatch):
    """One that is made anew, as when Ray's helper is started again, does not shut it."""
    asked = []

    class Line:
        name = "m"

        async def way(self, path, over):
            asked.append((path, over))
            return socket.socket()

    async def values(_door, asking):
        return await asking()

    monkeypatch.setattr(DirectConnection, "values", values)
    made = EngineMachine("p", "f", 0, Line())
    for over in (1, 2):
        made._runtime = f"/run{over}"
        do(made._way("values.sock", over)).close()
    made._store.close()
    assert asked == [("/run1/values.sock", 1), ("/run2/values.sock", 2)]


@pytest.fixture
def doors(tmp_path, monkeypatch):
    """An agent's doors, and all listeners that they have made."""
    made, listeners = DirectListeners(tmp_path, lambda _: None), []

    def noted(hosts=()):
        listeners.extend(found := private_listeners(hosts))
        return found

    monkeypatch.setattr("skyward_nb.node.direct_listeners.private_listeners", noted)
    monkeypatch.setattr("skyward_nb.node.peer_agents.private_listeners", noted)
    made.begin(LOOP.loop)
    made.welcome = lambda: None
    yield made, listeners
    LOOP.loop.call_soon_threadsafe(made.close)
    until(lambda: all(each.fileno() < 0 for each in listeners))


def test_a_door_that_cannot_be_opened_leaves_no_listener(doors, monkeypatch):
    made, listeners = doors

    async def fails(*_args, **_how):
        raise OSError("no room")

    monkeypatch.setattr(LOOP.loop, "create_server", fails)
    with pytest.raises(OSError, match="no room"):
        made.open(AdmitPeers("me", new_key(), is_client=True))
    assert len(listeners) >= 2
    until(lambda: all(each.fileno() < 0 for each in listeners))
    assert not made._opened


@pytest.mark.parametrize("is_late", [False, True], ids=["busy before", "busy in between"])
def test_a_door_whose_client_was_refused_meanwhile_leaves_no_listener(doors, monkeypatch, is_late):
    made, listeners = doors
    monkeypatch.setattr("skyward_nb.node.direct_listeners._OPEN_LIMIT", 0.05)
    goes_on = threading.Event()
    if is_late:
        real = asyncio.Server.start_serving

        async def slow(server):
            await real(server)
            await asyncio.to_thread(goes_on.wait, _LONG)

        monkeypatch.setattr(asyncio.Server, "start_serving", slow)
    else:
        LOOP.loop.call_soon_threadsafe(goes_on.wait, _LONG)
    with pytest.raises(TimeoutError, match="has no time"):
        made.open(AdmitPeers("me", new_key(), is_client=True))
    assert len(listeners) >= 2
    goes_on.set()
    until(lambda: all(each.fileno() < 0 for each in listeners))
    assert not made._opened


# ── the stream ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pair(tmp_path):
    """A socket of this side, and the TLS socket at the other end of its stream."""
    tls = MutualTLS(new_key(), tmp_path)
    ours, theirs = socket.socketpair()
    found = []
    welcoming = threading.Thread(target=lambda: found.append(tls.welcome(theirs)))
    welcoming.start()
    near = do(carried_by_tls(ours, tls, _LONG))
    welcoming.join()
    near.settimeout(_LONG)
    found[0].settimeout(_LONG)
    yield near, found[0]
    near.close()
    found[0].close()


def all_of(connection, size):
    data = bytearray()
    while len(data) < size and (more := connection.recv(1 << 18)):
        data += more
    return bytes(data)


def test_much_goes_both_ways_at_the_pace_of_the_slower_end(pair, no_leaks):
    near, far = pair
    there, back = os.urandom(9 << 20), os.urandom(9 << 20)
    for sender, reader, data in ((near, far, there), (far, near, back)):
        sending = threading.Thread(target=sender.sendall, args=(data,))
        sending.start()
        sending.join(0.5)
        assert sending.is_alive()  # nobody has read: not all of it is kept on the way
        assert all_of(reader, len(data)) == data
        sending.join()


def test_what_was_said_last_arrives_before_the_end(pair):
    near, far = pair
    near.sendall(b"last words")
    near.shutdown(socket.SHUT_WR)
    assert all_of(far, 100) == b"last words"
    far.unwrap().close()
    assert near.recv(1) == b""


def test_an_end_that_is_cut_is_the_end_of_this_side(pair):
    near, far = pair
    far.close()
    with contextlib.suppress(ConnectionError):
        assert near.recv(1) == b""


def test_who_waits_for_a_value_learns_that_its_machine_is_cut_off():
    """A value on its way would wait for good: only commands have beats."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = do(DirectConnection("a")._connected(listener.getsockname(), _LONG))
        with made:
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            asks = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            idle, pause, count = (made.getsockopt(socket.IPPROTO_TCP, each) for each in asks)
            assert idle + pause * count == 30, "seconds until Linux gives it up"
