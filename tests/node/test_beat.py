"""A client's line whose carrier falls silent is hung up on."""

import socket
import time

import pytest
from leaks import leaves_nothing
from pools import found, start

from skyward_nb.protocol.commands import Attach, Heartbeat
from skyward_nb.protocol.events import Hello
from skyward_nb.protocol.frames import event_frames, frame
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.folders import runtime_root


@pytest.fixture(scope="module")
def left():
    """A pool that its client has left."""
    with leaves_nothing():
        pool = start(nodes=1)
        pool.leave()
        yield pool
        other = found(pool)
        other.attach(lambda _: None)
        other.close()


@pytest.fixture
def line(left):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(runtime_root() / left.pool_id / "agent.sock"))
        client = Client(key="k", pid=1, host="h", since=0.0, notebook="", program="")
        connection.sendall(frame(Attach(client)))
        frames = event_frames()
        while not any(isinstance(each, Hello) for each in frames.feed(connection.recv(1 << 16))):
            pass
        yield connection


def test_a_line_whose_beats_stop_is_hung_up_on(line):
    line.sendall(frame(Heartbeat(0.2)))
    assert line.recv(100) == b""


def test_a_line_goes_on_as_long_as_there_are_beats(line):
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        line.sendall(frame(Heartbeat(10.0)))
        time.sleep(0.05)
    line.sendall(frame(Heartbeat(0.1)))
    assert line.recv(100) == b""


def test_a_large_word_that_takes_its_time_is_as_good_as_beats(line):
    # Longer than a busy machine holds this process up between two of these.
    line.sendall(frame(Heartbeat(4.0)) + b"\0\0\0\x64")
    for _ in range(10):
        time.sleep(0.45)
        line.sendall(b"x")
    line.settimeout(0.2)
    with pytest.raises(TimeoutError):
        line.recv(100)
    line.settimeout(60)
    assert line.recv(100) == b""


def test_a_line_without_beats_is_not_waited_for(line):
    line.settimeout(0.5)
    with pytest.raises(TimeoutError):
        line.recv(100)
