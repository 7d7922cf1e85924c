"""A line made of commands: an engine runs each of them on the machine, with its stdio as bytes.

A script is one command, and so is a stream. Nothing listens, and nothing stays there between two commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import posixpath
import socket
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

from skyward_nb.bootstrap.remote_shell import (
    LINE,
    ScriptResult,
    Serve,
    ShellGone,
    pieces,
    spoken,
    untold,
)
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.providers.far.loopback_port import served_at_loopback
from skyward_nb.providers.far.script_loop import MOST_DATA, KeptCommand, close_stdin, end
from skyward_nb.providers.host import RELAY

ArgvFor = Callable[[Sequence[str]], Sequence[str]]
"""Makes of a command on the machine the command here that runs it there."""

NOT_READY = 75
"""The exit status of `first` where the machine does not become ready: EX_TEMPFAIL of sysexits.h."""

_BEGUN = b"+"
_JOIN = f"""[ -r "$1/{RELAY}" ] || {{ printf -- -; exit; }}; exec /bin/sh "$1/{RELAY}" "$1/$2" """
_LINE_LIMIT = 1 << 24
_ANSWER_LIMIT = 60.0
"""Seconds in which a stream opens: a busy login node's srun takes half a minute. A caller that learns that the machine has
ended gives up before."""
_FIRST_LIMIT = 120.0
_IMAGE_LIMIT = 2000.0
"""Seconds in which what scripts run in is there, at most: `first` itself knows better."""
_LAST_LINES = 20
_BEAT = 25.0
"""Seconds between words to a machine that was waited for: its keeper ends when nobody uses it (`keeper.PATIENCE`)."""


class ExecLine(Line):
    """A `Line` to the machine `name`; `prelude` is run before each script there, in its shell.

    `first` is a script that returns when the machine is ready for others, and exits with `NOT_READY` if it will not be: it
    runs before the first one, and in the same command, or by `waits_by` where scripts run in what is not there before, as
    in a container. With `keeps_command`, scripts that follow one another within seconds share a command, and so does the
    stream after them. `environ` is the environment of the commands here, None: that of this process; lines of their stderr
    that are `noise` are left out.
    """

    reaching: str = "reaching machines"

    advice: str = "no command that is run there reaches it: see whether its Python can be started"

    def __init__(
        self,
        name: str,
        argv_for: ArgvFor,
        *,
        place: str = "",
        prelude: str = "",
        first: str = "",
        waits_by: ArgvFor | None = None,
        noise: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        keeps_command: bool = False,
    ) -> None:
        self.name: str = name
        self.place: str = place or name
        self.number: int = 0
        self._argv_for = argv_for
        self._prelude = prelude
        self._first = first
        self._waits_by = waits_by
        self._is_ready = False
        self._noise = tuple(noise)
        self._environ = environ
        self.beat: float = _BEAT if first else 0.0
        self._kept = KeptCommand(lambda: self._joined(["/bin/sh", "-c", LINE]))
        self._keeps_command = keeps_command
        self._streams: set[Process] = set()
        self._watching: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Nothing: each command reaches the machine by itself."""
        self.number = self.number or 1

    async def reached(self) -> int:
        """The number of the line, always 1: it is not made of a connection."""
        await self.connect()
        return self.number

    async def close(self) -> None:
        """End the streams."""
        await self._kept.close()
        for process in [*self._streams]:
            end(process)
        if self._watching:
            await asyncio.wait([*self._watching])

    # ── streams ─────────────────────────────────────────────────────────────────────────

    async def stream(self, path: str, over: int | None = None) -> socket.socket:
        """See `Line.stream`; each is a command of its own, or what was kept for scripts."""
        del over
        words = ["/bin/sh", "-c", _JOIN, RELAY, *posixpath.split(path)]
        said = deque[bytes](maxlen=_LAST_LINES)
        kept = await self._kept.take()
        process, near = (kept.process, kept.near) if kept else await self._joined(words)
        try:
            if kept is not None:
                await kept.become(words)
            watching = self._watched(process, said)
            near.setblocking(False)
            async with asyncio.timeout(_ANSWER_LIMIT):
                word = await asyncio.get_running_loop().sock_recv(near, 1)
                if not word:
                    await asyncio.wait([watching])
        except BaseException as error:
            near.close()
            end(process)
            if isinstance(error, TimeoutError):
                why = f"it did not answer in {_ANSWER_LIMIT:g} s"
                raise OSError(errno.ETIMEDOUT, why) from None
            raise
        if word == _BEGUN:
            near.setblocking(True)
            return near
        near.close()
        if word:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        raise OSError(errno.ECONNRESET, _text(said) or "the command that reaches it ended at once")

    async def _joined(self, words: Sequence[str]) -> tuple[Process, socket.socket]:
        """Start a command; it, and its stdin and stdout."""
        near, far = socket.socketpair()
        try:
            with far:
                return await self._start(words, far.fileno(), far.fileno()), near
        except BaseException:
            near.close()
            raise

    def _watched(self, process: Process, said: deque[bytes]) -> asyncio.Task[None]:
        """Watch a stream's command; from now on `close` ends it, also before the task has had its turn."""
        self._streams.add(process)
        watching = asyncio.ensure_future(self._watch(process, said))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return watching

    async def _watch(self, process: Process, said: deque[bytes]) -> None:
        """Keep the last words of a stream's command until it has ended."""
        assert process.stderr is not None
        try:
            async for line in process.stderr:
                if not self._is_noise(line.decode(errors="replace")):
                    said.append(line)
            await process.wait()
        finally:
            self._streams.discard(process)

    @contextlib.asynccontextmanager
    async def offer(self, serve: Serve) -> AsyncGenerator[int]:
        """See `Shell.offer`: one command there listens; what it accepts comes by its stdio."""
        async with served_at_loopback(self._listener, f"{self._prelude}\n", serve) as port:
            yield port

    async def _listener(self) -> Process:
        process = await self._start(["/bin/sh", "-c", LINE], PIPE, PIPE)
        self._watched(process, deque[bytes](maxlen=_LAST_LINES))
        return process

    # ── scripts ─────────────────────────────────────────────────────────────────────────

    async def _run(
        self,
        script: str,
        parts: Iterable[bytes],
        limit: float | None,
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> ScriptResult:
        waits = self._first if not self._is_ready else ""
        if waits and self._waits_by is not None:
            await self._ran(self._waits_by, waits, [], _IMAGE_LIMIT, heard, untold, may_wait=True)
            waits = ""
        if waits and limit is not None:
            limit += _FIRST_LIMIT
        whole = f"{waits}\n{self._prelude}\n{script}"
        ran = await self._ran(
            self._argv_for, whole, parts, limit, heard, told, may_wait=bool(waits)
        )
        self._is_ready = True
        return ran

    async def _ran(
        self,
        argv_for: ArgvFor,
        script: str,
        parts: Iterable[bytes],
        limit: float | None,
        heard: Callable[[str], None],
        told: Callable[[int], None],
        *,
        may_wait: bool,
    ) -> ScriptResult:
        # Its first byte says that it runs there: else the words are those of the command here.
        whole = f"printf {_BEGUN.decode()}\n{script}"
        data = _small(parts) if self._keeps_command and argv_for is self._argv_for else None
        if data is not None and not self._kept.is_busy:
            ran = await self._kept.run(whole, data, limit, self._heard(heard))
            told(len(data))
        else:
            ran = await self._by_itself(argv_for, spoken(whole), parts, limit, heard, told)
        said = _last(self._without_noise(ran.err)) or _last(ran.err)
        if not ran.out.startswith(_BEGUN):
            raise ShellGone(f"{self.name}: {said or f'it ended with {ran.code}'}")
        if ran.code < 0:
            raise ShellGone(f"{self.name}: the command was ended here by signal {-ran.code}")
        if may_wait and ran.code == NOT_READY:
            raise ShellGone(f"{self.name}: {said}")
        return ScriptResult(ran.code, ran.out[len(_BEGUN) :], self._without_noise(ran.err))

    async def _by_itself(
        self,
        argv_for: ArgvFor,
        first: bytes,
        parts: Iterable[bytes],
        limit: float | None,
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> ScriptResult:
        process = await self._start(["/bin/sh", "-c", LINE], PIPE, PIPE, argv_for)
        try:
            async with asyncio.timeout(limit):
                return await _talk(process, first, parts, self._heard(heard), told)
        finally:
            if process.returncode is None:
                end(process)
                await process.wait()

    def _heard(self, heard: Callable[[str], None]) -> Callable[[str], None]:
        return lambda line: None if self._is_noise(line) else heard(line)

    def _is_noise(self, line: str) -> bool:
        return any(each in line for each in self._noise)

    def _without_noise(self, text: str) -> str:
        return "".join(line for line in text.splitlines(True) if not self._is_noise(line))

    async def _start(
        self, words: Sequence[str], stdin: int, stdout: int, argv_for: ArgvFor | None = None
    ) -> Process:
        """Start a command; raises `ShellGone` where there is no such program here."""
        argv = (argv_for or self._argv_for)(words)
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin,
                stdout=stdout,
                stderr=PIPE,
                env=self._environ,
                limit=_LINE_LIMIT,
                # An interrupt of the notebook is for its kernel alone.
                start_new_session=True,
            )
        except FileNotFoundError:
            raise ShellGone(f"{self.name}: there is no program {argv[0]} here") from None


def here(environ: Mapping[str, str] | None = None) -> ExecLine:
    """A line to this machine itself."""
    return ExecLine("this machine", list, environ=environ)


async def _talk(
    process: Process,
    first: bytes,
    parts: Iterable[bytes],
    heard: Callable[[str], None],
    told: Callable[[int], None],
) -> ScriptResult:
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    lines: list[str] = []

    async def say() -> None:
        sent = 0
        try:
            # A script need not read all that it is given.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stdin.write(first)
                for piece in pieces(parts):
                    stdin.write(piece)
                    await stdin.drain()
                    sent += len(piece)
                    told(sent)
                await stdin.drain()
        finally:
            # Where a part cannot be read, what came is known not to be whole.
            close_stdin(process)

    async def hear() -> None:
        async for line in stderr:
            lines.append(line.decode(errors="replace"))
            heard(lines[-1].rstrip("\n"))

    saying = asyncio.ensure_future(say())
    try:
        out, _ = await asyncio.gather(stdout.read(), hear())
        code = await process.wait()
    finally:
        saying.cancel()
        await asyncio.gather(saying, return_exceptions=True)
    if not saying.cancelled() and (error := saying.exception()) is not None:
        raise error
    return ScriptResult(code, out, "".join(lines))


def _small(parts: Iterable[bytes]) -> bytes | None:
    """The stdin of a script that may share a command; None for what is long, or no text."""
    data = b"".join(parts) if isinstance(parts, list) else None
    return data if data is not None and len(data) <= MOST_DATA and b"\0" not in data else None


def _text(said: Iterable[bytes]) -> str:
    return _last(b"".join(said).decode(errors="replace"))


def _last(text: str) -> str:
    return text.strip().rpartition("\n")[2]
