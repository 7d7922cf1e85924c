"""Interrupts of a run, and the end of a wait that nobody interrupted: in this process, by real signals."""

from __future__ import annotations

import select
import signal
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from waiting import until

from skyward_nb.node.mailbox import Mailbox
from skyward_nb.protocol.commands import Gather, Interrupt, KeepNames, Resume
from skyward_nb.protocol.frames import frame


@pytest.fixture
def mailbox(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    numbers = (signal.SIGINT, signal.SIGURG)
    before = [signal.getsignal(number) for number in numbers]
    here, there = socket.socketpair()
    with here, there:
        made = Mailbox(here, SimpleNamespace(sending=False, interrupted=False))
        made.send = lambda command: there.sendall(frame(command))
        made.interrupt = lambda run: made.send(Interrupt(run, (0,)))
        yield made
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_a_run_that_is_freed_raises_once_however_many_signals_come(mailbox):
    mailbox.open(7)
    signal.raise_signal(signal.SIGURG)  # nothing has come
    mailbox.free(7)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGURG)
    mailbox.close()
    assert not mailbox.was_interrupted(7)


def test_a_run_that_was_freed_as_it_ended_does_not_stop_the_next_one(mailbox):
    mailbox.open(7)
    mailbox.free(7)
    mailbox.close()
    mailbox.open(8)
    signal.raise_signal(signal.SIGURG)
    mailbox.close()


def test_an_interrupt_that_was_lost_in_a_finalizer_comes_again(mailbox):
    """What raises in `__del__`, or in the callback of a weak reference, ends there."""

    class Bound:
        def __del__(self):
            mailbox.interrupt(7)
            signal.raise_signal(signal.SIGINT)

    mailbox.open(7)
    bound = Bound()
    with pytest.raises(KeyboardInterrupt):
        del bound
        time.sleep(60)
    mailbox.close()
    assert mailbox.was_interrupted(7)


def test_what_else_cannot_be_raised_is_told_as_python_does(mailbox):
    class Broken:
        def __init__(self, error):
            self.error = error

        def __del__(self):
            raise self.error

    told = []
    mailbox._unraisable = lambda what: told.append(what.exc_type)
    mailbox.open(7)
    for error in (LookupError, KeyboardInterrupt):
        broken = Broken(error)
        del broken
    mailbox.close()
    assert told == [LookupError, KeyboardInterrupt], "nobody interrupted it"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_seen", [True, False])
def test_what_a_signal_finds_is_not_waited_for(mailbox, monkeypatch, is_seen):
    """A second signal of the run before comes late: just after the rank saw that there is a command, or that there is none."""
    mailbox.open(7)
    look, looks = select.select, []

    def signalled(*args):
        if looks:
            return look(*args)
        looks.append(args)
        found = ([], [], [])
        mailbox.send(Gather(7, (0,)))
        if is_seen:
            found = look(*args)
        signal.raise_signal(signal.SIGURG)
        return found

    monkeypatch.setattr(select, "select", signalled)
    assert mailbox.next_gather(7) == Gather(7, (0,))
    mailbox.close()


@pytest.mark.timeout(60)
def test_a_thread_that_outlives_its_run_takes_nothing_of_the_next_one(mailbox):
    """Such as one that goes through a generator of the notebook's ahead of time. Large commands come in many parts."""
    ended = []

    def ahead():
        with pytest.raises(ConnectionError, match="run 7 is over"):
            mailbox.receive(7, Resume)
        ended.append(True)

    mailbox.open(7)
    thread = threading.Thread(target=ahead)
    thread.start()
    until(lambda: mailbox._receiving)
    commands = [KeepNames("name" * 50_000 * (number % 2), (0,), number) for number in range(20)]
    sending = threading.Thread(target=lambda: [*map(mailbox.send, commands)])
    mailbox.close()
    sending.start()
    assert [mailbox.next() for _ in commands] == commands
    for each in (thread, sending):
        each.join(30)
    assert ended


@pytest.mark.timeout(60)
def test_a_thread_that_outlives_its_run_is_answered_in_a_later_one(mailbox):
    """The client answers, also for a run that is over, by the way of one that goes on."""
    heard = []

    def receive():
        heard.append(mailbox.receive(7, Resume))
        with pytest.raises(ConnectionError, match="run 7 is over"):
            mailbox.receive(7, Resume)

    mailbox.open(8)
    thread = threading.Thread(target=receive)
    thread.start()
    until(lambda: mailbox._receiving)
    mailbox.send(Resume(7, (0,), 3))
    until(lambda: heard)
    mailbox.close()
    thread.join(30)
    assert heard == [Resume(7, (0,), 3)]


def test_a_signal_amid_the_reading_of_commands_loses_none_and_raises_once_they_are_read(mailbox):
    """Of the run it is for; the message of the interrupt may be what is being read."""
    fed = mailbox._frames.feed

    def signalled(data):
        signal.raise_signal(signal.SIGURG)
        return fed(data)

    mailbox._frames.feed = signalled
    mailbox.open(7)
    mailbox.interrupt(7)
    mailbox.send(Gather(7, (0,)))
    with pytest.raises(KeyboardInterrupt):
        mailbox.next_gather(7)
    mailbox.close()
    assert mailbox.next() == Gather(7, (0,))


def test_names_are_kept_after_a_result_that_is_gathered(mailbox):
    keep, gather = KeepNames("key", (0,), 7), Gather(7, (0,))
    for command in (keep, gather):
        mailbox.send(command)
    assert mailbox.next_gather(7) == gather
    assert mailbox.next() == keep
