"""The line to one host: one SSH connection, made anew when it is lost, with its scripts and streams.

Scripts run in sessions, one at a time, as sshd may allow no more (MaxSessions): only one that takes long has
others beside it, where sshd allows that. Streams need no session, but where sshd forwards none.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import posixpath
import shlex
import socket
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import asyncssh

from skyward_nb.bootstrap.remote_shell import (
    NotOffered,
    ScriptResult,
    Serve,
    ShellGone,
    unheard,
    untold,
)
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.providers.far.login_errors import LoginRefused, UnknownKey, Unreachable
from skyward_nb.providers.ssh.dialer import LOGIN_LIMIT, Dialer
from skyward_nb.providers.ssh.extra_connections import ExtraConnections
from skyward_nb.providers.ssh.remote_forward import served_port
from skyward_nb.providers.ssh.script_session import ScriptSession
from skyward_nb.providers.ssh.stream import BulkGate, forward
from skyward_nb.providers.ssh.value_channel import ValueChannel, direct
from skyward_nb.words.hosts import Host

T = TypeVar("T", bound=socket.socket | ValueChannel)
Opening = Callable[[BulkGate, bool], Coroutine[Any, Any, T]]
"""Opens something over a connection, relayed by a program there or not."""
_AGAIN = 5.0
_FIRST_TRIES = 2
"""Of a first login to a pool that is there, which sshd may drop: no more, as the host may be gone."""
_REFUSED = 30.0
_MOST_REFUSED = 300.0
_QUICK = 5.0
_MARK_LIMIT = 10.0
_LEAST_SESSIONS = 2
"""Sessions beside those of streams: a script, and a channel for values."""


class HostLine(Line):
    """A `Line` to a host."""

    reaching: str = "logging in to hosts"
    beat: float = 0.0
    advice: str = (
        "sshd there does not let anybody reach it. The sshd_config there has to allow "
        "AllowTcpForwarding and AllowStreamLocalForwarding (at least `local`), and not "
        "DisableForwarding, or MaxSessions of 3 or more; a key in authorized_keys must not be `restrict` or "
        "`no-port-forwarding`"
    )

    def __init__(self, host: Host, dialer: Dialer) -> None:
        self.host = host
        self.name: str = str(host)
        self._dialer = dialer
        self._connection: asyncssh.SSHClientConnection | None = None
        self._gate: BulkGate | None = None
        self._lanes: ExtraConnections | None = None
        self._dialing = asyncio.Lock()
        self._session = asyncio.Lock()
        self._is_closed = False
        self._refusal: Unreachable | None = None
        self._refused_for = _REFUSED
        self._refused_until = 0.0
        self._again = 2 * _AGAIN
        """Time limit of a login when the line was lost, or of the first one to a pool that is there, in seconds."""
        self.number: int = 0
        """The number of connections so far, the current one included."""
        dialer.used_by(self)

    @property
    def place(self) -> str:
        """The user and the address of the login: `ann@10.0.0.11 port 22`; "" before it."""
        if self._connection is None:
            return ""
        address, port, *_ = self._connection.get_extra_info("peername") or ("", "")
        return f"{self._connection.get_extra_info('username')}@{address} port {port}"

    # ── the connection ──────────────────────────────────────────────────────────────────

    async def connect(self) -> None:
        """Log in; raises `Unreachable`."""
        await self._connected()

    async def _connected(self, *, again: bool = False) -> asyncssh.SSHClientConnection:
        """The current connection, or a new one; with `again`, one short attempt first."""
        async with self._dialing:
            known = self._connection
            if known is not None and not known.is_closed():
                return known
            if self._is_closed:
                raise Unreachable(self.name, "it was let go")
            self._connection, took = await self._dialed(again=again)
            self.number += 1
            self._gate = BulkGate(self._connection)
            # A connection over a jump host is no faster than that host's. A slow login may need a
            # person, who touches a key, for example.
            is_alone = took > _QUICK or self._gate.is_tunnelled
            before = self._lanes
            self._lanes = ExtraConnections(self._gate, None if is_alone else self._dialed_beside)
            if before is not None:
                await before.close()
            return self._connection

    async def _dialed_beside(self, path: str) -> BulkGate:
        """One more connection, if the folder of that path is there; raises `Unreachable`.

        One name may stand for several machines.
        """
        connection = await self._dialer.dial(self.host, self._again, 1)
        try:
            async with asyncio.timeout(_MARK_LIMIT):
                first, found = await asyncio.gather(
                    self.run(_mark(path)), self._ran_on(connection, _mark(path))
                )
            if first.out == found.out and not first.code:
                return BulkGate(connection)
            why = "another machine answers there now and then"
        except (asyncssh.Error, OSError, ShellGone, AttributeError) as error:
            # OSError includes TimeoutError; AttributeError: the connection ended at once.
            why = f"one more connection was lost at once: {error}"
        except BaseException:
            connection.abort()
            raise
        connection.abort()
        raise Unreachable(self.name, why)

    async def _ran_on(self, connection: asyncssh.SSHClientConnection, script: str) -> ScriptResult:
        session = await ScriptSession.open(self.name, connection)
        return await session.run(script, (), unheard, untold)

    async def _dialed(self, *, again: bool) -> tuple[asyncssh.SSHClientConnection, float]:
        """A new connection, and the seconds that the login took; slow hosts get more time at each attempt."""
        began = time.monotonic()
        if again and self._refusal is not None and began < self._refused_until:
            raise self._refusal.with_traceback(None)
        try:
            if again:
                tries = 1 if self.number else _FIRST_TRIES
                connection = await self._dialer.dial(self.host, self._again, tries)
            else:
                connection = await self._dialer.dial(self.host)
        except (LoginRefused, UnknownKey) as refusal:
            # A host may block clients that try again and again.
            self._refusal = refusal
            self._refused_until = time.monotonic() + self._refused_for
            self._refused_for = min(2 * self._refused_for, _MOST_REFUSED)
            raise
        except Unreachable:
            self._again = min(2 * self._again, LOGIN_LIMIT)
            raise
        took = time.monotonic() - began
        self._again = min(max(_AGAIN, 2 * took), LOGIN_LIMIT)
        self._refusal, self._refused_for = None, _REFUSED
        return connection, took

    def drop(self) -> None:
        """Abort a connection that does not answer: the next use makes a new one."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def close(self) -> None:
        """Hang up."""
        self._is_closed = True
        async with self._dialing:
            connection, self._connection = self._connection, None
            lanes, self._lanes = self._lanes, None
            if lanes is not None:
                await lanes.close()
            if connection is not None:
                connection.abort()
                await connection.wait_closed()
        await self._dialer.let_go(self)

    # ── streams ─────────────────────────────────────────────────────────────────────────

    async def reached(self) -> int:
        """The number of the connection, which is made anew if it was lost; raises OSError."""
        await self._reached()
        return self.number

    async def _reached(self) -> asyncssh.SSHClientConnection:
        try:
            return await self._connected(again=True)
        except Unreachable as fault:
            raise OSError(errno.EHOSTUNREACH, fault.why) from fault

    async def stream(self, path: str, over: int | None = None) -> socket.socket:
        """A stream of frames to a unix socket there, over the connection numbered `over` or a new one.

        Raises `ConnectionRefusedError` if nothing listens there, and OSError if the host, or that
        connection, cannot be used now.
        """
        lanes = await self._there(over)
        return await self._opened(
            lanes.first, lambda gate, relayed: forward(gate, path, relayed=relayed)
        )

    async def way(self, path: str, over: int | None = None) -> ValueChannel:
        """A channel for values to a unix socket there; arguments and errors are those of `stream`.

        To a far host, several channels use several connections. Where programs there reach sockets, each is
        a session: there is one channel at a time, and the next one gets EBUSY.
        """
        lanes = await self._there(over)
        seat = lanes.take()

        async def opening(gate: BulkGate, relayed: bool) -> ValueChannel:
            if relayed and seat.number:
                raise OSError(errno.EBUSY, "there is a channel for values, and sessions for one")
            return await direct(gate, path, seat.leave, relayed=relayed)

        try:
            gate = await lanes.gate(seat, path)
            began = time.monotonic()
            way = await self._opened(gate, opening)
        except BaseException:
            seat.leave()
            raise
        lanes.answered(time.monotonic() - began)
        return way

    async def _there(self, over: int | None) -> ExtraConnections:
        """The connections, made anew if the first was lost; raises OSError."""
        await self._reached()
        if over is not None and over != self.number:
            raise OSError(errno.ECONNRESET, "the connection was lost meanwhile")
        assert self._lanes is not None
        return self._lanes

    async def _opened(self, gate: BulkGate, opening: Opening[T]) -> T:
        """What is opened: sshd forwards it, or, where it may forward nothing, a program there does."""
        relays = gate.relays
        try:
            opened = await self._opened_once(gate, opening, relayed=bool(relays))
        except ConnectionRefusedError:
            if relays is not None:
                raise
        else:
            if relays is None:
                gate.relays = False
            return opened
        async with gate.finding_out:
            if gate.relays is False:
                # It forwarded another one meanwhile: nobody listens at this one.
                return await self._opened_once(gate, opening, relayed=False)
            opened = await self._opened_once(gate, opening, relayed=True)
            try:
                if gate.relays is None:
                    await self._check_sessions(gate)
            except BaseException:
                opened.close()
                raise
            gate.relays = True
            return opened

    async def _check_sessions(self, gate: BulkGate) -> None:
        """Raise `ConnectionRefusedError` where a stream by a program leaves no sessions for scripts and values."""
        least = _LEAST_SESSIONS
        async with contextlib.AsyncExitStack() as opened:
            try:
                async with asyncio.timeout(0):
                    await opened.enter_async_context(self._session)
            except TimeoutError:
                least -= 1  # that of a script, which may take an hour
            try:
                async with asyncio.timeout(LOGIN_LIMIT):
                    for _ in range(least):
                        session = await ScriptSession.open(self.name, gate.connection)
                        opened.push_async_callback(session.close)
            except ShellGone as gone:
                raise ConnectionRefusedError(errno.ECONNREFUSED, str(gone)) from gone

    async def _opened_once(self, gate: BulkGate, opening: Opening[T], *, relayed: bool) -> T:
        try:
            return await gate.patiently(opening(gate, relayed))
        except TimeoutError as late:
            if gate is self._gate:
                self.drop()
            else:
                gate.connection.abort()
            raise OSError(errno.ETIMEDOUT, str(late)) from None
        except asyncssh.ChannelOpenError as error:
            if gate.connection.is_closed():
                raise OSError(errno.ECONNRESET, "the connection is lost") from error
            raise ConnectionRefusedError(errno.ECONNREFUSED, error.reason) from error
        except asyncssh.Error as error:
            raise OSError(errno.ECONNRESET, error.reason) from error

    @contextlib.asynccontextmanager
    async def offer(self, serve: Serve) -> AsyncGenerator[int]:
        """See `Shell.offer`; the connections are bulk."""
        connection = await self._ready()
        assert self._gate is not None
        async with contextlib.AsyncExitStack() as stack:
            try:
                port = await stack.enter_async_context(served_port(connection, self._gate, serve))
            except asyncssh.ChannelListenError:
                raise NotOffered(
                    "its sshd forwards no port of its own to this side (AllowTcpForwarding, "
                    "DisableForwarding or PermitListen in sshd_config, or the key's options)"
                ) from None
            except (asyncssh.Error, OSError) as error:
                raise ShellGone(f"{self.name}: the line was lost: {error}") from error
            yield port

    # ── scripts ─────────────────────────────────────────────────────────────────────────

    async def _run(
        self,
        script: str,
        parts: Iterable[bytes],
        limit: float | None,
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> ScriptResult:
        connection = await self._ready()
        async with asyncio.timeout(limit), contextlib.AsyncExitStack() as turn:
            session = await self._session_beside(turn, connection)
            is_beside = session is not None
            if session is None:
                if connection is not self._connection:
                    # The script before this one aborted it.
                    connection = await self._ready()
                session = await ScriptSession.open(self.name, connection)
            try:
                return await session.run(script, parts, heard, told)
            except (asyncssh.Error, ConnectionError) as error:
                raise ShellGone(f"{self.name}: the line was lost: {error}") from error
            finally:
                has_ended = await session.close() or is_beside
                if not has_ended and self._connection is connection:
                    self.drop()

    async def _session_beside(
        self, turn: contextlib.AsyncExitStack, connection: asyncssh.SSHClientConnection
    ) -> ScriptSession | None:
        """A session beside that of a script that takes long, if sshd allows it; else None, once it is one's turn."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_QUICK):
                await turn.enter_async_context(self._session)
            return None
        if connection is self._connection:
            with contextlib.suppress(ShellGone):
                return await ScriptSession.open(self.name, connection)
        await turn.enter_async_context(self._session)
        return None

    async def _ready(self) -> asyncssh.SSHClientConnection:
        try:
            return await self._connected()
        except Unreachable as fault:
            raise ShellGone(f"{self.name}: {fault.why}") from fault


def _mark(path: str) -> str:
    """A script that prints a mark of this machine and of the folder of `path`."""
    folder = shlex.quote(posixpath.dirname(path))
    return f"cat /proc/sys/kernel/random/boot_id 2>/dev/null; ls -di {folder}"
