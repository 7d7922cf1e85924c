"""The content stores of several machines as one: `put` goes to all of them, `map` to one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence

from skyward_nb.store.blobs import Buffer, CorruptValue
from skyward_nb.store.content_store import ContentStore, no_tick
from skyward_nb.system.concurrency import run_concurrently


class SeveralStores:
    """A `ContentStore` of machines side by side."""

    def __init__(self, stores: Sequence[ContentStore]) -> None:
        self._stores = tuple(stores)

    def put(self, digest: str, parts: Sequence[Buffer], tick: Callable[[], None] = no_tick) -> bool:
        """Put a value on all machines, and undo that if one fails; returns whether any lacked it.

        Raises the errors of each store.
        """
        new: list[ContentStore] = []

        def put_on(store: ContentStore, tick: Callable[[], None]) -> None:
            if store.put(digest, parts, tick):
                new.append(store)

        try:
            run_concurrently(
                [(lambda tick, s=store: put_on(s, tick)) for store in self._stores], tick
            )
        except BaseException:
            for store in new:
                store.drop([digest])
            raise
        return bool(new)

    def on_disk(self, digest: str) -> bool:
        """Whether a value is on disk, on one of them."""
        return any(store.on_disk(digest) for store in self._stores)

    def fetch(self, digests: Collection[str], tick: Callable[[], None] = no_tick) -> None:
        """Fetch values from any machine that has them."""
        for store in self._stores:
            store.fetch(digests, tick)

    def map(self, digest: str) -> memoryview:
        """A value's bytes, from the first machine that has it; raises `CorruptValue` if none has."""
        for store in self._stores[:-1]:
            with contextlib.suppress(CorruptValue):
                return store.map(digest)
        return self._stores[-1].map(digest)

    def drop(self, digests: Collection[str]) -> None:
        """Drop these values on all of them."""
        for store in self._stores:
            store.drop(digests)

    def trim(self, needed: Collection[str]) -> None:
        """Drop values that are not `needed` on each, beyond its spare room."""
        for store in self._stores:
            store.trim(needed)
