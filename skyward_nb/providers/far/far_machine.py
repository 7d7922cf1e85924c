"""A machine at the other end of a line: its agent is started and reached over it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
import socket
import warnings
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.bootstrap.remote_shell import ScriptResult, ShellGone
from skyward_nb.protocol.commands import UseEnvironment
from skyward_nb.providers.far.host_setup import installed
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.providers.host import GONE, NOTE, AgentFailed, AgentStarted, PoolNote
from skyward_nb.providers.provider_protocol import AgentGone, InstalledEnvironment, Tell
from skyward_nb.store.byte_streams import ByteStream
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.system import login_environment
from skyward_nb.words.decoding import from_json
from skyward_nb.words.errors import HostNotReady, StartError
from skyward_nb.words.spec import PoolSpec

T = TypeVar("T")
_START_LIMIT = 120.0
_END_LIMIT = 60.0
_LOOK_LIMIT = 20.0
_WORDS_LIMIT = 10.0
_LEAVE_LIMIT = 5.0
_FIRST_PAUSE = 0.25
_MOST_PAUSE = 5.0
_LAST_WORDS = 2000
VALUES = "values.sock"
"""The socket of the agent's service of values, in the pool's folder there."""

# Looks where `folders.runtime_root` puts pools on a host; only the same user may write there.
_FIND = """
is_ours() {{
  [ -d "$1" ] && [ ! -h "$1" ] && [ -O "$1" ] || return
  mode=$(ls -ldn "$1") || exit
  case $mode in drwx--[-S]---*) ;; *) return 1 ;; esac
}}
uid=$(id -u) || exit
strange=
for folder in "$TMPDIR" "$TEMP" "$TMP" /tmp /var/tmp; do
  root=${{SKYWARD_RUNTIME_DIR:-$folder/skyward_nb-$uid}}
  pool=$root/{name}
  [ -e "$pool" ] || [ -h "$pool" ] || continue
  if is_ours "$pool" && {{ is_ours "$root" || [ "$SKYWARD_RUNTIME_DIR" ] && [ -O "$root" ]; }}; then
    printf '\\n%s\\n' "$pool"
    cat "$pool/{note}" 2>/dev/null || printf '{{}}'
    echo
    exit 0
  fi
  strange=$pool
done
[ "$strange" ] || exit {gone}
printf '\\n%s\\n{{}}\\n' "$strange"
exit {strange}
"""
_STRANGE = 4

_ENDED = """n=0
while [ -e {runtime} ] && [ $n -lt 60 ]; do
  n=$((n + 1)); sleep 0.05 2>/dev/null || {{ n=$((n + 19)); sleep 1; }}
done
[ -e {runtime} ] || exit 0
"""
"""Waits for the end of an agent, whose last act is to remove its folder."""


Opening = Callable[[str, int], Coroutine[Any, Any, T]]
"""Opens a channel to the socket at a path there, over the connection of this number."""


class FarMachine:
    """A machine of a pool, as its node number `node`, with the pool's folders below `folder_id` there.

    Without an `environment`, the pool's agent runs there already; `variables` are for programs run there.
    """

    variables: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        pool: str,
        folder_id: str,
        node: int,
        line: Line,
        environment: Environment | None = None,
    ) -> None:
        self.name: str = line.name
        self.nodes: tuple[int, ...] = (node,)
        self._pool = pool
        self._folder_id = folder_id
        self._line = line
        self._environment = environment
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runtime = ""
        self._finding = asyncio.Lock()
        self._found_over = 0
        """The connection over which the pool's folder was found."""
        self._pause = 0.0
        self._is_reached = False
        self._store = RemoteStore(self.values, name=self.name)

    async def start_agent(self, idle: float, ttl: float, preload: list[str]) -> None:
        """Start the agent and wait until it listens; raises `StartError` with its log."""
        self._loop = asyncio.get_running_loop()
        words = [self._folder_id, str(idle), str(ttl), *preload]
        try:
            ran = await self._begun(words, _START_LIMIT)
        except (ShellGone, TimeoutError) as error:
            raise StartError(
                self._pool, f"no agent was started on {self.name}: {_why(error)}"
            ) from error
        try:
            answer = from_json(_said(ran)[0], AgentStarted | AgentFailed)
        except msgspec.MsgspecError:
            detail = ran.err.strip() or ran.out.decode(errors="replace")
            why = f"no agent was started on {self.name}: its Python ended with status {ran.code}"
            raise StartError(self._pool, why, detail[-_LAST_WORDS:]) from None
        if isinstance(answer, AgentFailed):
            raise StartError(self._pool, f"{self.name}: {answer.message}", answer.detail)
        self._runtime = answer.runtime
        self._found_over = self._line.number
        if answer.ends_with_login:
            warnings.warn(
                f"{self.name} ends what a login leaves (KillUserProcesses=yes in its logind.conf): pool "
                f"{self._pool!r} is lost with a line that is cut. KillExcludeUsers= there spares a user.",
                stacklevel=2,
            )

    async def install(
        self, spec: PoolSpec, present: UseEnvironment, tell: Tell
    ) -> InstalledEnvironment:
        """Make the environment of `spec`, beside the `present` one; raises `HostNotReady`."""
        self._environment, installation = await installed(
            self._line, self.nodes[0], spec, present, tell
        )
        return installation

    async def connect(self) -> socket.socket:
        """A stream to the agent, over a connection that is made anew if need be.

        Raises `AgentGone` if the agent has ended, `HostNotReady` if such streams are forbidden, and, after
        a while, OSError if there is no stream now.
        """
        self._loop = asyncio.get_running_loop()
        if self._pause:
            await asyncio.sleep(self._pause * (0.5 + random.random() / 2))  # noqa: S311 - spreads them
        self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _MOST_PAUSE)
        stream = await self._again()
        if stream is None:
            if self._is_reached:
                # The agent may have ended since, and its folder may be gone.
                self._found_over = 0
            stream = await self._opened("agent.sock", self._stream)
        elif self._runtime:
            # The agent has shown its key: while it lives, its folder is there.
            self._found_over = self._line.number
        self._pause = 0.0
        self._is_reached = True
        return stream

    async def _again(self) -> socket.socket | None:
        """A stream to the agent by a way that needs nothing to be looked for; None where there is none."""
        return None

    async def _opened(self, name: str, opening: Opening[T]) -> T:
        over = await self._found()
        try:
            return await opening(f"{self._runtime}/{name}", over)
        except ConnectionRefusedError:
            code = await self._look()
            if code == GONE:
                raise AgentGone from None
            if code == 0 and not self._is_reached:
                raise HostNotReady(
                    self.name,
                    f"its agent runs, and {self._line.advice}",
                ) from None
            raise

    async def _look(self) -> int | None:
        """0 if the agent lives, GONE if it does not; None if the host did not answer."""
        try:
            return (await self._host(["look", self._folder_id], _LOOK_LIMIT)).code
        except (ShellGone, TimeoutError):
            return None

    async def _found(self) -> int:
        """The number of the connection over which the pool's folder was found, as it is on each new one.

        The folder cannot be replaced while it exists; between two connections, another user could put one
        in its place and answer as the agent. Raises what `_find` raises.
        """
        async with self._finding:
            over = await self._line.reached()
            if over != self._found_over:
                await self._find()
                self._found_over = over
            return over

    async def _find(self) -> None:
        """Find the pool's folder and environment there; raises `AgentGone`, or OSError."""
        script = _FIND.format(name=self._folder_id, note=NOTE, gone=GONE, strange=_STRANGE)
        try:
            ran = await self._line.run(script, limit=_LOOK_LIMIT)
        except (ShellGone, TimeoutError) as error:
            raise ConnectionError(_why(error)) from error
        if ran.code == GONE:
            raise AgentGone
        text, folder = _said(ran)
        if ran.code == _STRANGE:
            raise AgentGone(f"{folder.decode(errors='replace')} there is not its folder any more")
        if ran.code:
            raise ConnectionError(f"it did not say where the pool is: {ran.err.strip()}")
        if self._environment is None:
            try:
                note = from_json(text, PoolNote)
            except msgspec.MsgspecError:
                raise AgentGone from None
            self._environment = Environment(note.python, note.package, "")
        self._runtime = folder.decode()

    def values(self) -> socket.socket | ByteStream:
        """A channel to the agent's service of values; from any thread but the loop's.

        Raises `AgentGone`, and OSError if the host cannot be reached now.
        """
        assert self._loop is not None
        opening = self._opened(VALUES, self._way)
        coming = asyncio.run_coroutine_threadsafe(opening, self._loop)
        try:
            return coming.result()
        except BaseException:
            # The caller was interrupted; a cancelled opening closes its channel.
            if not coming.cancel() and coming.exception() is None:
                coming.result().close()
            raise

    async def _stream(self, path: str, over: int) -> socket.socket:
        """A stream to the agent; `connect` raises its errors."""
        return await self._line.stream(path, over)

    async def _way(self, path: str, over: int) -> socket.socket | ByteStream:
        """A channel for values; `values` raises its errors."""
        return await self._line.way(path, over)

    def store(self) -> RemoteStore:
        """The store of the values there."""
        return self._store

    def last_words(self) -> str:
        """The end of the agent's log, which forge and ranks share; "" when it cannot be had."""
        return self._soon(self.agent_log(_LAST_WORDS))

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log, of so many bytes; "" when it cannot be had."""
        self._loop = asyncio.get_running_loop()
        with contextlib.suppress(ShellGone, OSError, TimeoutError, AgentGone):
            async with asyncio.timeout(_WORDS_LIMIT):
                await self._found()
                path = shlex.quote(f"{self._runtime}/agent.log")
                ran = await self._line.run(f"tail -c {most} {path}", limit=_WORDS_LIMIT)
                return ran.out.decode(errors="replace").strip()
        return ""

    def leave(self) -> None:
        """Let the agent live on, and hang up."""
        self._store.close()
        if self._loop is not None:
            # A slow close goes on by itself.
            with contextlib.suppress(TimeoutError):
                self._soon(self._line.close(), _LEAVE_LIMIT)

    async def release(self) -> str | None:
        """Wait until the agent, told to stop, is gone; see that nothing of it is left there."""
        try:
            await self._end_agent()
        finally:
            self._store.close()
            await self._line.close()

    async def _end_agent(self) -> None:
        """Wait until the agent, told to stop, is gone, and the pool's files with it; warns where that is not known."""
        try:
            if self._environment is None:
                await self._find()
            # An agent that was never reached was not told to stop.
            if self._is_reached:
                ended = _ENDED.format(runtime=shlex.quote(self._runtime))
                script = ended + self._program(["end", self._folder_id])
            else:
                script = self._program(["end", self._folder_id, "now"])
            ran = await self._line.run(script, limit=_END_LIMIT)
        except AgentGone:
            """Nothing is left there."""
        except (ShellGone, OSError, TimeoutError) as error:
            self._warn(_why(error))
        else:
            if ran.code:
                self._warn(ran.err.strip()[-_LAST_WORDS:])

    def _warn(self, why: str) -> None:
        warnings.warn(
            f"{self.name} did not say that all of pool {self._pool!r} is gone there: {why}. Its agent "
            "ends itself when no client has been there for `idle`.",
            stacklevel=2,
        )

    async def _begun(self, words: list[str], limit: float) -> ScriptResult:
        """Start the agent; the end of the program that says how that went."""
        return await self._host(["start", *words], limit)

    async def _host(self, words: list[str], limit: float) -> ScriptResult:
        """Run `providers.host` with these words in the host's Python."""
        return await self._line.run(self._program(words), limit=limit)

    def _program(self, words: list[str]) -> str:
        """The script that runs `providers.host` with these words."""
        assert self._environment is not None
        command = [self._environment.python, "-P", "-m", "skyward_nb.providers.host", *words]
        path = shlex.quote(self._environment.package)
        login = f'{login_environment.FOLDER}="$HOME" {login_environment.UMASK}="$login_umask"'
        variables = {**self._environment.variables, **self.variables}
        own = "".join(f"{key}={shlex.quote(value)} " for key, value in variables.items())
        # Nothing is imported from the folder `/`; the login's own folder may have modules.
        return f"cd /; {own}{login} PYTHONPATH={path} exec {shlex.join(command)}"

    def _soon(self, work: Coroutine[Any, Any, T], limit: float | None = None) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit)


def _why(error: Exception) -> str:
    return str(error) or "it did not answer in time"


def _said(ran: ScriptResult) -> tuple[bytes, bytes]:
    """The line of JSON in a host's output, and the line before it.

    Files of the login shell, and programs that they started, may print other lines around it.
    """
    lines = [b"", *ran.out.splitlines()]
    number = max((at for at, line in enumerate(lines) if line.startswith(b"{")), default=0)
    return lines[number], lines[number - 1]
