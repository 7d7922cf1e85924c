"""The values between a generator on this rank and its caller, while it runs."""

from __future__ import annotations

import os
import threading
from collections import defaultdict

from skyward_nb.node.mailbox import Mailbox
from skyward_nb.node.uplink import Uplink
from skyward_nb.pickling.payload import pack, pack_plain, unpack
from skyward_nb.protocol.commands import FeedValue, Resume
from skyward_nb.protocol.events import ValueWanted, Yielded
from skyward_nb.runtime import event_sink
from skyward_nb.runtime.remote_generators import CallerAnswer
from skyward_nb.store.blobs import BlobStore

KEYBOARD = -1
"""The number of the stream of typed lines."""


class GeneratorChannel:
    """A rank's `runtime.remote_generators.CallerChannel`."""

    def __init__(self, rank: int, uplink: Uplink, mailbox: Mailbox, store: BlobStore) -> None:
        self._rank = rank
        self._uplink = uplink
        self._mailbox = mailbox
        self._store = store
        self.only_values: bool = False
        """Whether the caller takes plain values alone."""
        self._given = 0
        self._turns: defaultdict[tuple[int, int], threading.Lock] = defaultdict(threading.Lock)
        """By run and stream: its value lies in the store until the next one is asked for."""
        os.register_at_fork(after_in_child=self._turns.clear)

    def give(self, value: object) -> None:
        """Send a value that was yielded; raises `PayloadError`."""
        take_apart, run = pack_plain if self.only_values else pack, event_sink.run()
        self._given += 1
        # The caller drops it once it has it: an equal one, of any rank, lies there by itself.
        salt = run, self._rank, self._given
        packed = take_apart("the value that was yielded", value, salt=salt).stow(self._store)
        self._uplink.emit(Yielded(run, self._rank, packed))

    def is_answered(self) -> bool:
        """Whether there is an answer."""
        return self._mailbox.has(event_sink.run(), Resume)

    def answer(self) -> CallerAnswer:
        """Wait for the next answer."""
        return self._mailbox.receive(event_sink.run(), Resume)

    def sent(self, answer: CallerAnswer) -> object:
        """The value that an answer sends into the generator; raises the exception that it throws into it."""
        assert isinstance(answer, Resume)
        if answer.thrown is not None:
            raise unpack(answer.thrown, self._store)
        return None if answer.sent is None else unpack(answer.sent, self._store)

    def line(self, prompt: str) -> str | None:
        """A line that a person types at the caller's; None where nobody can."""
        fed = self._fed(KEYBOARD, prompt or " ")
        return None if fed is None else str(fed[0])

    def ask(self, stream: int) -> object:
        """The next value of a generator that stayed at home; raises StopIteration at its end.

        Threads may ask for values of several at once, and of one in turn: each has its own.
        """
        fed = self._fed(stream)
        if fed is None:
            raise StopIteration
        return fed[0]

    def _fed(self, stream: int, prompt: str = "") -> tuple[object] | None:
        """What comes from the caller, or None; one thread after another."""
        run = event_sink.run()
        for old in [key for key in tuple(self._turns) if key[0] < run]:
            self._turns.pop(old, None)
        with self._turns[run, stream]:
            self._uplink.emit(ValueWanted(run, self._rank, stream, prompt))
            fed = self._mailbox.receive(run, FeedValue, lambda each: each.stream == stream)
            return None if fed.value is None else (unpack(fed.value, self._store),)
