"""One host as a machine of a pool: its agent is reached over the line to it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
import socket
import warnings
from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from skyward_nb.bootstrap.environment import Environment
from skyward_nb.bootstrap.shell import Ran, ShellGone
from skyward_nb.providers.base import AgentGone
from skyward_nb.providers.host import GONE, NOTE, Failed, Note, Started
from skyward_nb.providers.ssh.line import HostLine
from skyward_nb.wire.remote_store import RemoteStore
from skyward_nb.words.errors import StartError

T = TypeVar("T")
_START_LIMIT = 60.0
_END_LIMIT = 60.0
_LOOK_LIMIT = 20.0
_WORDS_LIMIT = 5.0
_LEAVE_LIMIT = 5.0
_FIRST_PAUSE = 0.25
_MOST_PAUSE = 5.0
_LAST_WORDS = 2000

# Where `folders.runtime_root` has pools on a host: whoever may write there must be the same user.
_FIND = """
for folder in "$TMPDIR" "$TEMP" "$TMP" /tmp /var/tmp; do
  root=${{SKYWARD_RUNTIME_DIR:-$folder/skyward_nb-$(id -u)}}
  if [ -O "$root" ] && [ -O "$root/{name}" ] && [ -f "$root/{name}/{note}" ]; then
    printf '%s\\n' "$root/{name}"
    cat "$root/{name}/{note}"
    exit
  fi
done
exit {gone}
"""


class SSHMachine:
    """A host of a pool, as its node number `node`; what it has of the pool lies below `folder_id` there.

    Without an `environment` it is one where the pool's agent runs already; `variables` are for what
    is run there.
    """

    variables: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        pool: str,
        folder_id: str,
        node: int,
        line: HostLine,
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
        self._pause = 0.0
        self._is_reached = False
        self._store = RemoteStore(self.values, name=self.name)

    async def start_agent(self, idle: float, ttl: float, preload: list[str]) -> None:
        """Start the agent and wait until it listens; raises `StartError` with its log."""
        self._loop = asyncio.get_running_loop()
        words = ["start", self._folder_id, str(idle), str(ttl), *preload]
        try:
            ran = await self._host(words, _START_LIMIT)
        except (ShellGone, TimeoutError) as error:
            raise StartError(self._pool, f"no agent was started on {self.name}: {error}") from error
        try:
            answer = msgspec.json.decode(_last_lines(ran)[0], type=Started | Failed)
        except msgspec.MsgspecError:
            detail = ran.err.strip() or ran.out.decode(errors="replace")
            why = f"no agent was started on {self.name}: its Python ended with status {ran.code}"
            raise StartError(self._pool, why, detail[-_LAST_WORDS:]) from None
        if isinstance(answer, Failed):
            raise StartError(self._pool, f"{self.name}: {answer.message}", answer.detail)
        self._runtime = answer.runtime

    async def connect(self) -> socket.socket:
        """A stream to the agent, over a connection that is made anew if need be.

        Raises `AgentGone` where the host says so, and OSError, after a while, where it cannot now.
        """
        self._loop = asyncio.get_running_loop()
        if self._pause:
            await asyncio.sleep(self._pause * (0.5 + random.random() / 2))  # noqa: S311 - spreads them
        self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _MOST_PAUSE)
        if not self._runtime:
            await self._find()
        stream = await self._stream("agent.sock")
        self._pause = 0.0
        self._is_reached = True
        return stream

    async def _stream(self, name: str, *, bulk: bool = False) -> socket.socket:
        try:
            return await self._line.stream(f"{self._runtime}/{name}", bulk=bulk)
        except ConnectionRefusedError:
            if await self._is_gone():
                raise AgentGone from None
            raise

    async def _is_gone(self) -> bool:
        try:
            ran = await self._host(["look", self._folder_id], _LOOK_LIMIT)
        except (ShellGone, TimeoutError):
            return False
        return ran.code == GONE

    async def _find(self) -> None:
        """Find the pool's folder there, and how to go on with it; raises `AgentGone`, or OSError."""
        script = _FIND.format(name=self._folder_id, note=NOTE, gone=GONE)
        try:
            ran = await self._line.run(script, limit=_LOOK_LIMIT)
        except (ShellGone, TimeoutError) as error:
            raise ConnectionError(str(error)) from error
        if ran.code == GONE:
            raise AgentGone
        text, folder = _last_lines(ran)
        try:
            note = msgspec.json.decode(text, type=Note)
        except msgspec.MsgspecError:
            raise AgentGone from None
        self._environment = Environment(note.python, note.package, "")
        self._runtime = folder.decode()

    def values(self) -> socket.socket:
        """A stream to the agent's service of values; from any thread but the loop's.

        Raises `AgentGone`, and OSError where the host cannot be reached now.
        """
        return self._soon(self._stream("values.sock", bulk=True))

    def store(self) -> RemoteStore:
        """The values that lie there."""
        return self._store

    def last_words(self) -> str:
        """The end of the agent's log, which forge and ranks share; "" when it cannot be had."""
        script = f"tail -c {_LAST_WORDS} {shlex.quote(f'{self._runtime}/agent.log')}"
        with contextlib.suppress(ShellGone, TimeoutError):
            ran = self._soon(self._line.run(script, limit=_WORDS_LIMIT))
            return ran.out.decode(errors="replace").strip()
        return ""

    def leave(self) -> None:
        """Let the agent live on, and hang up."""
        self._store.close()
        if self._loop is not None:
            self._soon(self._line.close(), _LEAVE_LIMIT)

    async def release(self) -> None:
        """Wait until the agent, told to stop, is gone; see that nothing of it is left there."""
        try:
            if self._environment is None:
                await self._find()
            # One that nobody has reached could not be told to stop.
            words = ["end", self._folder_id, *([] if self._is_reached else ["now"])]
            ran = await self._host(words, _END_LIMIT)
        except AgentGone:
            """Nothing is left there."""
        except (ShellGone, OSError, TimeoutError) as error:
            self._warn(str(error))
        else:
            if ran.code:
                self._warn(ran.err.strip()[-_LAST_WORDS:])
        finally:
            self._store.close()
            await self._line.close()

    def _warn(self, why: str) -> None:
        warnings.warn(
            f"{self.name} did not say that all of pool {self._pool!r} is gone there: {why}. Its agent "
            "ends itself when no client has been there for `idle`.",
            stacklevel=2,
        )

    async def _host(self, words: list[str], limit: float) -> Ran:
        """Have the host's Python do something."""
        assert self._environment is not None
        command = [self._environment.python, "-m", "skyward_nb.providers.host", *words]
        path = shlex.quote(self._environment.package)
        own = "".join(f"{key}={shlex.quote(value)} " for key, value in self.variables.items())
        # In a folder of which nothing is imported.
        script = f"cd /; {own}PYTHONPATH={path} exec {shlex.join(command)}"
        return await self._line.run(script, limit=limit)

    def _soon(self, work: Coroutine[Any, Any, T], limit: float | None = None) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit)


def _last_lines(ran: Ran) -> tuple[bytes, bytes]:
    """The last line of what a host said, and the one before: files of its login shell may say something first."""
    *_, before, last = b"\n", b"\n", *ran.out.splitlines()
    return last, before
