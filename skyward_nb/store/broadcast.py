"""A value to several machines: once over the line to one of them, and from there on in a tree.

The machines meet at private addresses with a key of their own. Where one cannot be reached by the
others, it gets values over its own line, as small ones always are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from skyward_nb.store.blobs import Buffer
from skyward_nb.store.content_store import no_tick
from skyward_nb.store.pool_key import new_key
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.store.several_stores import SeveralStores
from skyward_nb.store.value_messages import Address, SpreadBranch
from skyward_nb.store.value_source import ValueParts
from skyward_nb.system.concurrency import run_concurrently

FROM = 1 << 20
"""Bytes from which on a value goes by the tree."""
_WAYS = 2
_LOST_FOR = 60.0
"""Seconds after which it is tried again whether others reach a machine that they did not."""


class BroadcastTree:
    """The machines of one pool, and where they can be reached by each other.

    `homes` are, by name, the addresses at which they have met; without any, all private ones. "" is
    one that others do not reach.
    """

    def __init__(self, stores: Sequence[RemoteStore], homes: Mapping[str, str]) -> None:
        self._stores = tuple(stores)
        self._homes = homes
        self._lock = threading.Lock()
        self._met: dict[str, tuple[Address, ...]] | None = None
        self._lost: dict[str, float] = {}
        """Until when machines count as not to be reached by others."""

    def addresses(self, tick: Callable[[], None]) -> dict[str, tuple[Address, ...]]:
        """By name, where each machine is reached by the others; they meet when it is first asked."""
        with self._lock:
            if self._met is None:
                self._met = self._meet(tick)
            now = time.monotonic()
            lost = {name for name, until in self._lost.items() if until > now}
            return {name: () if name in lost else at for name, at in self._met.items()}

    def _meet(self, tick: Callable[[], None]) -> dict[str, tuple[Address, ...]]:
        key = new_key()
        met: dict[str, tuple[Address, ...]] = {}

        def meet(store: RemoteStore, tick: Callable[[], None]) -> None:
            try:
                home = self._homes.get(store.name)
                hosts = (home,) if home else ()
                met[store.name] = () if home == "" else store.meet(key, hosts, tick)
            except OSError:
                met[store.name] = ()  # what hinders it hinders putting values there, which tells it

        run_concurrently([(lambda tick, s=store: meet(s, tick)) for store in self._stores], tick)
        return met

    def lose(self, names: Sequence[str]) -> None:
        """These could not be reached by others just now."""
        with self._lock:
            self._lost.update(dict.fromkeys(names, time.monotonic() + _LOST_FOR))


class BroadcastStores(SeveralStores):
    """A `ContentStore` of machines that give each other what is large."""

    def __init__(self, stores: Sequence[RemoteStore], fan: BroadcastTree) -> None:
        super().__init__(stores)
        self._remote = tuple(stores)
        self._fan = fan

    def put(self, digest: str, parts: Sequence[Buffer], tick: Callable[[], None] = no_tick) -> bool:
        """Have a value on all machines, or, where it was on none, on none; whether it was not on one.

        Raises what putting it on one of them raises.
        """
        source = ValueParts(parts)
        if source.size < FROM:
            return super().put(digest, parts, tick)
        lacking = self._lacking(digest, source.size, tick)
        if not lacking:
            return False
        try:
            self._spread(digest, parts, lacking, tick)
        except BaseException:
            for store in lacking:
                store.drop([digest])
            raise
        return True

    def _lacking(self, digest: str, size: int, tick: Callable[[], None]) -> list[RemoteStore]:
        found: set[RemoteStore] = set()

        def look(store: RemoteStore, tick: Callable[[], None]) -> None:
            if store.lacks(digest, size, tick):
                found.add(store)

        run_concurrently([(lambda tick, s=store: look(s, tick)) for store in self._remote], tick)
        return [store for store in self._remote if store in found]

    def _spread(
        self,
        digest: str,
        parts: Sequence[Buffer],
        lacking: list[RemoteStore],
        tick: Callable[[], None],
    ) -> None:
        """Give a value to one machine, or to none if one has it, and from there to those that can be reached."""
        met = self._fan.addresses(tick)
        source = ValueParts(parts)
        root = next((store for store in self._remote if store not in lacking), None)
        is_there = root is not None
        if root is None:
            root = next((store for store in lacking if met[store.name]), lacking[0])
        others = [store for store in lacking if store is not root]
        reached = [store for store in others if met[store.name]]
        alone = [store for store in others if not met[store.name]]
        branches = _grown([(store.name, met[store.name]) for store in reached])
        failed: dict[str, str] = {}

        def by_root(tick: Callable[[], None]) -> None:
            if is_there:
                failed.update(root.spread(digest, source.size, branches, tick))
            else:
                failed.update(root.pass_on(digest, source, branches, tick))

        def directly(store: RemoteStore, tick: Callable[[], None]) -> None:
            store.put(digest, parts, tick)

        run_concurrently(
            [by_root, *((lambda tick, s=store: directly(s, tick)) for store in alone)], tick
        )
        if failed:
            self._fan.lose(list(failed))
            again = [store for store in reached if store.name in failed]
            run_concurrently([(lambda tick, s=store: directly(s, tick)) for store in again], tick)


def _grown(machines: Sequence[tuple[str, tuple[Address, ...]]]) -> tuple[SpreadBranch, ...]:
    """A tree of these machines, each of which gives to a few others."""
    parts = [machines[way::_WAYS] for way in range(_WAYS)]
    return tuple(SpreadBranch(part[0][0], part[0][1], _grown(part[1:])) for part in parts if part)
