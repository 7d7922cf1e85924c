"""ProxyCommand of OpenSSH's config: a command that connects to a host, run as OpenSSH does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import PIPE, Process

_CHUNK = 4096
_MOST = 2000
_LAST = 1.0


class ProxyCommand:
    """A running command, and the socket whose bytes it exchanges with the host.

    Its stderr is kept apart; asyncssh's own implementation would take it for bytes of the host.
    """

    def __init__(self, command: str, process: Process, end: socket.socket) -> None:
        self.command = command
        self.end = end
        self._process = process
        self._said = b""
        loop = asyncio.get_running_loop()
        self._hearing = loop.create_task(self._hear())

    async def _hear(self) -> None:
        assert self._process.stderr is not None
        while said := await self._process.stderr.read(_CHUNK):
            self._said = (self._said + said)[-_MOST:]

    async def failure(self) -> str:
        """The failure of the command, in words; "" if it runs or has succeeded."""
        # Where this process itself stood still for the first half of the time, it hears in the second.
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST / 2):
                    await self._process.wait()
                    await asyncio.shield(self._hearing)
                    break
        if not self._process.returncode:
            return ""
        said = self._said.decode(errors="replace").strip()
        how = f"`{self.command}` ended with status {self._process.returncode}"
        return f"{how}: {said}" if said else how

    async def close(self) -> None:
        """End the command and its child processes."""
        self.end.close()
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self._process.returncode is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                # As in `ScriptSession.close`: this may be a task that is cancelled.
                await asyncio.wait_for(self._process.wait(), _LAST)
        self._hearing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._hearing


async def open_proxy(command: str) -> ProxyCommand:
    """Run a command by /bin/sh, with a socket as its stdin and stdout; raises OSError."""
    ours, theirs = socket.socketpair()
    try:
        # A new session: a terminal's interrupt is for the run, not for this command.
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", f"exec {command}",
            stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=PIPE, start_new_session=True,
        )  # fmt: skip
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ProxyCommand(command, process, ours)
