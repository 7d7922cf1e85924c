"""What this user runs: a pool's spec beside its agent's lock, so that any kernel can find it again.

An entry lives in the pool's own folder and goes with it: what is listed is alive, for its agent
holds the folder's lock.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import msgspec

from skyward_nb.providers.folders import is_gone, runtime_root
from skyward_nb.providers.remains import is_ours
from skyward_nb.wire.frames import event_frames, frame
from skyward_nb.words.commands import Inspect, Look
from skyward_nb.words.events import Condition, Event, Stack
from skyward_nb.words.spec import PoolSpec

_FILE = "pool.json"
_ANSWER = 2.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that is alive; `started` in seconds since 1970, `notebook` is the one that made it.

    `program` says what made it where that was no notebook.
    """

    pool_id: str
    spec: PoolSpec
    notebook: str
    started: float
    program: str = ""


def enter(entry: Entry) -> None:
    """List a pool whose agent has started."""
    folder = runtime_root() / entry.pool_id
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # of one whose machines are elsewhere
    new = folder / f"{_FILE}.new"
    new.touch(mode=0o600)  # env= may have secrets
    new.write_bytes(msgspec.json.encode(entry))
    new.rename(folder / _FILE)


def entries() -> list[Entry]:
    """The pools of this user that are alive, the youngest first.

    Where all may make folders, one of another user's may look like a pool: whoever went on with
    that would unpickle what he says.
    """
    found: list[Entry] = []
    for path in runtime_root().glob(f"*/{_FILE}"):
        if is_ours(path.parent) and not is_gone(path.parent):
            # One that another version wrote, or that goes right now, is not one of ours.
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Entry))
    return sorted(found, key=lambda entry: -entry.started)


def condition(pool_id: str) -> Condition | None:
    """How a pool is doing, as its agent tells anybody of this user; None when it does not answer."""
    with contextlib.suppress(OSError), _connected(pool_id) as connection:
        for event in _ask(connection, frame(Look())):
            if isinstance(event, Condition):
                return event
    return None


def stacks(pool_id: str, ranks: tuple[int, ...]) -> dict[int, str]:
    """Where the threads of ranks are, as faulthandler writes it; no text of those that do not answer."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError), _connected(pool_id) as connection:
        for event in _ask(connection, frame(Look()) + frame(Inspect(ranks))):
            if isinstance(event, Stack):
                found[event.rank] = event.text
                if len(found) == len(ranks):
                    break
    return found


def _connected(pool_id: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_ANSWER)
        connection.connect(str(runtime_root() / pool_id / "agent.sock"))
    except OSError:
        connection.close()
        raise
    return connection


def _ask(connection: socket.socket, question: bytes) -> Iterator[Event]:
    frames = event_frames()
    connection.sendall(question)
    while data := connection.recv(1 << 16):
        yield from frames.feed(data)
