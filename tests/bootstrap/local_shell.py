"""This machine's /bin/sh as a `Shell`, with its own home folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path

from skyward_nb.bootstrap.remote_shell import (
    LINE,
    NotOffered,
    ScriptResult,
    Serve,
    spoken,
    unheard,
    untold,
)


class LocalShell:
    """Runs scripts here, with `home` as the home folder and `env` added to the environment."""

    def __init__(
        self,
        home: Path,
        env: Mapping[str, str] | None = None,
        *,
        name: str = "here",
        offers: bool = False,
    ) -> None:
        self.name = name
        self._offers = offers
        self.rounds: int = 0
        self._env = {**os.environ, "HOME": str(home), **(env or {})}
        for foreign in ("XDG_CACHE_HOME", "PYTHONPATH", "VIRTUAL_ENV"):
            if foreign not in (env or {}):
                self._env.pop(foreign, None)

    async def run(
        self,
        script: str,
        *,
        data: bytes = b"",
        limit: float = 60.0,
        heard: Callable[[str], None] = unheard,
    ) -> ScriptResult:
        """Run a script, which is read from stdin as over a line."""
        self.rounds += 1
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            LINE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            cwd=self._env["HOME"],
            start_new_session=True,
            limit=1 << 24,
        )
        try:
            return await asyncio.wait_for(_talk(process, spoken(script) + data, heard), limit)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def send(
        self,
        path: str,
        parts: Iterable[bytes],
        *,
        mode: int = 0o600,
        told: Callable[[int], None] = untold,
    ) -> None:
        """Write a new file and rename it."""
        _write(Path(path), parts, mode, told)

    @contextlib.asynccontextmanager
    async def offer(self, serve: Serve) -> AsyncGenerator[int]:
        """Serve a port of the loopback, if `offers` allows it."""
        if not self._offers:
            raise NotOffered("it is this machine")

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            finally:
                writer.close()

        served: set[asyncio.Task[None]] = set()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Only its task refers to a stream that waits.
            task = asyncio.ensure_future(talk(reader, writer))
            served.add(task)
            task.add_done_callback(served.discard)

        async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
            try:
                yield server.sockets[0].getsockname()[1]
            finally:
                for task in served:
                    task.cancel()
                await asyncio.gather(*served, return_exceptions=True)


def _write(path: Path, parts: Iterable[bytes], mode: int, told: Callable[[int], None]) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    sent = 0
    try:
        with new.open("wb") as file:
            for part in parts:
                sent += file.write(part)
                told(sent)
        new.chmod(mode)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


async def _talk(
    process: asyncio.subprocess.Process, stdin: bytes, heard: Callable[[str], None]
) -> ScriptResult:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    lines: list[str] = []

    async def give(stream: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # a script need not read it
                stream.write(stdin)
                await stream.drain()
        finally:
            stream.close()
        # Else asyncio (of 3.11.2) tells of it in any later test, as the collector finds it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await stream.wait_closed()

    async def hear(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            lines.append(line.decode(errors="replace"))
            heard(lines[-1].rstrip("\n"))

    _, out, _ = await asyncio.gather(
        give(process.stdin), process.stdout.read(), hear(process.stderr)
    )
    return ScriptResult(await process.wait(), out, "".join(lines))
