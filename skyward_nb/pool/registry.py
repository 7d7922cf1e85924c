"""What this user runs: a pool's spec beside its agent's lock, so that any kernel can find it again.

The entry of a pool on this machine lives in the pool's own folder and goes with it: what is listed is
alive, for its agent holds the folder's lock. Of one elsewhere there is a file here, and whether it is
alive is found out by asking it. It is forgotten once it has been silent for longer than it may be
without a client.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec.structs import replace

from skyward_nb.pool.client_names import is_running
from skyward_nb.protocol.commands import Inspect, QueryStatus
from skyward_nb.protocol.events import AgentStatus, Event, Stack
from skyward_nb.protocol.frames import event_frames, frame
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.base import MachineEnded, MachinesEnded
from skyward_nb.providers.folders import far_root, is_gone, runtime_root
from skyward_nb.providers.orphans import is_ours
from skyward_nb.store.content_store import AgentGone
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec

_FILE = "pool.json"
_ANSWER = 2.0
_REACH = 20.0
"""Seconds in which a machine elsewhere is reached, or is not."""


class PoolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that is alive; `started` in seconds since 1970, `notebook` is the one that made it.

    `program` says what made it where that was no notebook, `bill` what its machines cost.
    """

    pool_id: str
    spec: PoolSpec
    notebook: str
    started: float
    program: str = ""
    client: Client | None = None
    """Who conducts it, if it is elsewhere: it may not answer whoever asks. Without the key."""

    bill: Bill | None = None

    @property
    def is_used(self) -> bool:
        """Whether a process of this machine conducts it, though it is elsewhere."""
        return self.client is not None and is_running(self.client)

    @property
    def is_here(self) -> bool:
        """Whether its agent and folders are on this machine."""
        return not self.spec.is_elsewhere


def enter(entry: PoolEntry) -> None:
    """List a pool whose agents have started; raises OSError where that cannot be written."""
    _answers(entry)
    path = _path(entry)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)  # env= may have secrets
    new.write_bytes(msgspec.json.encode(entry))
    new.rename(path)


def remove(entry: PoolEntry) -> None:
    """A pool is no more; one that was here took its entry with it."""
    if not entry.is_here:
        _answers(entry)
        _path(entry).unlink(missing_ok=True)


def conducted(entry: PoolEntry, client: Client) -> None:
    """Somebody goes on with a pool that is listed."""
    for there in _read(_path(entry)):
        if not entry.is_here:
            enter(replace(there, client=client))


def left(entry: PoolEntry, client: Client) -> None:
    """Whoever conducted a pool does so no more."""
    for there in _read(_path(entry)):
        if there.client == client and not entry.is_here:
            enter(replace(there, client=None))


def give_up(entry: PoolEntry) -> str:
    """End what can be reached of a pool elsewhere, and forget it; what may run on, and costs."""
    from skyward_nb.providers.loop_thread import release
    from skyward_nb.providers.provider_table import PROVIDERS

    try:
        return release(PROVIDERS[entry.spec.provider]().find(entry.spec, entry.pool_id))
    except AgentGone:
        return ""
    finally:
        remove(entry)


def _path(entry: PoolEntry) -> Path:
    if entry.is_here:
        return runtime_root() / entry.pool_id / _FILE
    return far_root() / f"{entry.pool_id}.json"


def _silence(entry: PoolEntry) -> Path:
    """The file that is there since a pool elsewhere did not answer, for as long as it does not."""
    return far_root() / f"{entry.pool_id}.silent"


def _answers(entry: PoolEntry) -> None:
    if not entry.is_here:
        _silence(entry).unlink(missing_ok=True)


def _is_silent(entry: PoolEntry, why: str) -> None:
    """Note since when a pool that nobody here conducts does not answer, and `why`, where that is known."""
    if not entry.is_here and not entry.is_used and _path(entry).exists():
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(_silence(entry), flags, 0o600), "r+b", 0) as file:
            before = os.fstat(file.fileno())
            new = why.encode()
            if new and file.read() != new:
                # Whoever reads it now does not find it empty.
                file.seek(0)
                file.write(new)
                file.truncate()
                # It tells since when.
                os.utime(file.fileno(), ns=(before.st_mtime_ns, before.st_mtime_ns))


def ended_of(entry: PoolEntry) -> str:
    """The machines of a silent pool that were found to have ended, in words; empty where none was."""
    with contextlib.suppress(OSError):
        return _silence(entry).read_text()
    return ""


def _is_over(entry: PoolEntry) -> bool:
    """Whether a pool elsewhere must have ended itself: it was silent for too long, or its time is over."""
    if entry.is_used:
        return False
    since = [(_silence(entry), entry.spec.idle), (_path(entry), entry.spec.ttl)]
    for path, most in since:
        with contextlib.suppress(FileNotFoundError):
            if most and time.time() - path.stat().st_mtime > most:
                return True
    return False


def entries() -> list[PoolEntry]:
    """The pools of this user that are alive, the youngest first; of those elsewhere, that may be.

    Where all may make folders, one of another user's may look like a pool: whoever went on with
    that would unpickle what he says.
    """
    found: list[PoolEntry] = []
    for path in runtime_root().glob(f"*/{_FILE}"):
        if is_ours(path.parent) and not is_gone(path.parent):
            found += _read(path)
    if is_ours(far_root()):
        for entry in itertools.chain(*map(_read, far_root().glob("*.json"))):
            if _is_over(entry):
                remove(entry)
            else:
                found.append(entry)
    return sorted(found, key=lambda entry: -entry.started)


def _read(path: Path) -> list[PoolEntry]:
    # One that another version wrote, or that goes right now, is not one of ours.
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return [msgspec.json.decode(path.read_bytes(), type=PoolEntry)]
    return []


def condition(entry: PoolEntry) -> AgentStatus | None:
    """How a pool is doing, as its agents tell anybody of this user; None when one does not answer."""
    found: list[AgentStatus] = []
    why = ""
    try:
        with contextlib.suppress(OSError), _connected(entry) as connections:
            for connection in connections:
                answers = _ask(connection, frame(QueryStatus()))
                found += itertools.islice((e for e in answers if isinstance(e, AgentStatus)), 1)
            if len(found) == len(connections):
                _answers(entry)
                return _as_one(found)
    except MachinesEnded as ended:
        why = str(ended)
    _is_silent(entry, why)
    return None


def conditions(listed: Iterable[PoolEntry]) -> list[tuple[PoolEntry, AgentStatus]]:
    """Those of these pools that answer, and how they are doing; they are asked side by side."""
    listed = list(listed)
    if not listed:
        return []
    with ThreadPoolExecutor(max_workers=len(listed)) as threads:
        found = zip(listed, threads.map(condition, listed), strict=True)
        return [(entry, now) for entry, now in found if now is not None]


def _as_one(found: list[AgentStatus]) -> AgentStatus:
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


def stacks(entry: PoolEntry, ranks: tuple[int, ...]) -> dict[int, str]:
    """Where the threads of ranks are, as faulthandler writes it; no text of those that do not answer."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError, MachinesEnded), _connected(entry) as connections:
        for connection in connections:
            wanted = set(ranks)
            for event in _ask(connection, frame(QueryStatus()) + frame(Inspect(ranks))):
                if isinstance(event, AgentStatus) and not entry.is_here:
                    wanted = set(event.ranks).intersection(ranks)
                elif isinstance(event, Stack):
                    found[event.rank] = event.text
                if wanted <= found.keys():
                    break
    return found


@contextlib.contextmanager
def _connected(entry: PoolEntry) -> Generator[list[socket.socket]]:
    """Lines to the agents of a pool; raises OSError, or `MachinesEnded`.

    Where it goes on without machines that have ended, to the others.
    """
    with contextlib.ExitStack() as opened:
        if entry.is_here:
            path = str(runtime_root() / entry.pool_id / "agent.sock")
            connection = opened.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(_ANSWER)
            connection.connect(path)
            yield [connection]
            return
        # Seldom, and takes a moment.
        from skyward_nb.providers.loop_thread import LOOP
        from skyward_nb.providers.provider_table import PROVIDERS

        connections: list[socket.socket] = []
        opening: list[tuple[str, Future[socket.socket]]] = []
        ended: dict[str, str] = {}
        with contextlib.suppress(AgentGone):
            for machine in PROVIDERS[entry.spec.provider]().find(entry.spec, entry.pool_id):
                opened.callback(machine.leave)
                opening.append((machine.name, LOOP.start(machine.connect()).future))
        for name, each in opening:
            try:
                connections.append(opened.enter_context(each.result(_REACH)))
            except MachineEnded as why:
                ended[name] = str(why)
            except AgentGone:
                """It is one of those that lack."""
        if not connections:
            remove(entry)
        goes_on = connections and entry.spec.on_preempt == "replace"
        if ended and not goes_on:
            raise MachinesEnded(ended, len(connections))
        if not connections or len(connections) + len(ended) < len(opening):
            raise ConnectionError("agents of it are gone")
        for connection in connections:
            connection.settimeout(_ANSWER)
        yield connections


def _ask(connection: socket.socket, question: bytes) -> Iterator[Event]:
    frames = event_frames()
    connection.sendall(question)
    while data := connection.recv(1 << 16):
        yield from frames.feed(data)
