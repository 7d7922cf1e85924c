"""torch's elastic agent: the private way in which it starts a worker, and where workers meet once they are restarted.

Agents keep one store for all attempts of their workers, and torch names nothing in it by attempt. On two nodes a
restarted worker finds what those before it wrote there, such as addresses at which nobody listens, and
its process group is not formed: plain torchrun 2.13 has the same fault. So each attempt gets a store of its own
(c10d), or one that is emptied (static) while all workers are stopped.

Where a name of starting a worker is missing, AttributeError says which, and no worker is started. Where one of the
store is, restarted workers meet as in that torch.

Seen with torch 2.13.0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

_PAUSE = 0.1
_SOMEBODY_ENDED = "torchelastic/agent/terminal_state/num_members"
"""The key of the store by which an agent says that its workers have ended well."""


@contextmanager
def starting_workers(start: Callable[..., Any]) -> Generator[None]:
    """Meanwhile an agent starts a worker by `start(args, env, stdout, stderr)`, and by itself where that gives None."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    handler: Any = SubprocessHandler
    by_itself = handler._popen

    def popen(self: Any, args: Any, env: Any) -> Any:
        found = start(args, env, self._stdout, self._stderr)
        return by_itself(self, args, env) if found is None else found

    handler._popen = popen
    try:
        yield
    finally:
        handler._popen = by_itself


@contextmanager
def meeting_anew() -> Generator[None]:
    """Meanwhile workers that the agent of this process restarts find nothing of those before them."""
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    dynamic: Any = DynamicRendezvousHandler
    static: Any = StaticTCPRendezvous
    next_dynamic, next_static, waiting = (
        dynamic.next_rendezvous,
        static.next_rendezvous,
        static.num_nodes_waiting,
    )
    attempts = StaticAttempts()

    def meet(self: Any) -> Any:
        # The store before stays until all others have stopped their workers, which use it.
        before = getattr(self, "_shared_tcp_store_server", None)
        self._shared_tcp_store_server = self._bootstrap_store_info = None
        try:
            return next_dynamic(self)
        finally:
            del before

    def meet_static(self: Any) -> Any:
        info = next_static(self)
        seconds = self.timeout.total_seconds()
        attempts.begin(info.store, f"{self.run_id}/", info.rank, info.world_size, seconds)
        return info

    dynamic.next_rendezvous, static.next_rendezvous = meet, meet_static
    static.num_nodes_waiting = lambda _: attempts.others_wait()
    try:
        yield
    finally:
        dynamic.next_rendezvous, static.next_rendezvous = next_dynamic, next_static
        static.num_nodes_waiting = waiting


class StaticAttempts:
    """Attempts of a static rendezvous: torch neither counts them nor tells an agent that others begin the next one.

    All agents begin an attempt together, as with c10d, and its head empties the store of workers before.
    """

    def __init__(self) -> None:
        self._next = 0
        self._store: Any = None

    def others_wait(self) -> int:
        """Whether another agent has stopped its workers for the next attempt."""
        return int(self._store is not None and self._store.check([_key(self._next)]))

    def begin(self, store: Any, prefix: str, rank: int, nodes: int, timeout: float) -> None:
        """Begin an attempt with all nodes, by the store of their agents, once all their workers are stopped.

        That store is a part of another one, where its keys have this prefix. Where workers of a node have ended well, or it does not come within so many seconds, it begins
        without, as with plain torchrun.
        """
        number, self._store = self._next, store
        self._next += 1
        if not number:
            return
        store.set(_key(number), b"")
        store.set(_key(number, rank), b"")
        is_head, ready = rank == 0, _key(number, "ready")
        for_whom = [_key(number, each) for each in range(nodes)] if is_head else [ready]
        until = time.monotonic() + timeout
        while not store.check(for_whom):
            if store.check([_SOMEBODY_ENDED]) or time.monotonic() > until:
                return
            time.sleep(_PAUSE)
        if is_head:
            _empty(store.underlying_store, prefix)
            store.set(ready, b"")


def _key(number: int, word: object = "") -> str:
    return f"skyward/attempt-{number}/{word}"


def _empty(store: Any, kept: str) -> None:
    """Remove all keys but those with a prefix, where this torch lists them."""
    for key in store.list_keys() if hasattr(store, "list_keys") else ():
        if not key.startswith(kept):
            store.delete_key(key)
