"""The end of a line to an agent that is slow to read, over TCP on loopback."""

import socket
import threading
import time

import pytest

from skyward_nb.pool.link import Link
from skyward_nb.protocol.commands import RunSeen, UseEnvironment
from skyward_nb.protocol.events import Hello, Pong
from skyward_nb.protocol.frames import command_frames, frame
from skyward_nb.protocol.message_parts import Client

CLIENT = Client(key="k", pid=1, host="here", since=0.0)


@pytest.fixture
def line():
    """A link that is greeted, and the agent's end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    link = Link("m", CLIENT, 60.0)
    link.open(near)
    far.sendall(frame(Hello(pid=1, python="")))
    while not link.is_greeted:
        link.read()
    yield link, far
    link.close()
    far.close()


def heard(far):
    """What an agent reads that comes to it late, and is writing meanwhile."""
    far.sendall(frame(Pong()) * 1000)
    time.sleep(0.05)
    frames, found = command_frames(), []
    while data := far.recv(1 << 16):
        found += frames.feed(data)
    return found


def test_what_is_said_last_is_read_by_an_agent_that_writes_meanwhile(line):
    link, far = line
    found = []
    far.sendall(frame(Pong()))
    agent = threading.Thread(target=lambda: (found.extend(heard(far)), far.close()))
    link.send(RunSeen(3, 77))
    agent.start()
    link.say_no_more()
    link.await_end(time.monotonic() + 60)
    link.close()
    agent.join()
    assert found[-1] == RunSeen(3, 77)


def test_an_agent_that_does_not_answer_is_left_all_the_same(line):
    link, _ = line
    link.say_no_more()
    began = time.monotonic()
    link.await_end(began + 0.05)
    assert time.monotonic() - began >= 0.05
    link.close()
    assert not link.is_open


def test_an_environment_that_the_agent_is_told_of_again_is_that_of_its_ranks():
    """The agent says what it knows of, and the order is still on its way."""
    link = Link("m", CLIENT, 60.0)
    first, second = UseEnvironment("/first"), UseEnvironment("/second", "/packages")

    def greeted(received, present):
        near, far = socket.socketpair()
        link.open(near)
        far.sendall(frame(Hello(pid=1, python="3", received=received, rank_python=present)))
        link.read()
        far.close()
        return link.environment

    assert greeted(0, "/own") == UseEnvironment("/own")
    link.send_later(first)
    link.send_later(RunSeen(1, 0))
    assert greeted(0, "/own") == first
    link.send_later(second)
    assert greeted(1, "/first") == second
    assert greeted(3, "/second") == UseEnvironment("/second")
    link.close()
