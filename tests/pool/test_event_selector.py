"""What comes in at once with a line that is cut is neither lost nor told twice."""

from __future__ import annotations

import signal
import socket

import pytest

from skyward_nb.pool.event_selector import EventSelector, SigInt
from skyward_nb.pool.link import Link, LinkLost
from skyward_nb.protocol.events import Hello, Output
from skyward_nb.protocol.frames import frame
from skyward_nb.protocol.message_parts import Client

CLIENT = Client(key="k", pid=1, host="here", since=0.0)


@pytest.fixture
def board():
    made = EventSelector()
    yield made
    made.close()


@pytest.fixture
def line(board):
    """Makes links that the board listens to, and the agents' ends of them."""
    opened = []

    def make():
        ours, theirs = socket.socketpair()
        link = Link("m", CLIENT, 1.0)
        link.open(ours)
        theirs.sendall(frame(Hello(pid=1, python="3.11")))
        link.read()
        board.add(link)
        opened.append((link, theirs))
        return link, theirs

    yield make
    for link, theirs in opened:
        link.close()
        theirs.close()


def read(board):
    return board.read(board.ready(1))


def test_an_interrupt_is_not_lost_with_a_line(board, line):
    link, agent = line()
    with board.interrupts():
        signal.raise_signal(signal.SIGINT)
    agent.close()
    with pytest.raises(LinkLost):
        read(board)
    board.remove(link)
    (event,) = read(board)
    assert isinstance(event, SigInt)


def test_what_one_machine_says_is_not_lost_with_the_line_to_another(board, line):
    _, talks = line()
    _, silent = line()
    told = Output(0, "stdout", "x")
    talks.sendall(frame(told))
    silent.close()
    with pytest.raises(LinkLost) as lost:
        read(board)
    assert [*lost.value.found, *([] if lost.value.found else read(board))] == [told]


def test_what_came_before_what_is_no_message_is_told_and_counted(line):
    link, agent = line()
    told = Output(0, "stdout", "x")
    agent.sendall(frame(told) + b"\0\0\0\1\xc1")
    with pytest.raises(LinkLost) as lost:
        link.read()
    assert lost.value.found == [told]
    assert link.offset == len(frame(told))
