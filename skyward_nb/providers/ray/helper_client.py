"""The helper process that speaks to Ray, as this process uses it: started when needed, and again after its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from skyward_nb.providers.ray.messages import HelperFailed, HelperReady, Request
from skyward_nb.providers.ray.ray_errors import RaySilent, spell_failure
from skyward_nb.words.decoding import from_json
from skyward_nb.words.provider_access import RayAccess

T = TypeVar("T")
PYTHON_VARIABLE = "SKYWARD_RAY_PYTHON"
"""The interpreter that has Ray, where `sky.Ray(python=...)` names none."""
_START_LIMIT = 240.0
"""Three tries with Ray's client server, which takes a minute to give one up."""
_END_LIMIT = 10.0
_CHUNK = 1 << 18
_PROGRAM = Path(__file__).with_name("helper.py")
_OWN = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_WORKER_", "RAY_CLIENT_MODE", "RAY_JOB_CONFIG_")
"""Starts of names that Ray sets for one of its own processes: this notebook may be in one."""


class RayHelper:
    """The helper for one cluster; `users` of it are counted, and the last one ends it.

    `cluster` is where `access` led to before; "": not known yet. It leads there from then on, also when it is started anew.
    """

    def __init__(self, access: RayAccess, cluster: str = "") -> None:
        self.access: RayAccess = access
        self.cluster: str = cluster
        self.number: int = 0
        """How often it was started."""
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._control: socket.socket | None = None
        self._users: set[object] = set()

    async def started(self) -> int:
        """Start it if it does not run; how often it was. Raises `RaySilent`."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._hang_up()
                await self._start()
                self.number += 1
            return self.number

    async def _start(self) -> None:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        python = self.access.python or os.environ.get(PYTHON_VARIABLE) or sys.executable
        try:
            with far:
                process = await asyncio.create_subprocess_exec(
                    *(python, "-I", str(_PROGRAM), self.cluster or self.access.address),
                    stdin=far.fileno(),
                    stdout=PIPE,
                    stderr=PIPE,
                    env=clean_environ(),
                    # An interrupt of the notebook is for its kernel alone.
                    start_new_session=True,
                )
        except OSError as error:
            near.close()
            raise RaySilent(f"{python} cannot be started: {error.strerror}") from None
        assert process.stdout is not None
        assert process.stderr is not None
        words = asyncio.ensure_future(_last_words(process.stderr))
        try:
            async with asyncio.timeout(_START_LIMIT):
                line = await process.stdout.readline()
                if not line:
                    await process.wait()
        except BaseException as error:
            near.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await words
            if isinstance(error, TimeoutError):
                raise RaySilent(f"Ray did not answer in {_START_LIMIT:.0f} s") from None
            raise
        if not line:
            near.close()
            raise RaySilent((await words) or f"its helper ended with {process.returncode}")
        answer = from_json(line, HelperReady | HelperFailed)
        if isinstance(answer, HelperFailed):
            near.close()
            await process.wait()
            await words
            address = self.cluster or self.access.address
            raise RaySilent(spell_failure(answer, replace(self.access, address=address)))
        self.cluster = answer.cluster
        self._process, self._control = process, near

    async def open(self, request: Request) -> socket.socket:
        """Send a request; the connection that is its own. Raises `RaySilent`."""
        await self.started()
        assert self._control is not None
        near, far = socket.socketpair()
        with far:
            try:
                socket.send_fds(self._control, [msgspec.json.encode(request)], [far.fileno()])
            except OSError as error:
                near.close()
                raise RaySilent(f"its helper has ended: {error.strerror}") from None
        near.setblocking(False)
        return near

    async def ask(self, request: Request, answer: type[T], limit: float = 60.0) -> T:
        """The answer to a request; raises `RaySilent`, with Ray's words if it has refused."""
        loop = asyncio.get_running_loop()
        with await self.open(request) as connection:
            text = b""
            try:
                async with asyncio.timeout(limit):
                    while part := await loop.sock_recv(connection, _CHUNK):
                        text += part
            except TimeoutError:
                raise RaySilent(f"Ray did not answer in {limit:.0f} s") from None
            except OSError as error:
                raise RaySilent(f"its helper has ended: {error.strerror}") from None
        try:
            said = from_json(text, HelperFailed | _Other)
        except msgspec.MsgspecError:
            said = None
        if isinstance(said, HelperFailed):
            raise RaySilent(said.text)
        if not text or text.startswith(b"!"):
            raise RaySilent(text[1:].decode(errors="replace") or "its helper has ended")
        try:
            return from_json(text, answer)
        except msgspec.MsgspecError as error:
            raise RaySilent(f"its helper's answer is not whole: {error}") from None

    # ── its users ───────────────────────────────────────────────────────────────────────

    def used_by(self, user: object) -> None:
        """Count a user."""
        self._users.add(user)

    async def let_go(self, user: object) -> None:
        """Count a user no more; without any, the helper ends."""
        self._users.discard(user)
        if not self._users:
            await self.close()

    async def close(self) -> None:
        """End it: it sees that nobody asks any more."""
        process, self._process = self._process, None
        self._hang_up()
        if process is None:
            return
        try:
            # As in `ScriptSession.close`: this may be a task that is cancelled.
            await asyncio.wait_for(process.wait(), _END_LIMIT)
        except TimeoutError:  # it takes leave of a cluster that is gone
            process.kill()
            await process.wait()

    def _hang_up(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            control.close()


class _Other(msgspec.Struct, tag="other"):
    """Stands for all answers but a failure."""


async def _last_words(reader: asyncio.StreamReader) -> str:
    """Read what the helper, and Ray in it, print; the last line."""
    last = b""
    while data := await reader.read(_CHUNK):
        last = (last + data)[-2000:]
    return last.decode(errors="replace").strip().rpartition("\n")[2]


def clean_environ() -> dict[str, str]:
    """This process's environment, in which Ray takes nothing for the helper's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    # Ray would make anew on its nodes what `uv run` has made here.
    return {**kept, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
