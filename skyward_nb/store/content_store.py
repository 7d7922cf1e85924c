"""The interface of a machine's content store, on this machine or another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from skyward_nb.store.blobs import Buffer


class AgentGone(Exception):
    """A machine's agent has ended: there is nothing to connect to any more."""


def no_tick() -> None:
    """Do nothing meanwhile."""


class ContentStore(Protocol):
    """Values of one machine, or of several, by their digests; safe from any thread.

    `tick` is called now and then while something takes long; what it raises ends that.
    """

    def put(self, digest: str, parts: Sequence[Buffer], tick: Callable[[], None] = no_tick) -> bool:
        """Have a value there, all or nothing; whether it was not there before.

        Raises OSError (ENOSPC) where there is no room, and `CorruptValue` where its bytes are others.
        """
        ...

    def on_disk(self, digest: str) -> bool:
        """Whether a value that was put had to go to disk."""
        ...

    def fetch(self, digests: Collection[str], tick: Callable[[], None] = no_tick) -> None:
        """Fetch values so that `map` needs no line; values that cannot be fetched are left out."""
        ...

    def map(self, digest: str) -> memoryview:
        """A value's bytes, private to the caller; raises `CorruptValue` where none has that digest."""
        ...

    def drop(self, digests: Collection[str]) -> None:
        """Forget these values; memory already mapped stays valid."""
        ...

    def trim(self, needed: Collection[str]) -> object:
        """Forget the least recently used of the values not `needed`, beyond the spare room."""
        ...
