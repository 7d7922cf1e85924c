"""What this user runs: a pool's spec beside its agent's lock, so that any kernel can find it again.

The entry of a pool on this machine lives in the pool's own folder and goes with it: what is listed is
alive, for its agent holds the folder's lock. Of one elsewhere there is a file here, and whether it is
alive is found out by asking it.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec.structs import replace

from skyward_nb.providers.folders import far_root, is_gone, runtime_root
from skyward_nb.providers.remains import is_ours
from skyward_nb.wire.frames import event_frames, frame
from skyward_nb.wire.stores import AgentGone
from skyward_nb.words.commands import Inspect, Look
from skyward_nb.words.events import Condition, Event, Stack
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec

_FILE = "pool.json"
_ANSWER = 2.0
_REACH = 20.0
"""Seconds in which a machine elsewhere is reached, or is not."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that is alive; `started` in seconds since 1970, `notebook` is the one that made it.

    `program` says what made it where that was no notebook, `bill` what its machines cost.
    """

    pool_id: str
    spec: PoolSpec
    notebook: str
    started: float
    program: str = ""
    bill: Bill | None = None

    @property
    def is_here(self) -> bool:
        """Whether its agent and folders are on this machine."""
        return self.spec.provider == "local"


def enter(entry: Entry) -> None:
    """List a pool whose agents have started; raises OSError where that cannot be written."""
    path = _path(entry)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)  # env= may have secrets
    new.write_bytes(msgspec.json.encode(entry))
    new.rename(path)


def remove(entry: Entry) -> None:
    """A pool is no more; one that was here took its entry with it."""
    if not entry.is_here:
        _path(entry).unlink(missing_ok=True)


def _path(entry: Entry) -> Path:
    if entry.is_here:
        return runtime_root() / entry.pool_id / _FILE
    return far_root() / f"{entry.pool_id}.json"


def entries() -> list[Entry]:
    """The pools of this user that are alive, the youngest first; of those elsewhere, that were.

    Where all may make folders, one of another user's may look like a pool: whoever went on with
    that would unpickle what he says.
    """
    found: list[Entry] = []
    for path in runtime_root().glob(f"*/{_FILE}"):
        if is_ours(path.parent) and not is_gone(path.parent):
            found += _read(path)
    if is_ours(far_root()):
        found += [entry for path in far_root().glob("*.json") for entry in _read(path)]
    return sorted(found, key=lambda entry: -entry.started)


def _read(path: Path) -> list[Entry]:
    # One that another version wrote, or that goes right now, is not one of ours.
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return [msgspec.json.decode(path.read_bytes(), type=Entry)]
    return []


def condition(entry: Entry) -> Condition | None:
    """How a pool is doing, as its agents tell anybody of this user; None when one does not answer."""
    found: list[Condition] = []
    with contextlib.suppress(OSError), _connected(entry) as connections:
        for connection in connections:
            answers = _ask(connection, frame(Look()))
            found += itertools.islice((e for e in answers if isinstance(e, Condition)), 1)
        if len(found) == len(connections):
            return _as_one(found)
    return None


def conditions(listed: Iterable[Entry]) -> list[tuple[Entry, Condition]]:
    """Those of these pools that answer, and how they are doing; they are asked side by side."""
    listed = list(listed)
    if not listed:
        return []
    with ThreadPoolExecutor(max_workers=len(listed)) as threads:
        found = zip(listed, threads.map(condition, listed), strict=True)
        return [(entry, now) for entry, now in found if now is not None]


def _as_one(found: list[Condition]) -> Condition:
    """How a pool is doing whose machines are doing so."""
    first = found[0]
    begun = [each.unseen for each in found if each.unseen is not None]
    lefts = [each.left for each in found if each.left is not None]
    return replace(
        first,
        client=next((each.client for each in found if each.client is not None), None),
        left=min(lefts, default=None),
        generation=max(each.generation for each in found),
        ranks=tuple(sorted(rank for each in found for rank in each.ranks)),
        pids={rank: pid for each in found for rank, pid in each.pids.items()},
        unseen=max(begun, key=lambda began: began.run, default=None),
        running=tuple(sorted(rank for each in found for rank in each.running)),
    )


def stacks(entry: Entry, ranks: tuple[int, ...]) -> dict[int, str]:
    """Where the threads of ranks are, as faulthandler writes it; no text of those that do not answer."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError), _connected(entry) as connections:
        for connection in connections:
            wanted = set(ranks)
            for event in _ask(connection, frame(Look()) + frame(Inspect(ranks))):
                if isinstance(event, Condition) and not entry.is_here:
                    wanted = set(event.ranks).intersection(ranks)
                elif isinstance(event, Stack):
                    found[event.rank] = event.text
                if wanted <= found.keys():
                    break
    return found


@contextlib.contextmanager
def _connected(entry: Entry) -> Generator[list[socket.socket]]:
    """Lines to the agents of a pool; raises OSError."""
    with contextlib.ExitStack() as opened:
        if entry.is_here:
            path = str(runtime_root() / entry.pool_id / "agent.sock")
            connection = opened.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(_ANSWER)
            connection.connect(path)
            yield [connection]
            return
        # Seldom, and takes a moment.
        from skyward_nb.pool.loop import LOOP
        from skyward_nb.providers.table import PROVIDERS

        try:
            machines = PROVIDERS[entry.spec.provider]().find(entry.spec, entry.pool_id)
            for machine in machines:
                opened.callback(machine.leave)
            opening = [LOOP.start(machine.connect()).future for machine in machines]
            connections = [opened.enter_context(each.result(_REACH)) for each in opening]
        except AgentGone:
            remove(entry)
            raise ConnectionError("its agents are gone") from None
        for connection in connections:
            connection.settimeout(_ANSWER)
        yield connections


def _ask(connection: socket.socket, question: bytes) -> Iterator[Event]:
    frames = event_frames()
    connection.sendall(question)
    while data := connection.recv(1 << 16):
        yield from frames.feed(data)
