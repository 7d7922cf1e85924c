"""Interrupts of a run, and the end of a wait that nobody interrupted: in this process, by real signals."""

from __future__ import annotations

import signal
import socket
from types import SimpleNamespace

import pytest

from skyward_nb.node.mailbox import Mailbox


@pytest.fixture
def mailbox():
    numbers = (signal.SIGINT, signal.SIGURG)
    before = [signal.getsignal(number) for number in numbers]
    here, there = socket.socketpair()
    with here, there:
        yield Mailbox(here, SimpleNamespace(sending=False, interrupted=False))
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
