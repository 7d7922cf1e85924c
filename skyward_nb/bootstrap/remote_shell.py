"""The interface to another machine: it runs scripts and takes files.

How the machine is reached, and what the scripts are for, is known elsewhere.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import chain

from skyward_nb.bootstrap.file_upload import UPLOAD_END, upload_error, upload_script

_PIECE = 256 << 10


class ShellGone(Exception):
    """The line to the machine is lost; the script may go on there."""


class NotOffered(Exception):
    """The machine cannot listen for this one; the text says why."""


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection, which is closed afterwards."""


@dataclass(frozen=True)
class ScriptResult:
    """The end of a script: its exit status, its stdout and its stderr."""

    code: int
    out: bytes
    err: str


LINE = """exec /bin/sh -c 'IFS= read -r s && eval "$(printf %b "$s")"'"""
"""The command to run on a machine, the same for every script: it reads the script from stdin.

All login shells understand it, csh and fish among them. The shell's own `read` takes its line and no byte
more; other programs (busybox's and uutils' `head -c`) also take bytes that follow.
"""


def spoken(script: str) -> bytes:
    """The script as the one line that `LINE` reads before the script's data.

    The script finds the umask of the login in `login_umask`.
    """
    return one_line(f"login_umask=$(umask)\numask 077\n{script}") + b"\n"


def one_line(text: str) -> bytes:
    """A text as one line that `printf %b` reads, without its end."""
    return text.replace("\\", r"\\").replace("\n", r"\n").encode()


def unheard(_line: str) -> None:
    """Ignore a line of stderr."""


def untold(_size: int) -> None:
    """Ignore the number of bytes sent."""


def pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, at most 256 KiB at once."""
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            yield bytes(view[start : start + _PIECE])


class Shell(ABC):
    """A machine's /bin/sh, which reads its script from the line: no process list shows it.

    A file is sent as the stdin of a script.
    """

    name: str
    """The machine as the user wrote it."""

    async def run(
        self,
        script: str,
        *,
        data: bytes = b"",
        limit: float = 60.0,
        heard: Callable[[str], None] = unheard,
    ) -> ScriptResult:
        """Run a script of /bin/sh under umask 077, with `data` as its stdin.

        `heard` gets each line of stderr as it comes, without its end. Raises `ShellGone` when the
        line is lost, and `TimeoutError` after `limit` seconds.
        """
        return await self._run(script, [data] if data else [], limit, heard, untold)

    async def send(
        self,
        path: str,
        parts: Iterable[bytes],
        *,
        mode: int = 0o600,
        told: Callable[[int], None] = untold,
    ) -> None:
        """Write a file there, all or nothing; its folder exists.

        `told` gets the number of bytes sent so far. Raises `OSError` if it cannot be written
        (ENOSPC if the disk is full), and `ShellGone` when the line is lost.
        """
        parts = chain(parts, [UPLOAD_END])
        ran = await self._run(upload_script(path, mode), parts, None, unheard, told)
        if ran.code:
            raise upload_error(path, ran.err)

    @abstractmethod
    async def _run(
        self,
        script: str,
        parts: Iterable[bytes],
        limit: float | None,
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> ScriptResult:
        """Run a script with `parts` as its stdin; `told` gets the number of bytes sent so far."""

    @abstractmethod
    def offer(self, serve: Serve) -> AbstractAsyncContextManager[int]:
        """Within this context, a port of the machine's loopback is served here; gives the port.

        Raises `NotOffered` if that is forbidden there, and `ShellGone` when the line is lost.
        """
