"""The content stores of several machines as one: what is put is on all of them, what is mapped on one."""

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
        """Have a value on all machines, or, where it was on none, on none; whether it was not on one.

        Raises what putting it on one of them raises.
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
        """Whether a value that was put had to go to disk, on one of them."""
        return any(store.on_disk(digest) for store in self._stores)

    def fetch(self, digests: Collection[str], tick: Callable[[], None] = no_tick) -> None:
        """Bring values near from whichever machine has them."""
        for store in self._stores:
            store.fetch(digests, tick)

    def map(self, digest: str) -> memoryview:
        """A value's bytes, from the first machine that has it; raises `CorruptValue` where none does."""
        for store in self._stores[:-1]:
            with contextlib.suppress(CorruptValue):
                return store.map(digest)
        return self._stores[-1].map(digest)

    def drop(self, digests: Collection[str]) -> None:
        """Forget these values on all of them."""
        for store in self._stores:
            store.drop(digests)

    def trim(self, needed: Collection[str]) -> None:
        """Forget on each what is not `needed`, beyond its spare room."""
        for store in self._stores:
            store.trim(needed)
