"""The actor on a node of a pool: it keeps the keeper, runs commands, and joins streams to unix sockets.

It travels to the cluster by value, and imports Ray and the standard library alone. Writes and reads of a channel
are numbered, as Ray may begin calls in another order than they were made.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

ray: Any = importlib.import_module("ray")

_MOST = 1 << 20
_QUEUED = 4
_KEEPER_LIMIT = 30.0
_LOOKS = 60
_ASK_LIMIT = 5.0
_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_SILENCE = 20.0
"""Seconds after which a helper that says nothing is taken for gone."""
_HEAD = 5
"""Bytes before the data of a frame: its kind and its length."""
_WRAP = """exec 4<&0
/bin/sh -c "$1" keeper 0<&4 4<&- 2>&1 &
"""
_GUARD = r"""exec 4<&0 </dev/null
own=$$
( exec >/dev/null 2>&1; cat <&4; [ ! -d {keep} ] || kill -TERM $own ) &
exec 4<&-
"""
"""Ends the keeper when the actor is gone, however that went: the pipe from it is closed then."""


class _Channel:
    """Bytes both ways, in order, whatever the order of the calls."""

    def __init__(self) -> None:
        self._coming = {}
        self._written = 0
        self._given = 0
        self._turn = asyncio.Condition()
        self._taking = asyncio.Lock()

    async def write(self, number: int, data: bytes) -> None:
        self._coming[number] = data
        async with self._taking:
            while self._written in self._coming:
                data = self._coming.pop(self._written)
                self._written += 1
                with contextlib.suppress(OSError):  # a program need not read all that it is given
                    await self.take(data)

    async def read(self, number: int) -> bytes:
        async with self._turn:
            await self._turn.wait_for(lambda: self._given == number)
        data = await self.give()
        async with self._turn:
            self._given += 1
            self._turn.notify_all()
        return data

    async def take(self, data: bytes) -> None:
        raise NotImplementedError

    async def give(self) -> bytes:
        raise NotImplementedError

    async def end(self) -> None:
        raise NotImplementedError


class _SocketChannel(_Channel):
    """A unix socket; it gives b"" at its end."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._socket = connection

    async def take(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def give(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, _MOST)
        except OSError:
            return b""

    async def end(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # A read that waits for it sees its end first.
        asyncio.get_running_loop().call_later(1, self._socket.close)


class _CommandChannel(_Channel):
    """A command. It takes frames of stdin, the last of them empty, and gives frames of stdout, stderr and its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self._process = process
        self._rest = b""
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)
        self._following = asyncio.ensure_future(self._follow())

    async def take(self, data: bytes) -> None:
        self._rest += data
        stdin = self._process.stdin
        assert stdin is not None
        while len(self._rest) >= _HEAD:
            size = int.from_bytes(self._rest[1:_HEAD], "big")
            if len(self._rest) < _HEAD + size:
                break
            data, self._rest = self._rest[_HEAD : _HEAD + size], self._rest[_HEAD + size :]
            if not data:
                stdin.close()
                break
            stdin.write(data)
            await stdin.drain()

    async def give(self) -> bytes:
        frame = await self._frames.get()
        if not frame:
            self._frames.put_nowait(b"")
            return frame
        frames, size = [frame], len(frame)
        while size < _MOST and not self._frames.empty():
            frame = self._frames.get_nowait()
            if not frame:
                self._frames.put_nowait(b"")
                break
            frames.append(frame)
            size += len(frame)
        return b"".join(frames)

    async def _follow(self) -> None:
        process = self._process
        await asyncio.gather(self._pipe(b"o", process.stdout), self._pipe(b"e", process.stderr))
        code = await process.wait()
        await self._frames.put(_frame(b"x", str(code).encode()))
        await self._frames.put(b"")

    async def _pipe(self, kind: bytes, reader: asyncio.StreamReader | None) -> None:
        assert reader is not None
        while data := await reader.read(_MOST // 4):
            await self._frames.put(_frame(kind, data))

    async def end(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._following.cancel()
        while not self._frames.empty():
            self._frames.get_nowait()
        self._frames.put_nowait(b"")


def _frame(kind: bytes, data: bytes) -> bytes:
    return kind + len(data).to_bytes(4, "big") + data


class NodeActor:
    """The actor number `number` of `names`, all of the group `group`."""

    def __init__(self, group: str, names: list[str], number: int, program: str, keep: str) -> None:
        self._group = group
        self._names = names
        self._number = number
        self._keep = keep
        self._channels: dict[str, _Channel] = {}
        self._ended = asyncio.Event()
        self._heard: dict[str, float] = {}
        """When each helper was heard of last."""
        self._words = b""
        """What the keeper says: why there is none."""
        self._hold, self._said = self._begun(_GUARD.format(keep=keep) + program)

    def _begun(self, program: str) -> tuple[int, int]:
        """Start the keeper, as nobody's child: Ray kills children of an actor that ends, and the agent may not end so."""
        theirs, hold = os.pipe()
        said, say = os.pipe()
        try:
            subprocess.run(  # noqa: S603 - a keeper and its guard
                ["/bin/sh", "-c", _WRAP, "wrap", program],
                stdin=theirs,
                stdout=say,
                stderr=say,
                check=True,
                start_new_session=True,
                cwd="/",
                env=_environ(),
            )
        finally:
            os.close(theirs)
            os.close(say)
        return hold, said

    async def started(self) -> dict[str, Any]:
        """Wait for the keeper; where this is. Raises RuntimeError with the keeper's words."""
        self._watching = asyncio.ensure_future(self._watch())
        self._missing = asyncio.ensure_future(self._miss())
        until = time.monotonic() + _KEEPER_LIMIT
        while not await asyncio.to_thread(_is_kept, Path(self._keep)):
            if self._ended.is_set() or time.monotonic() > until:
                words = self._words.decode(errors="replace").strip()
                raise RuntimeError(f"its keeper did not start: {words or 'it says nothing'}")
            await asyncio.sleep(0.02)
        context = ray.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", [])
        return {
            "node": context.get_node_id(),
            "host": socket.gethostname(),
            "address": ray.util.get_node_ip_address(),
            "gpus": [str(each) for each in gpus],
        }

    async def has_ended(self) -> bool:
        """Whether its keeper has ended."""
        return self._ended.is_set()

    async def finish(self, limit: float) -> bool:
        """End the keeper; whether it has ended in so many seconds."""
        self._let_go()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ended.wait(), limit)
        return self._ended.is_set()

    def _let_go(self) -> None:
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1

    async def _watch(self) -> None:
        """Wait for the keeper's end; then remove the group, when the other keepers have ended, too."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(self._said, "rb", 0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._words = await reader.read()
        self._ended.set()
        self._let_go()
        for _ in range(_LOOKS):
            with contextlib.suppress(ray.exceptions.RayError):
                if await self._all_ended():
                    break
            await asyncio.sleep(_PAUSE)
        await _removed(self._group)
        os._exit(0)  # Ray ends this actor with its group, unless it has forgotten both

    async def _all_ended(self) -> bool:
        others = [name for name in self._names if name != self._names[self._number]]
        return all(await asyncio.gather(*map(_ended, others)))

    async def _miss(self) -> None:
        """End the channels of helpers that are gone without a word: else the agent would wait for their clients."""
        while True:
            await asyncio.sleep(_SILENCE / 4)
            late = time.monotonic() - _SILENCE
            for key in [*self._channels]:
                if self._heard.get(_helper_of(key), 0.0) < late:
                    await self.end(key)

    async def beat(self, helper: str) -> None:
        """Note that a helper lives."""
        self._heard[helper] = time.monotonic()

    # ── channels ────────────────────────────────────────────────────────────────────────

    async def run(self, key: str, words: list[str]) -> bool:
        """Run a command, as the channel `key`."""
        await self.beat(_helper_of(key))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            cwd="/",
            env=_environ(),
        )
        self._channels[key] = _CommandChannel(process)
        return True

    async def join(self, key: str, path: str) -> bool:
        """Connect to a unix socket, as the channel `key`; False if nobody listens there."""
        await self.beat(_helper_of(key))
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, path)
        except OSError:
            connection.close()
            return False
        self._channels[key] = _SocketChannel(connection)
        return True

    async def write(self, key: str, number: int, data: bytes) -> None:
        """Give a channel the part `number` of what is sent."""
        if (channel := self._channels.get(key)) is not None:
            await channel.write(number, data)

    async def read(self, key: str, number: int) -> bytes:
        """The part `number` of what a channel says; b"" at its end."""
        channel = self._channels.get(key)
        return b"" if channel is None else await channel.read(number)

    async def end(self, key: str) -> None:
        """End a channel."""
        if (channel := self._channels.pop(key, None)) is not None:
            await channel.end()


async def _removed(group: str) -> None:
    """Remove a group, and return once Ray knows none of that name: it may be away for a while."""
    pause = _PAUSE
    while True:
        try:
            ray.util.remove_placement_group(ray.util.get_placement_group(group))
        except ValueError:
            return
        except ray.exceptions.RayError:
            pause = min(2 * pause, _LONGEST_PAUSE)
        await asyncio.sleep(pause)


def _is_kept(folder: Path) -> bool:
    """Whether a keeper is ready; a folder that another user has made there is none of it."""
    try:
        return folder.lstat().st_uid == os.getuid() and (folder / "env").exists()
    except OSError:
        return False


def _helper_of(key: str) -> str:
    return key.rpartition("-")[0]


async def _ended(name: str) -> bool:
    """Whether the keeper of another actor has ended, or that actor has."""
    try:
        actor = ray.get_actor(name)
        return await asyncio.wait_for(actor.has_ended.remote(), _ASK_LIMIT)
    except (ValueError, ray.exceptions.RayActorError):
        return True
    except asyncio.TimeoutError:  # noqa: UP041 - the cluster's Python may be 3.10
        return False


def _environ() -> dict[str, str]:
    """The environment of this actor, without what Ray has set for this worker alone."""
    own = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_WORKER_", "RAY_CLIENT_MODE", "RAY_JOB_CONFIG_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}
