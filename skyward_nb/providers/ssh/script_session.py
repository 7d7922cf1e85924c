"""One script of /bin/sh in one session of an SSH connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import asyncssh

from skyward_nb.bootstrap.remote_shell import LINE, ScriptResult, ShellGone, pieces, spoken
from skyward_nb.providers.ssh.stream import whole

_END_LIMIT = 1.0
_FIRST_PAUSE = 0.005
_MOST_PAUSE = 3.0


class ScriptSession:
    """A shell at the other end of a connection to the host `name`, for one script."""

    def __init__(self, name: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._name = name
        self._process = process

    @classmethod
    async def open(cls, name: str, connection: asyncssh.SSHClientConnection) -> ScriptSession:
        """Start the shell; raises `ShellGone`."""
        pause = _FIRST_PAUSE
        while True:
            try:
                opening = connection.create_process(
                    LINE, encoding=None, request_pty=False, x11_forwarding=False
                )
                return cls(name, await whole(opening, asyncssh.SSHClientProcess.close))
            except asyncssh.ChannelOpenError as error:
                # If sshd allows one session, the one before may count for a moment more.
                if connection.is_closed() or pause > _MOST_PAUSE:
                    why = f"sshd opens no session there: {error.reason}"
                    raise ShellGone(f"{name}: {why}") from error
            except asyncssh.Error as error:
                raise ShellGone(f"{name}: {error.reason}") from error
            except ConnectionError as error:
                raise ShellGone(f"{name}: the line was lost: {error}") from error
            await asyncio.sleep(pause)
            pause *= 2

    async def run(
        self,
        script: str,
        parts: Iterable[bytes],
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> ScriptResult:
        """Run a script with `parts` as its stdin; see `remote_shell.Shell`.

        Raises `ShellGone`, `asyncssh.Error` and ConnectionError if the connection is lost.
        """
        process = self._process
        lines: list[str] = []

        async def hear() -> None:
            async for line in process.stderr:
                lines.append(line.decode(errors="replace"))
                heard(lines[-1].rstrip("\n"))

        saying = asyncio.get_running_loop().create_task(self._say(script, parts, told))
        try:
            out, _ = await asyncio.gather(process.stdout.read(), hear())
            await process.wait_closed()
        finally:
            # A script that ended without reading all of its stdin does not get the rest.
            saying.cancel()
            with contextlib.suppress(asyncio.CancelledError, asyncssh.Error, OSError):
                await saying
        if process.returncode is None:
            raise ShellGone(f"{self._name}: the line was lost while a script ran")
        return ScriptResult(process.returncode, out, "".join(lines))

    async def _say(self, script: str, parts: Iterable[bytes], told: Callable[[int], None]) -> None:
        sent, stdin = 0, self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended; its status says how
            stdin.write(spoken(script))
            for piece in pieces(parts):
                stdin.write(piece)
                await stdin.drain()
                sent += len(piece)
                told(sent)
            stdin.write_eof()

    async def close(self) -> bool:
        """End the script, and wait a moment; whether it has ended."""
        process = self._process
        if process.exit_status is None:
            # Some versions of sshd pass signals on, and answer the close only after the script's end.
            with contextlib.suppress(OSError):
                process.terminate()
        process.close()
        try:
            # In a task that is cancelled, `asyncio.timeout` of Python 3.11.0 to 3.11.3 has no TimeoutError.
            await asyncio.wait_for(process.wait_closed(), _END_LIMIT)
        except TimeoutError:
            return False
        except (asyncssh.Error, ConnectionError):
            """It has ended with its line."""
        return True
