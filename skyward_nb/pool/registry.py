"""The pools of this user, so that any kernel can find them again.

The entry of a pool on this machine is in the pool's own folder and is removed with it; the pool is alive
while its agent holds the folder's lock. The entry of a remote pool is a file here; its agents are asked
whether it is alive. It is removed when they have been silent for longer than the pool lives without a client.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from skyward_nb.pool.client_names import is_running
from skyward_nb.pool.machine_statuses import status_of_pool
from skyward_nb.protocol.commands import Inspect, QueryStatus
from skyward_nb.protocol.events import AgentStatus, Event, Stack
from skyward_nb.protocol.frames import event_frames, frame
from skyward_nb.protocol.message_parts import FIRST_CLIENT, Client
from skyward_nb.providers.folders import far_root, is_gone, runtime_root
from skyward_nb.providers.orphans import is_ours
from skyward_nb.providers.provider_protocol import MachineEnded, MachinesEnded
from skyward_nb.store.content_store import AgentGone
from skyward_nb.words.controls import with_texts_spelt
from skyward_nb.words.decoding import from_json
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec

_FILE = "pool.json"
_ANSWER = 2.0
_STACKS = 6.0
"""Seconds for stacks: an agent waits 3 s for a rank that is held up, or stopped for good (`node/stack_pipe`)."""
_AT_LEAST = 0.01
_REACH = 20.0
"""Seconds after which a remote machine counts as unreachable."""
_DAY = 86400.0


class PoolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that is alive; `started` in seconds since 1970, made by `notebook`, or by `program`.

    `bill` is the cost of its machines.
    """

    pool_id: str
    spec: PoolSpec
    notebook: str
    started: float
    program: str = ""
    client: Client | None = None
    """The client of a remote pool, which may not answer. Without the key."""

    bill: Bill | None = None

    @property
    def is_used(self) -> bool:
        """Whether it is remote, and its client is a process of this machine."""
        return self.client is not None and is_running(self.client)

    @property
    def is_here(self) -> bool:
        """Whether its agent and folders are on this machine."""
        return not self.spec.is_elsewhere


def enter(entry: PoolEntry) -> None:
    """List a pool whose agents start; raises OSError if the entry cannot be written."""
    _answers(entry)
    _path(entry).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(entry)


def _write(entry: PoolEntry) -> None:
    path = _path(entry)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.touch(mode=0o600)  # env= may have secrets
    new.write_bytes(msgspec.json.encode(entry))
    new.rename(path)


def remove(entry: PoolEntry) -> None:
    """Remove the entry of a pool that has ended; a local pool's is gone already."""
    if not entry.is_here:
        _answers(entry)
        listed = _path(entry)
        listed.unlink(missing_ok=True)
        for path in listed.parent.glob(f"{listed.name}.*.new"):  # of a writer that was killed
            path.unlink(missing_ok=True)
        now = progress_file(entry)
        for path in now.parent.glob(f"{now.name}*"):  # what a killed kernel left
            path.unlink(missing_ok=True)


def conducted(entry: PoolEntry, client: Client) -> None:
    """Note a new client of a listed pool."""
    _change(entry, lambda there: replace(there, client=client))


def left(entry: PoolEntry, client: Client) -> None:
    """Note that this client has left the pool."""
    _change(entry, lambda there: replace(there, client=None) if there.client == client else there)


def _change(entry: PoolEntry, change: Callable[[PoolEntry], PoolEntry]) -> None:
    """Change the entry of a remote pool, if it is listed; one process after another."""
    path = _path(entry)
    if entry.is_here or not path.exists():
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        for there in _read(path):
            if (now := change(there)) != there:
                _answers(entry)
                with contextlib.suppress(FileNotFoundError):  # another one removes it just now
                    _write(now)
    finally:
        os.close(folder)


def give_up(entry: PoolEntry) -> str:
    """End all reachable machines of a remote pool, and remove its entry; those that may run on, in words."""
    from skyward_nb.pool.interrupt_handlers import calm
    from skyward_nb.providers.loop_thread import release
    from skyward_nb.providers.provider_table import PROVIDERS

    # Without its entry, nothing here would know of machines that an interrupt has left.
    with calm():
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


def progress_file(entry: PoolEntry) -> Path:
    """What the names of the files begin with that tell others how far a pool's runs are; gone with the entry."""
    if entry.is_here:
        return runtime_root() / entry.pool_id / "run.now"
    return far_root() / f"{entry.pool_id}.now"


def _silence(entry: PoolEntry) -> Path:
    """The file that exists while a remote pool does not answer."""
    return far_root() / f"{entry.pool_id}.silent"


def _answers(entry: PoolEntry) -> None:
    if not entry.is_here:
        _silence(entry).unlink(missing_ok=True)


def _is_silent(entry: PoolEntry, why: str) -> None:
    """Note that a remote pool without a client here does not answer, since when, and `why`, if known."""
    if not entry.is_here and not entry.is_used and _path(entry).exists():
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(_silence(entry), flags, 0o600), "r+b", 0) as file:
            before = os.fstat(file.fileno())
            new = why.encode()
            if new and file.read() != new:
                # In this order, so that the file is never empty.
                file.seek(0)
                file.write(new)
                file.truncate()
                # The time of the file is the beginning of the silence.
                os.utime(file.fileno(), ns=(before.st_mtime_ns, before.st_mtime_ns))


def ended_of(entry: PoolEntry) -> str:
    """The machines of a silent pool that have surely ended, in words, or ""."""
    with contextlib.suppress(OSError):
        return _silence(entry).read_text()
    return ""


def _may_start(entry: PoolEntry) -> bool:
    """Whether a client may only just start its agents; of one of another machine that is known for a while alone."""
    if entry.client is None or entry.client.host == socket.gethostname():
        return entry.is_used
    with contextlib.suppress(FileNotFoundError):
        age = time.time() - _path(entry).stat().st_mtime
        return age < max(entry.spec.idle, FIRST_CLIENT)
    return False


def _is_over(entry: PoolEntry) -> bool:
    """Whether a remote pool must have ended itself: it was silent for too long, or its `ttl` is over."""
    if entry.is_used:
        return False
    # One with a client on another host of a shared home may be reached from there.
    is_known_here = entry.client is None or entry.client.host == socket.gethostname()
    silent = entry.spec.idle if is_known_here else max(entry.spec.idle, _DAY)
    since = [(_silence(entry), silent), (_path(entry), entry.spec.ttl)]
    for path, most in since:
        with contextlib.suppress(FileNotFoundError):
            if most and time.time() - path.stat().st_mtime > most:
                return True
    return False


def entries() -> list[PoolEntry]:
    """The pools of this user that are alive, or, if remote, may be, the youngest first.

    Folders of other users are ignored: a client would unpickle their values.
    """
    found: list[PoolEntry] = []
    root, far = runtime_root(), far_root()
    for name in _names(root):
        folder = root / name
        path = folder / _FILE
        if is_ours(folder) and (entry := _read(path)) and not is_gone(folder):
            found += entry
    if is_ours(far):
        listed = (far / name for name in _names(far) if name.endswith(".json"))
        for entry in itertools.chain(*map(_read, listed)):
            if _is_over(entry):
                remove(entry)
            else:
                found.append(entry)
    return sorted(found, key=lambda entry: -entry.started)


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as there:
        return [each.name for each in there]
    return []


def _read(path: Path) -> list[PoolEntry]:
    # An entry of another version, or one that is being removed, is ignored.
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        now = path.stat()
        return [_decoded(path, now.st_ino, now.st_mtime_ns)]
    return []


@lru_cache(maxsize=256)
def _decoded(path: Path, _inode: int, _written: int) -> PoolEntry:
    """An entry, which is a new file after each change; a panel reads all of them each second."""
    return from_json(path.read_bytes(), PoolEntry)


def condition(entry: PoolEntry) -> AgentStatus | None:
    """The status of a pool, from its agents; None if one does not answer."""
    found: list[AgentStatus] = []
    why = ""
    try:
        with contextlib.suppress(OSError), _connected(entry) as connections:
            for connection in connections:
                answers = _ask(connection, frame(QueryStatus()))
                found += itertools.islice((e for e in answers if isinstance(e, AgentStatus)), 1)
            if len(found) == len(connections):
                _answers(entry)
                return status_of_pool(found)
    except MachinesEnded as ended:
        why = str(ended)
    _is_silent(entry, why)
    return None


def conditions(listed: Iterable[PoolEntry]) -> list[tuple[PoolEntry, AgentStatus]]:
    """Those of these pools that answer, with their status; all are asked at once."""
    listed = list(listed)
    far = [entry for entry in listed if not entry.is_here]
    # A thread takes longer than an agent here needs to answer.
    with ThreadPoolExecutor(max_workers=len(far)) if far else contextlib.nullcontext() as threads:
        asked = threads.map(condition, far) if threads else ()
        known = _conditions_here([entry for entry in listed if entry.is_here])
        known |= {entry.pool_id: now for entry, now in zip(far, asked, strict=True)}
    return [(entry, now) for entry in listed if (now := known[entry.pool_id]) is not None]


def _conditions_here(listed: list[PoolEntry]) -> dict[str, AgentStatus | None]:
    """The status of pools on this machine, by their ids: all are asked, and then each is heard."""
    until = time.monotonic() + _ANSWER
    found: dict[str, AgentStatus | None] = dict.fromkeys(entry.pool_id for entry in listed)
    with contextlib.ExitStack() as opened:
        asked: list[tuple[str, socket.socket]] = []
        for entry in listed:
            with contextlib.suppress(OSError):
                connection = opened.enter_context(_agent_here(entry))
                connection.sendall(frame(QueryStatus()))
                asked.append((entry.pool_id, connection))
        for pool_id, connection in asked:
            connection.settimeout(max(0.0, until - time.monotonic()))
            with contextlib.suppress(OSError):
                heard = (each for each in _heard(connection) if isinstance(each, AgentStatus))
                found[pool_id] = next(heard, None)
    return found


def _agent_here(entry: PoolEntry) -> socket.socket:
    """A connection to the agent of a pool on this machine; raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_ANSWER)
        connection.connect(str(runtime_root() / entry.pool_id / "agent.sock"))
    except BaseException:
        connection.close()
        raise
    return connection


def stacks(entry: PoolEntry, ranks: tuple[int, ...]) -> dict[int, str]:
    """The stacks of ranks, in the format of `faulthandler`; ranks that do not answer are left out."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError, MachinesEnded), _connected(entry) as connections:
        # All are asked at once; where one does not answer, the others do.
        until = time.monotonic() + _STACKS
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(frame(QueryStatus()) + frame(Inspect(ranks)))
        for connection in connections:
            connection.settimeout(max(_AT_LEAST, until - time.monotonic()))
            with contextlib.suppress(OSError):
                _hear_stacks(connection, entry, ranks, found)
    return found


def _hear_stacks(
    connection: socket.socket, entry: PoolEntry, ranks: tuple[int, ...], found: dict[int, str]
) -> None:
    wanted = set(ranks)
    for event in _heard(connection):
        if isinstance(event, AgentStatus) and not entry.is_here:
            wanted = set(event.ranks).intersection(ranks)
        elif isinstance(event, Stack):
            found[event.rank] = event.text
        if wanted <= found.keys():
            return


@contextlib.contextmanager
def _connected(entry: PoolEntry) -> Generator[list[socket.socket]]:
    """Connections to the agents of a pool; raises OSError, or `MachinesEnded`.

    If the pool replaces machines that have ended, only to the others.
    """
    with contextlib.ExitStack() as opened:
        if entry.is_here:
            yield [opened.enter_context(_agent_here(entry))]
            return
        # Seldom needed, and slow to import.
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
                """It is missing from `connections`."""
        if not connections and not any(map(_may_start, _read(_path(entry)))):
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
    connection.sendall(question)
    yield from _heard(connection)


def _heard(connection: socket.socket) -> Iterator[Event]:
    frames = event_frames()
    while data := connection.recv(1 << 16):
        yield from map(with_texts_spelt, frames.feed(data))
