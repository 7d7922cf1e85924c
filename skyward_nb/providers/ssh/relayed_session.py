"""The way to a socket on a host: forwarded by sshd, or, where it forwards none, by a program there and its stdio."""

from __future__ import annotations

import asyncio
import posixpath
import shlex

import asyncssh

from skyward_nb.providers.host import RELAY

_MARK = b"\nsky=joins\n"
"""What files of the login shell print comes before it."""
_JOIN = f"""printf '\\nsky=joins\\n'; [ -r "$1/{RELAY}" ] || {{ printf -- -; exit; }}; exec /bin/sh "$1/{RELAY}" "$1/$2" """
_MOST_NOISE = 1 << 16
_CONNECT_FAILED = 2
"""SSH_OPEN_CONNECT_FAILED (RFC 4254, section 5.1)."""


async def joined(
    connection: asyncssh.SSHClientConnection,
    session: asyncssh.SSHUNIXSession[bytes],
    path: str,
    *,
    relayed: bool,
    window: int,
    most: int,
) -> None:
    """Join a session to the unix socket at `path` on the host, `relayed` by a program there or forwarded by sshd.

    Raises `asyncssh.ChannelOpenError` if nothing listens.
    """
    if not relayed:
        await connection.create_unix_connection(
            lambda: session, path, window=window, max_pktsize=most
        )
        return
    command = shlex.join(["/bin/sh", "-c", _JOIN, RELAY, *posixpath.split(path)])
    passing = _RelayedSession(session)
    channel, _ = await connection.create_session(
        lambda: passing, command, encoding=None, window=window, max_pktsize=most
    )
    if not await passing.is_joined:
        channel.close()
        raise asyncssh.ChannelOpenError(_CONNECT_FAILED, "nobody listens there")


class _RelayedSession(asyncssh.SSHClientSession[bytes]):
    """Passes all on to a session as of a socket, once the program there has joined both."""

    def __init__(self, session: asyncssh.SSHUNIXSession[bytes]) -> None:
        self._session = session
        self._early = b""
        self.is_joined: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """The channel is there."""
        self._session.connection_made(chan)  # pyright: ignore[reportArgumentType] - what a session uses both have

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Pass on what comes after the word that the socket is joined."""
        if datatype is not None:
            return
        if not self.is_joined.done():
            _, mark, rest = (self._early + data).partition(_MARK)
            if not mark or not rest:
                self._early = (self._early + data)[-_MOST_NOISE:]
                return
            self._answered(is_joined=rest[:1] == b"+")
            data, self._early = rest[1:], b""
        if data:
            self._session.data_received(data, None)

    def _answered(self, *, is_joined: bool) -> None:
        if not self.is_joined.done():
            self.is_joined.set_result(is_joined)
            if is_joined:
                self._session.session_started()

    def eof_received(self) -> bool:
        """The socket says no more."""
        self._answered(is_joined=False)
        return bool(self._session.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._answered(is_joined=False)
        self._session.connection_lost(exc)

    def pause_writing(self) -> None:
        """The host takes no more for now."""
        self._session.pause_writing()

    def resume_writing(self) -> None:
        """The host takes more."""
        self._session.resume_writing()
