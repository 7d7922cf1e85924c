"""The content stores of a pool's machines, by the ranks on them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence

from skyward_nb.pickling.payload import Bundle
from skyward_nb.protocol.events import Phase
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.providers.provider_protocol import Machine
from skyward_nb.store.broadcast import BroadcastStores, BroadcastTree
from skyward_nb.store.content_store import ContentStore, no_tick
from skyward_nb.store.private_memory import PrivateMemory
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.store.several_stores import SeveralStores
from skyward_nb.system.concurrency import run_concurrently
from skyward_nb.words.errors import spell_size

TELL_FROM = 8_000_000
"""Bytes that take long enough to be reported."""
_TELL = 0.5


class MachineStores:
    """The stores of all machines; `is_here`: machines share the memory of this one, so nothing travels.

    `homes` are the addresses at which machines reach one another, by name. A machine that cannot be
    reached is tried again for `patience` seconds.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        slots: int,
        homes: Mapping[str, str],
        patience: float,
        *,
        is_here: bool,
    ) -> None:
        self._slots = slots
        self._is_here = is_here
        self._patience = patience
        self._where: tuple[Sequence[Machine], Mapping[str, str]] | None = None
        self.are_on(machines, homes)
        self._lock = threading.Lock()
        self._kept: Counter[str] = Counter()
        """Digests of calls that have not run yet, with counts."""
        self._held: dict[str, PrivateMemory] = {}
        """Those of them that wait here until their machines are known."""

    def are_on(self, machines: Sequence[Machine], homes: Mapping[str, str]) -> None:
        """Use the stores of these machines from now on; waiting calls still wait."""
        if (machines, homes) == self._where:
            return
        self._where = machines, homes
        self._stores: list[ContentStore] = [machine.store() for machine in machines]
        self._at = {node: at for at, machine in enumerate(machines) for node in machine.nodes}
        self._remote = [store for store in self._stores if isinstance(store, RemoteStore)]
        for store in self._remote:
            store.patience = self._patience
        self._fan = BroadcastTree(self._remote, homes)
        self._views: dict[frozenset[int], ContentStore] = {}

    @property
    def all(self) -> ContentStore:
        """The machines' stores as one."""
        return self.of(None)

    def of(self, ranks: Collection[int] | None) -> ContentStore:
        """The store of these ranks (None: all) for their values and results."""
        every = range(len(self._stores))
        some = every if ranks is None else {self._at[rank // self._slots] for rank in ranks}
        which = frozenset(some)
        if len(which) == 1:
            return self._stores[min(which)]
        if which not in self._views:
            stores = [self._stores[at] for at in sorted(which)]
            remote = [store for store in stores if isinstance(store, RemoteStore)]
            are_remote = len(remote) == len(stores)
            view = BroadcastStores(remote, self._fan) if are_remote else SeveralStores(stores)
            self._views[which] = view
        return self._views[which]

    def elsewhere(self, ranks: Collection[int]) -> dict[int, RemoteStore]:
        """The stores of these ranks' machines, but for this one, by the first of their nodes."""
        found: dict[int, RemoteStore] = {}
        for at in sorted({self._at[rank // self._slots] for rank in ranks}):
            store = self._stores[at]
            if isinstance(store, RemoteStore):
                found[min(node for node, place in self._at.items() if place == at)] = store
        return found

    def fetch(self, values: Mapping[int, Packed], tick: Callable[[], None] = no_tick) -> None:
        """Bring results of ranks here, from all machines at once."""
        by_store: dict[ContentStore, set[str]] = {}
        seen: set[str] = set()
        for rank, each in values.items():
            if each.data is None and each.digest not in seen:
                seen.add(each.digest)
                by_store.setdefault(self.of((rank,)), set()).add(each.digest)
        works = [
            (lambda tick, store=store, digests=digests: store.fetch(digests, tick))
            for store, digests in by_store.items()
        ]
        if works:
            run_concurrently(works, tick)

    @contextlib.contextmanager
    def telling(
        self, text: str, size: int, watch: Callable[[Phase | None], None]
    ) -> Generator[Callable[[], None]]:
        """A tick for a transfer of so many bytes; `watch` gets `text` and the progress, but of large ones only."""
        if size <= TELL_FROM:
            yield lambda: watch(None)
            return
        began = sum(store.moved for store in self._remote)
        again = time.monotonic() + _TELL
        watch(Phase(text))

        def tick() -> None:
            nonlocal again
            if self._remote and time.monotonic() > again:
                again = time.monotonic() + _TELL
                moved = sum(store.moved for store in self._remote) - began
                far = f"; {spell_size(moved)} went over the line so far" if moved else ""
                watch(Phase(f"{text}{far}"))
            watch(None)

        yield tick
        watch(Phase(""))

    # ── calls that wait ─────────────────────────────────────────────────────────────────

    @property
    def kept(self) -> Counter[str]:
        """Digests of calls that have not run yet."""
        with self._lock:
            return +self._kept

    def hold(self, call: Bundle) -> Packed:
        """Keep a call as it is now, until `let_go`; raises OSError if there is no room."""
        if not call.is_stowed:
            return call.stowed(self.all)
        self._keep(call)
        try:
            if self._is_here:
                return call.stow(self.all)
            with self._lock:
                if call.digest not in self._held:
                    self._held[call.digest] = _copied(call)
        except BaseException:
            self.let_go(call)
            raise
        return Packed(call.digest, call.size)

    def send(self, call: Bundle, ranks: Collection[int], tick: Callable[[], None]) -> Packed:
        """Put a call, as it was held, into the store of these ranks; raises OSError, `CorruptValue`."""
        store = self.of(ranks)
        with self._lock:
            held = self._held.get(call.digest)
        if held is None:
            return call.stow(store, tick)
        store.put(call.digest, [held.map()], tick)
        return call.stowed(store)

    def _keep(self, call: Bundle) -> None:
        if call.is_stowed:
            with self._lock:
                self._kept[call.digest] += 1

    @contextlib.contextmanager
    def keeping(self, call: Bundle) -> Generator[None]:
        """While inside, the call's values in stores count as needed."""
        self._keep(call)
        try:
            yield
        finally:
            self.let_go(call)

    def let_go(self, call: Bundle) -> None:
        """Release a held call that has run, or never will."""
        if not call.is_stowed:
            return
        with self._lock:
            self._kept[call.digest] -= 1
            held = None if self._kept[call.digest] > 0 else self._held.pop(call.digest, None)
        if held is not None:
            held.close()

    # ── removal ─────────────────────────────────────────────────────────────────────────

    def drop(self, found: Mapping[int, Collection[str]], needed: Collection[str]) -> None:
        """Drop results of these ranks, unless they are needed."""
        by_store: dict[ContentStore, set[str]] = {}
        for rank, digests in found.items():
            by_store.setdefault(self.of((rank,)), set()).update(digests)
        for store, digests in by_store.items():
            if gone := digests.difference(needed):
                store.drop(gone)

    def close(self) -> None:
        """Release all held calls."""
        with self._lock:
            held, self._held = self._held, {}
        for each in held.values():
            each.close()


def _copied(call: Bundle) -> PrivateMemory:
    room = PrivateMemory(call.size)
    at = 0
    for part in call.parts:
        view = memoryview(part).cast("B")
        room.write(at, view)
        at += view.nbytes
    return room
