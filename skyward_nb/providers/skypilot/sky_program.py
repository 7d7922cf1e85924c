"""The program `sky`: its commands, each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skyward_nb.bootstrap.remote_shell import unheard
from skyward_nb.providers.far.take_down import EngineFault
from skyward_nb.providers.skypilot.cli_answers import (
    ClusterState,
    NoAnswer,
    cluster_state,
    last_words,
    plain,
    request_id,
)
from skyward_nb.words.provider_access import SkyPilotAccess

_STATUS_LIMIT = 300.0
_DOWN_LIMIT = 900.0
_STOP_LIMIT = 10.0
_LINE_LIMIT = 1 << 20


class SkySilent(EngineFault):
    """`sky` cannot be run, or gave no answer; the text has its last words."""


@dataclass(frozen=True)
class SkyAnswer:
    """The end of a command: its exit status and what it printed, plain."""

    code: int
    text: str


class SkyProgram:
    """SkyPilot, by its program on this machine."""

    def __init__(self, access: SkyPilotAccess) -> None:
        self._access = access
        self.may_go_on: bool = False
        """Whether the server may go on with a command that was cancelled here."""

    def path(self) -> str:
        """The program's path; raises `SkySilent` where there is none."""
        found = self._access.executable or shutil.which("sky")
        if found is None:
            raise SkySilent(
                "there is no program `sky` here. SkyPilot goes into an environment of its own: `uv tool install "
                "--python 3.12 'skypilot[gcp]'`, then `sky check`; or name it: sky.SkyPilot(executable='...')"
            )
        return found

    async def run(
        self,
        words: Sequence[str],
        *,
        limit: float | None = None,
        heard: Callable[[str], None] = unheard,
    ) -> SkyAnswer:
        """Run a command; `heard` gets each line. Raises `SkySilent` where it cannot be, or takes too long.

        A command that is cancelled is interrupted, and what it has begun on SkyPilot's server is cancelled there.
        """
        path = self.path()
        try:
            process = await asyncio.create_subprocess_exec(
                *(path, *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                env={**os.environ, "NO_COLOR": "1", "COLUMNS": "240"},
                limit=_LINE_LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            raise SkySilent(f"{path} cannot be run: {error.strerror}") from None
        said: list[str] = []
        try:
            async with asyncio.timeout(limit):
                await _follow(process, said, heard)
        except TimeoutError:
            raise SkySilent(f"`sky {words[0]}` did not end in {limit:.0f} s") from None
        except asyncio.CancelledError:
            await asyncio.shield(self._stop(process, said))
            raise
        finally:
            if process.returncode is None:
                _kill(process, signal.SIGKILL)
                await process.wait()
        assert process.returncode is not None
        return SkyAnswer(process.returncode, "".join(said))

    async def _stop(self, process: Process, said: list[str]) -> None:
        """Interrupt a command; it names what goes on at the server, which is cancelled."""
        self.may_go_on = True
        _kill(process, signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_LIMIT):
                await _follow(process, said, unheard)
        if found := request_id("".join(said)):
            with contextlib.suppress(SkySilent):
                ended = await self.run(["api", "cancel", "--yes", found], limit=_STOP_LIMIT)
                self.may_go_on = bool(ended.code)

    async def look(self, cluster: str, *, refresh: bool = False) -> ClusterState | None:
        """The state of a cluster, asked of its cloud with `refresh`; None if there is none. Raises `SkySilent`.

        It also writes the cluster's SSH config.
        """
        words = ["status", "--output=json", *(["--refresh"] if refresh else []), cluster]
        answer = await self.run(words, limit=_STATUS_LIMIT)
        try:
            if answer.code:
                raise NoAnswer(last_words(answer.text) or f"it ended with {answer.code}")
            return cluster_state(answer.text, cluster)
        except NoAnswer as none:
            raise SkySilent(f"`sky status` gave no answer: {none}") from None

    async def down(self, cluster: str) -> str:
        """Take a cluster down; what `sky` said where that failed, else "". Raises `SkySilent`."""
        answer = await self.run(["down", "--yes", cluster], limit=_DOWN_LIMIT)
        return last_words(answer.text) if answer.code else ""


async def _follow(process: Process, said: list[str], heard: Callable[[str], None]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        said.append(plain(line.decode(errors="replace")).rstrip("\n") + "\n")
        heard(said[-1].rstrip("\n"))
    await process.wait()


def _kill(process: Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
