"""A second way to an agent: TCP and TLS from here, or by a tunnel, beside the commands of its engine.

srun carries 50 to 100 MB/s, each stream is a step of the job, and of two small writes the second may wait 40 ms; calls of
Ray's actors carry 30 MB/s. Where TCP to nodes is let through, and it is at most sites, commands and values go that way;
where it is not, the engine carries them. The agent listens at private addresses once it is asked to, with a key that this
client has made for this machine and told it through the engine, for the client's own key, which leaves it never.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from skyward_nb.providers.far.tls_stream import carried_by_tls
from skyward_nb.store.byte_streams import ByteStream
from skyward_nb.store.pool_key import MutualTLS, new_key
from skyward_nb.store.value_messages import ANSWERS, Address, AdmitPeers, PeersAdmitted
from skyward_nb.store.value_stream import StoreRefused, ValueStream, request
from skyward_nb.system.connections import watch

_LIMIT, _THROUGH_LIMIT = 4.0, 20.0
"""Seconds in which a connection for values is there, from here, and through a command."""
_SOON, _THROUGH_SOON = 1.5, 5.0
"""Of one for commands: somebody waits for it."""
_ASK_LIMIT, _MOST_ASK_LIMIT = 20.0, 60.0
"""Seconds in which an engine opens a stream, by which an agent is asked, and the agent answers: twice as many after each time in vain."""
_ASK_PAUSE, _ADDRESS_PAUSE, _MOST_PAUSE = 5.0, 60.0, 600.0
"""Seconds for which the engine carries all after it did not answer, and after nobody was reached at any address that an
agent had just named: twice as many after each time in vain."""
_MOST_DOUBLINGS = 10


ThroughFor = Callable[[Address], Sequence[str]]
"""Makes of an address the command here whose stdio is a connection to it."""
Asking = Callable[[], Awaitable[socket.socket | ByteStream]]
"""Opens a stream to the agent by its engine."""


class DirectConnection:
    """The agent of the machine `name`, by TCP from here, or `through` a command."""

    def __init__(self, name: str, through: ThroughFor | None = None) -> None:
        self._name = name
        self._through = through
        self._entering = asyncio.Lock()
        self._tls: MutualTLS | None = None
        self._last_tls: MutualTLS | None = None
        """Of the agent's last answer, also where it led nowhere since."""
        self._admitted = PeersAdmitted(())
        self._ask_limit = _ASK_LIMIT
        self._in_vain = 0
        """How many times in a row it was tried in vain."""
        self._shut_until = 0.0
        self._tunnels: set[asyncio.Task[int]] = set()

    async def values(self, asking: Asking) -> socket.socket | None:
        """A stream with TLS for values; None where there is no such way now."""
        return await self._opened(asking, self._value_stream)

    async def commands(self, asking: Asking) -> socket.socket | None:
        """A stream for commands and events, which TLS carries; None where there is no such way now."""
        return await self._opened(asking, self._command_stream)

    async def again(self) -> socket.socket | None:
        """A stream for commands by what the agent told before, for which no engine is asked; None where that leads nowhere."""
        async with self._entering:
            if self._last_tls is None:
                return None
            try:
                found = await self._command_stream(self._last_tls)
            except OSError:
                return None
            if found is not None:
                # Values go this way, too.
                self._tls, self._in_vain, self._shut_until = self._last_tls, 0, 0.0
            return found

    async def _opened(
        self, asking: Asking, entered: Callable[[MutualTLS], Awaitable[socket.socket | None]]
    ) -> socket.socket | None:
        async with self._entering:
            if time.monotonic() < self._shut_until:
                return None
            # What an agent named long ago is asked for again before it counts as closed.
            longer = 2**self._in_vain
            pause = longer * _ASK_PAUSE
            try:
                if self._tls is None:
                    self._tls = self._last_tls = await self._admit(asking)
                    pause = longer * _ADDRESS_PAUSE
                found = await entered(self._tls)
            except (OSError, StoreRefused):
                self._tls = None
                self._shut_until = time.monotonic() + min(pause, _MOST_PAUSE)
                self._in_vain = min(self._in_vain + 1, _MOST_DOUBLINGS)
                return None
            self._in_vain = 0
            return found

    async def _admit(self, asking: Asking) -> MutualTLS:
        """Have the agent listen for a new key; raises OSError, `StoreRefused`."""
        key, own = new_key(), new_key()
        limit = self._ask_limit
        # A slow engine has more time the next time.
        self._ask_limit = min(2 * limit, _MOST_ASK_LIMIT)
        until = time.monotonic() + limit

        def tick() -> None:
            if time.monotonic() > until:
                raise TimeoutError(f"{self._name} does not answer")

        stream = ValueStream(await asyncio.wait_for(asking(), limit), ANSWERS)
        stream.tick = tick
        try:
            ask = AdmitPeers(self._name, key, is_client=True, other=own.certificate)
            self._admitted = await asyncio.to_thread(request, stream, ask, PeersAdmitted)
        finally:
            stream.close()
        self._ask_limit = limit
        with TemporaryDirectory(prefix=".skyward-") as folder:
            return MutualTLS(own, Path(folder), key.certificate)

    # ── values ──────────────────────────────────────────────────────────────────────────

    async def _value_stream(self, tls: MutualTLS) -> socket.socket:
        fault = OSError("the agent has no private address")
        for address in self._admitted.addresses:
            try:
                limit = _THROUGH_LIMIT if self._through else _LIMIT
                connection = await self._connected(address, limit)
                return await asyncio.to_thread(_handshake, tls, connection, limit)
            except OSError as error:
                fault = error
        raise fault

    # ── commands ────────────────────────────────────────────────────────────────────────

    async def _command_stream(self, tls: MutualTLS) -> socket.socket | None:
        """A stream by whichever address answers first; None for an agent that knows no such way. Raises OSError."""
        trying = {
            asyncio.ensure_future(self._command(tls, address))
            for address in self._admitted.commands
        }
        fault: OSError | None = None
        first: socket.socket | None = None
        try:
            while trying and first is None:
                done, trying = await asyncio.wait(trying, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        found = task.result()
                    except OSError as error:
                        fault = error
                        continue
                    if first is None:
                        first = found
                    else:
                        found.close()
        finally:
            for task in trying:
                task.cancel()
                task.add_done_callback(_close_late)
        if first is None and fault is not None:
            raise fault
        return first

    async def _command(self, tls: MutualTLS, address: Address) -> socket.socket:
        limit = _THROUGH_SOON if self._through else _SOON
        connection = await self._connected(address, limit)
        return await carried_by_tls(connection, tls, limit)

    # ── both ────────────────────────────────────────────────────────────────────────────

    async def _connected(self, address: Address, limit: float) -> socket.socket:
        """A connection to an address; raises OSError."""
        if self._through is not None:
            return await self._tunnel(self._through(address))
        connection = await asyncio.to_thread(socket.create_connection, address, limit)
        watch(connection)
        return connection

    async def _tunnel(self, command: Sequence[str]) -> socket.socket:
        near, far = socket.socketpair()
        with far:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=far.fileno(),
                    stdout=far.fileno(),
                    stderr=asyncio.subprocess.DEVNULL,
                    env=os.environ,
                    start_new_session=True,
                )
            except BaseException:
                near.close()
                raise
        # It ends when its stdin does, and with the connection.
        ending = asyncio.ensure_future(process.wait())
        self._tunnels.add(ending)
        ending.add_done_callback(self._tunnels.discard)
        return near

    async def close(self) -> None:
        """Wait for the ends of tunnels whose streams are closed."""
        if self._tunnels:
            await asyncio.wait([*self._tunnels], timeout=_LIMIT)


def _handshake(tls: MutualTLS, connection: socket.socket, limit: float) -> socket.socket:
    try:
        connection.settimeout(limit)
        return tls.enter(connection)
    except BaseException:
        connection.close()
        raise


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    """Close a stream that came although it was given up."""
    with contextlib.suppress(BaseException):
        task.result().close()
