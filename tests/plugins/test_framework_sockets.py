"""A framework's connections: what was opened meanwhile is cut, and nothing else."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

import pytest
from other_user import needs_another_user, other_user_runs
from waiting import until

from skyward_nb.plugins import framework_sockets as module
from skyward_nb.plugins.framework_sockets import FrameworkSockets, past_proxies


@pytest.fixture
def pair():
    """A way to make connections: the listening socket and both ends."""
    with contextlib.ExitStack() as opened:

        def make() -> tuple[socket.socket, socket.socket, socket.socket]:
            server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            one = opened.enter_context(socket.create_connection(server.getsockname()))
            other = opened.enter_context(server.accept()[0])
            for each in (one, other):
                each.settimeout(60)
            return server, one, other

        yield make


def is_cut(one: socket.socket) -> bool:
    try:
        one.sendall(b"x")
    except BrokenPipeError:
        return True
    return False


def test_nothing_is_cut_where_nothing_was_opened(pair):
    _, one, other = pair()
    assert not FrameworkSockets().cut()
    assert not is_cut(one)
    assert not is_cut(other)


def test_what_was_opened_meanwhile_is_cut_and_what_listens_is_not(pair):
    before, wires = pair(), FrameworkSockets()
    server, one, other = wires.during(pair)
    after = pair()
    waiting = threading.Thread(target=lambda: one.recv(1))
    waiting.start()
    assert wires.cut()
    waiting.join(60)
    assert not waiting.is_alive()
    assert is_cut(one)
    assert is_cut(other)
    assert not any(is_cut(each) for each in (*before[1:], *after[1:]))
    with socket.create_connection(server.getsockname()):
        server.accept()[0].close()
    assert not wires.cut(), "it has been cut"


def test_what_came_later_to_a_socket_of_its_own_is_cut(pair):
    wires = FrameworkSockets()
    server, *_ = wires.during(pair)
    with socket.create_connection(server.getsockname()) as late, server.accept()[0] as accepted:
        wires.cut()
        assert is_cut(accepted)
        late.settimeout(60)
        assert late.recv(1) == b""


def test_the_store_is_known_by_its_port(pair):
    wires = FrameworkSockets()
    server, one, other = pair()
    wires.forget(server.getsockname()[1])
    assert wires.cut()
    assert is_cut(one)
    assert is_cut(other)
    wires.forget()
    _, one, _ = pair()
    assert not wires.cut()
    assert not is_cut(one)


def test_one_that_is_bound_and_not_yet_connected_can_still_listen(pair):
    wires = FrameworkSockets()

    def bound() -> socket.socket:
        made = socket.socket()
        made.bind(("127.0.0.1", 0))
        return made

    with wires.during(bound) as server:
        wires.cut()
        server.listen()
        with socket.create_connection(server.getsockname()) as one, server.accept()[0] as other:
            one.sendall(b"well")
            assert other.recv(4) == b"well"


def test_what_is_being_opened_is_cut_too(pair):
    wires = FrameworkSockets()

    def wait() -> bytes:
        _, one, _ = pair()
        timer = threading.Timer(0.1, wires.cut)
        timer.start()
        try:
            return one.recv(1)
        finally:
            timer.join()

    assert wires.during(wait) == b""


def test_an_attempt_that_fails_leaves_nothing_behind(pair):
    wires = FrameworkSockets()

    def fail() -> None:
        pair()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wires.during(fail)
    _, one, _ = pair()
    wires.cut()
    assert not is_cut(one), "this came later"


def test_one_within_another(pair):
    wires = FrameworkSockets()
    made = wires.during(lambda: (pair(), wires.during(pair), pair()))
    wires.cut()
    assert all(is_cut(each) for _, one, other in made for each in (one, other))


def duplicated(monkeypatch) -> list[socket.socket]:
    """The duplicates that are made from now on; of each those before must be closed."""
    made: list[socket.socket] = []
    duplicate = module._duplicate

    def one_more(inode: int, descriptor: int) -> socket.socket:
        assert all(each.fileno() < 0 for each in made)
        made.append(duplicate(inode, descriptor))
        return made[-1]

    monkeypatch.setattr(module, "_duplicate", one_more)
    return made


def test_a_process_with_as_many_sockets_as_it_may_have_is_cut_whole(pair, monkeypatch):
    """A duplicate of all of them at once is more than there may be."""
    wires = FrameworkSockets()
    many = wires.during(lambda: [pair() for _ in range(5)])
    assert len(duplicated(monkeypatch)) == 0
    assert wires.cut()
    assert all(is_cut(each) for _, one, other in many for each in (one, other))


@pytest.mark.parametrize("becomes", ["socket", "file"])
def test_a_descriptor_that_becomes_anothers_meanwhile_is_left_alone(pair, monkeypatch, becomes):
    wires = FrameworkSockets()
    _, users, other = pair()
    _, ours, peer = wires.during(pair)
    look = module._sockets

    def look_and_lose_it():
        found = look()
        # As native threads do: they close a connection, and its number is another's at once.
        with open(os.devnull) as file:
            os.dup2((users if becomes == "socket" else file).fileno(), ours.fileno())
        return found

    monkeypatch.setattr(module, "_sockets", look_and_lose_it)
    duplicates = duplicated(monkeypatch)
    assert wires.cut(), "the other end is there"
    assert duplicates and all(each.fileno() < 0 for each in duplicates)
    assert is_cut(peer)
    assert not is_cut(users)
    assert not is_cut(other)


@needs_another_user
def test_what_another_user_has_connected_is_cut_and_nothing_else(pair):
    wires = FrameworkSockets()
    with contextlib.ExitStack() as held:

        def forms():
            server, one, other = pair()
            code = "to = socket.create_connection(sys.argv[1:3]); print(1, flush=True); to.recv(1)"
            running = held.enter_context(other_user_runs(code, *server.getsockname()))
            assert [running.stdout.readline() for _ in range(2)] == ["begins\n", "1\n"]
            return server, one, other, held.enter_context(server.accept()[0])

        server, one, other, accepted = wires.during(forms)
        assert is_cut(accepted)
        assert not is_cut(one) and not is_cut(other)
        # One that comes later is cut by the next look.
        code = "to = socket.create_connection(sys.argv[1:3]); print(1, flush=True); to.recv(1)"
        running = held.enter_context(other_user_runs(code, *server.getsockname()))
        assert [running.stdout.readline() for _ in range(2)] == ["begins\n", "1\n"]
        late = held.enter_context(server.accept()[0])
        wires.forget()  # another generation, in which it listens as before
        wires.cut_other_users()
        assert is_cut(late)
        assert not is_cut(one) and not is_cut(other)


@needs_another_user
def test_a_listener_of_another_user_that_was_connected_to_is_cut(pair):
    wires = FrameworkSockets()
    code = (
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "print(server.getsockname()[1], flush=True)\nheld = server.accept()\nwhile held[0].recv(1): pass"
    )
    with other_user_runs(code) as running:
        assert running.stdout.readline() == "begins\n"
        port = int(running.stdout.readline())
        with wires.during(lambda: socket.create_connection(("127.0.0.1", port), 60)) as one:
            # Accepted or not by then, the listener's user is who is at the other end.
            until(lambda: wires.cut_other_users() or is_cut(one))


@pytest.mark.parametrize(
    ("before", "direct"),
    [
        ({}, None),
        ({"no_proxy": "example.org"}, None),
        ({"https_proxy": "http://p"}, "127.0.0.1,10.0.0.2"),
        ({"grpc_proxy": "p", "no_proxy": "example.org"}, "example.org,127.0.0.1,10.0.0.2"),
        ({"http_proxy": "p", "no_proxy": "x", "no_grpc_proxy": "y"}, "y,127.0.0.1,10.0.0.2"),
    ],
)
def test_peers_are_reached_past_proxies(monkeypatch, before, direct):
    monkeypatch.setattr(os, "environ", environ := dict(before))
    for _ in range(2):
        past_proxies(["127.0.0.1", "10.0.0.2", "127.0.0.1"])
        assert environ.get("no_grpc_proxy") == direct
