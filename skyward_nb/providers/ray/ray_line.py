"""The line to a node of a Ray cluster: scripts and streams through the actor there, by the helper."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncGenerator, Callable, Iterable

from skyward_nb.bootstrap.remote_shell import (
    LINE,
    NotOffered,
    ScriptResult,
    Serve,
    ShellGone,
    pieces,
    spoken,
)
from skyward_nb.providers.far.keeper import prelude
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.ray.group_words import group_name, keep_of
from skyward_nb.providers.ray.helper_client import RayHelper
from skyward_nb.providers.ray.messages import JoinSocket, RunCommand
from skyward_nb.providers.ray.ray_errors import RaySilent

_BEGUN, _REFUSED = b"+", b"-"
_CHUNK = 256 << 10
_HEAD = 5
_ANSWER_LIMIT = 20.0


class RayLine(Line):
    """A `Line` to the node `name`, whose actor is number `number` of the pool's group."""

    reaching: str = "reaching nodes"
    beat: float = 25.0
    advice: str = "no stream of its actor reaches it: see whether /tmp there is the actor's own"

    def __init__(
        self, name: str, pool_id: str, number: int, helper: RayHelper, place: str = ""
    ) -> None:
        self.name: str = name
        self.place: str = place or name
        self.number: int = 0
        self._group = group_name(pool_id)
        self._actor = number
        self._helper = helper
        self._prelude = prelude(keep_of(pool_id, number))
        helper.used_by(self)

    async def connect(self) -> None:
        """See that the helper runs; raises `Unreachable`."""
        try:
            self.number = await self._helper.started()
        except RaySilent as silent:
            raise Unreachable(self.name, str(silent)) from silent

    async def reached(self) -> int:
        """The number of the helper, which is started again if it has ended; raises OSError."""
        try:
            await self.connect()
        except Unreachable as fault:
            raise OSError(errno.EHOSTUNREACH, fault.why) from fault
        return self.number

    async def close(self) -> None:
        """Have the helper end, unless others use it."""
        await self._helper.let_go(self)

    # ── streams ─────────────────────────────────────────────────────────────────────────

    async def stream(self, path: str, over: int | None = None) -> socket.socket:
        """See `Line.stream`."""
        await self.reached()
        if over is not None and over != self.number:
            raise OSError(errno.ECONNRESET, "the helper was started again meanwhile")
        try:
            connection = await self._helper.open(JoinSocket(self._group, self._actor, path))
        except RaySilent as silent:
            raise OSError(errno.ECONNRESET, str(silent)) from silent
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                word = await asyncio.get_running_loop().sock_recv(connection, 1)
                said = await _rest(connection) if word not in (_BEGUN, _REFUSED) else ""
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise OSError(
                    errno.ETIMEDOUT, f"it did not answer in {_ANSWER_LIMIT:g} s"
                ) from None
            raise
        if word == _BEGUN:
            connection.setblocking(True)
            return connection
        connection.close()
        if word == _REFUSED:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        raise OSError(errno.ECONNRESET, said or "the helper has ended")

    @contextlib.asynccontextmanager
    async def offer(self, serve: Serve) -> AsyncGenerator[int]:
        """Raise `NotOffered`: nothing listens there for this side."""
        del serve
        if self.number >= 0:
            raise NotOffered("Ray alone reaches it, and nothing listens there for this side")
        yield 0

    # ── scripts ─────────────────────────────────────────────────────────────────────────

    async def _run(
        self,
        script: str,
        parts: Iterable[bytes],
        limit: float | None,
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> ScriptResult:
        try:
            words = ["/bin/sh", "-c", LINE]
            connection = await self._helper.open(RunCommand(self._group, self._actor, words))
        except RaySilent as silent:
            raise ShellGone(f"{self.name}: {silent}") from silent
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            async with asyncio.timeout(limit):
                talk = _Talk(self.name, reader, writer, heard, told)
                return await talk.run(spoken(f"{self._prelude}\n{script}"), parts)
        except ConnectionError as error:
            raise ShellGone(f"{self.name}: the line was lost: {error}") from error
        finally:
            # The command there ends with its connection.
            writer.transport.abort()


class _Talk:
    """One command on its connection: frames of stdin there, frames of its output back."""

    def __init__(
        self,
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer
        self._heard = heard
        self._told = told

    async def run(self, first: bytes, parts: Iterable[bytes]) -> ScriptResult:
        """Say all, and hear all; raises `ShellGone` if it did not come to its end."""
        word = await self._reader.read(1)
        if word != _BEGUN:
            said = (await self._reader.read()).decode(errors="replace")
            raise ShellGone(f"{self._name}: {said or 'the helper has ended'}")
        saying = asyncio.ensure_future(self._say(first, parts))
        try:
            ran = await self._hear()
        finally:
            saying.cancel()
            await asyncio.gather(saying, return_exceptions=True)
        if not saying.cancelled() and (error := saying.exception()) is not None:
            raise error
        return ran

    async def _say(self, first: bytes, parts: Iterable[bytes]) -> None:
        sent = 0
        # A script need not read all that it is given.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._send(first)
            for piece in pieces(parts):
                self._send(piece)
                await self._writer.drain()
                sent += len(piece)
                self._told(sent)
            self._send(b"")
            await self._writer.drain()

    def _send(self, data: bytes) -> None:
        self._writer.write(b"i" + len(data).to_bytes(4, "big") + data)

    async def _hear(self) -> ScriptResult:
        out, err, line = bytearray(), bytearray(), bytearray()
        while True:
            try:
                head = await self._reader.readexactly(_HEAD)
                data = await self._reader.readexactly(int.from_bytes(head[1:], "big"))
            except asyncio.IncompleteReadError as cut:
                said = cut.partial.lstrip(b"!").decode(errors="replace")
                raise ShellGone(f"{self._name}: {said or 'the line was lost'}") from None
            if head[:1] == b"x":
                if line:
                    self._heard(line.decode(errors="replace"))
                return ScriptResult(int(data), bytes(out), err.decode(errors="replace"))
            if head[:1] == b"o":
                out += data
                continue
            err += data
            line += data
            *whole, rest = line.split(b"\n")
            for each in whole:
                self._heard(each.decode(errors="replace"))
            line = bytearray(rest)


async def _rest(connection: socket.socket) -> str:
    text = b""
    while part := await asyncio.get_running_loop().sock_recv(connection, _CHUNK):
        text += part
    return text.decode(errors="replace")
