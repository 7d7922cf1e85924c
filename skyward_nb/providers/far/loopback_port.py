"""A port of a machine's loopback that is served here, over the stdio of one command there."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import socket
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

from skyward_nb.bootstrap.remote_shell import NotOffered, Serve, spoken
from skyward_nb.providers.far import loopback_listener
from skyward_nb.providers.far.loopback_listener import HEAD
from skyward_nb.providers.far.script_loop import close_stdin

_PIECE = 1 << 16
_FIRST_LIMIT = 30.0
_LAST_LIMIT = 5.0
_NO_PYTHON = 76
_RUN = """
for python in python3 python /usr/libexec/platform-python; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null </dev/null && exec "$python" -I -S -c {program}
done
exit {no_python}
"""


@contextlib.asynccontextmanager
async def served_at_loopback(
    started: Callable[[], Awaitable[Process]], prelude: str, serve: Serve
) -> AsyncGenerator[int]:
    """Within this context, the machine listens at a port for this side; raises `NotOffered`.

    `started` starts the command that reads a script there, and whose stdio are pipes.
    """
    process = await started()
    try:
        port = _Port(process, serve)
        number = await port.begin(prelude + _script())
        try:
            yield number
        finally:
            await port.end()
    finally:
        close_stdin(process)  # the program ends with it
        try:
            # As in `ScriptSession.close`: this may be a task that is cancelled.
            await asyncio.wait_for(process.wait(), _LAST_LIMIT)
        except TimeoutError:
            process.kill()
            await process.wait()


def _script() -> str:
    text = Path(loopback_listener.__file__).read_text()
    # Pythons older than 3.7 do not know it, and nothing there needs it.
    program = text.replace("from __future__ import annotations\n", "")
    return _RUN.format(program=shlex.quote(program), no_python=_NO_PYTHON)


class _Port:
    """Serves the connections that a machine accepts, each a pair of sockets here."""

    def __init__(self, process: Process, serve: Serve) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._to, self._from = process.stdin, process.stdout
        self._serve = serve
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: set[int] = set()
        """Connections that were served; what they still send is for nobody."""

    async def begin(self, script: str) -> int:
        """Start the program; its port. Raises `NotOffered`."""
        self._to.write(spoken(script))
        try:
            async with asyncio.timeout(_FIRST_LIMIT):
                _, port = await self._frame()
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            raise NotOffered(await self._why()) from error
        self._begin(self._receive())
        return int(port)

    async def _why(self) -> str:
        self._to.close()
        try:
            async with asyncio.timeout(_LAST_LIMIT):
                code = await self._process.wait()
        except TimeoutError:
            code = None
        if code == _NO_PYTHON:
            return "it has no Python 3 yet that could listen there for this side"
        return "the program that would listen there for this side did not start"

    async def end(self) -> None:
        """Serve nobody any more."""
        self._to.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _frame(self) -> tuple[int, bytes]:
        number, length = HEAD.unpack(await self._from.readexactly(HEAD.size))
        return number, await self._from.readexactly(length)

    async def _receive(self) -> None:
        """What connections send there, until the line is lost."""
        try:
            while True:
                number, data = await self._frame()
                writer = self._writers.get(number)
                if writer is None and data and number not in self._over:
                    writer = await self._welcome(number)
                if writer is None:
                    continue
                with contextlib.suppress(OSError):
                    if data:
                        writer.write(data)
                        await writer.drain()
                    else:
                        writer.write_eof()
        except (asyncio.IncompleteReadError, OSError):
            """The line is lost; what is served there ends."""
        finally:
            for writer in self._writers.values():
                writer.close()

    async def _welcome(self, number: int) -> asyncio.StreamWriter:
        """Begin to serve a connection; where its bytes go."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=theirs)
        self._writers[number] = writer
        self._begin(self._talk(ours))
        self._begin(self._answer(number, reader, writer))
        return writer

    async def _talk(self, end: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=end)
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """What is answered to a connection, until that is all."""
        try:
            data = b"-"
            while data:
                try:
                    data = await reader.read(_PIECE)
                except OSError:
                    data = b""
                self._to.write(HEAD.pack(number, len(data)) + data)
                await self._to.drain()
        except OSError:
            """The line is lost."""
        finally:
            self._writers.pop(number, None)
            self._over.add(number)
            writer.close()
