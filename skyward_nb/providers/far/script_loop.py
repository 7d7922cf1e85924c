"""One command of an engine on a machine, in which scripts run one after another, each in a shell of its own.

To begin a command takes an engine a while (srun 0.1 s, much more on a busy machine); the next script of a loop begins at
once. In the end a loop may become a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence

from skyward_nb.bootstrap.remote_shell import LINE, ScriptResult, one_line, spoken

_CHUNK = 1 << 16
_REST = 10.0
"""Seconds after a script for which its command is kept for the next one."""
_ANSWER = 5.0
"""Seconds in which a command that was kept answers that it is there; a new one takes its place else."""
_STUBBORN = 3.0
"""Seconds that a command has to end, before it is killed."""
MOST_DATA = 1 << 14
"""Bytes of stdin for a script of a loop; of more, a command of their own is the way."""
_LOOP = rf"""IFS= read -r end
while IFS= read -r script; do
  [ "$script" ] || {{ printf '%s0\n' "$end"; continue; }}
  IFS= read -r data || exit
  [ "$data" != "$end" ] || eval "exec $(printf %b "$script")"
  {{
    {{ printf '%s\n' "$script"; printf %b "$data"; }} | {LINE}
    code=$?
    echo "$end" >&2
    printf '%s%s\n' "$end" "$code"
  }} | dd obs={_CHUNK} 2>/dev/null
done"""
"""Reads a word that ends all answers, then lines: a script and its stdin, a command to become and that word, or nothing,
which is answered by that word.

Nothing is in a process list: `printf` is the shell's own. What a script says is one write, as the first one and a second
one that srun carries are 40 ms apart.
"""


class ScriptLoop:
    """Scripts in a `process` that runs `LINE` there, and whose stdin and stdout are the other end of `near`."""

    def __init__(self, process: Process, near: socket.socket) -> None:
        self.process: Process = process
        self.near: socket.socket = near
        self._end = secrets.token_hex(16).encode()

    @property
    def is_there(self) -> bool:
        """Whether its command runs, as far as is known."""
        return self.process.returncode is None

    async def begin(self) -> None:
        """Send the program there."""
        self.near.setblocking(False)
        await self._say(one_line(_LOOP), self._end)

    async def run(self, script: str, data: bytes, heard: Callable[[str], None]) -> ScriptResult:
        """Run a script with so much `data`, which has no NUL, as its stdin; see `Shell.run`.

        Where its command has ended, so has the script, with the command's status.
        """
        text = data.decode("latin-1").replace("\\", r"\\").replace("\n", r"\n")
        await self._say(spoken(script).rstrip(b"\n"), text.encode("latin-1"))
        (out, code), err = await asyncio.gather(self._heard_out(), self._heard_err(heard))
        if code is None:
            code = await self.process.wait()
        return ScriptResult(code, out, err)

    async def answers(self) -> bool:
        """Whether its command still serves: it may have been killed unseen. Nothing is run for that."""
        try:
            async with asyncio.timeout(_ANSWER):
                await self._say(b"")
                return (await self._heard_out())[1] is not None
        except TimeoutError:
            return False

    async def become(self, words: Sequence[str]) -> None:
        """Have its command be another one from now on, with the same stdin and stdout."""
        await self._say(one_line(shlex.join(words)), self._end)

    async def close(self) -> None:
        """End its command, and what runs in it."""
        self.near.close()
        end(self.process)
        await self.process.wait()

    async def _say(self, *lines: bytes) -> None:
        # Where it has ended, it does not answer either.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            whole = b"".join(line + b"\n" for line in lines)
            await asyncio.get_running_loop().sock_sendall(self.near, whole)

    async def _heard_out(self) -> tuple[bytes, int | None]:
        """What a script says, and its exit status; None where the command has ended."""
        loop, found = asyncio.get_running_loop(), bytearray()
        while not (found.endswith(b"\n") and (at := found.rfind(self._end)) >= 0):
            try:
                more = await loop.sock_recv(self.near, _CHUNK)
            except ConnectionResetError:
                more = b""
            if not more:
                return bytes(found), None
            found += more
        return bytes(found[:at]), int(found[at + len(self._end) :])

    async def _heard_err(self, heard: Callable[[str], None]) -> str:
        assert self.process.stderr is not None
        lines: list[str] = []
        end = f"{self._end.decode()}\n"
        async for line in self.process.stderr:
            text = line.decode(errors="replace")
            if said := text.removesuffix(end):
                lines.append(said)
                heard(said.rstrip("\n"))
            if said != text:
                break
        return "".join(lines)


class KeptCommand:
    """The command that is kept for the next script, and for the one stream that follows; `start` starts it.

    One script at a time runs in it. A command that was killed unseen is replaced before it is given a script, so no script
    runs twice.
    """

    def __init__(self, start: Callable[[], Awaitable[tuple[Process, socket.socket]]]) -> None:
        self._start = start
        self._loop: ScriptLoop | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.is_busy: bool = False

    async def run(
        self, script: str, data: bytes, limit: float | None, heard: Callable[[str], None]
    ) -> ScriptResult:
        """Run a script, in another command if the last one has ended; see `ScriptLoop.run`. Raises `TimeoutError`."""
        self.is_busy = True
        kept = None
        try:
            async with asyncio.timeout(limit):
                kept = await self.take()
                if kept is None:
                    kept = ScriptLoop(*await self._start())
                    await kept.begin()
                ran = await kept.run(script, data, heard)
        except BaseException:
            if kept is not None:
                await kept.close()
            raise
        finally:
            self.is_busy = False
        self._loop = kept
        self._resting = asyncio.get_running_loop().call_later(_REST, self._give_up)
        return ran

    async def take(self) -> ScriptLoop | None:
        """The command, for the caller alone from now on; None where there is none that is free and answers."""
        if (kept := self._taken()) is None:
            return None
        is_there = False
        try:
            is_there = kept.is_there and await kept.answers()
        finally:
            if not is_there:
                self._end(kept)
        return kept if is_there else None

    def _taken(self) -> ScriptLoop | None:
        kept, self._loop = self._loop, None
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        return kept

    def _give_up(self) -> None:
        if (kept := self._taken()) is not None:
            self._end(kept)

    def _end(self, kept: ScriptLoop) -> None:
        ending = asyncio.ensure_future(kept.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End the command."""
        self._give_up()
        if self._ending:
            await asyncio.wait([*self._ending])


def end(process: Process) -> None:
    """End a command and what it has started here; its end on the machine follows.

    It is killed only where that does not help: the step of an srun that was killed stays, as what reads its stdin there
    reads on.
    """
    _signal(process, signal.SIGTERM)
    asyncio.get_running_loop().call_later(_STUBBORN, _signal, process, signal.SIGKILL)


_closing: set[asyncio.Task[None]] = set()


def close_stdin(process: Process) -> None:
    """Close a command's stdin, which it need not have read; without waiting for that.

    Else asyncio (of 3.11.2) writes of a broken pipe to the notebook's log, as the collector finds it. A task of its own
    waits, as one that is cancelled would cancel asyncio's own note of the end, which then fails as it is made.
    """

    async def closed(stdin: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await stdin.wait_closed()

    assert process.stdin is not None
    process.stdin.close()
    task = asyncio.ensure_future(closed(process.stdin))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


def _signal(process: Process, number: int) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
