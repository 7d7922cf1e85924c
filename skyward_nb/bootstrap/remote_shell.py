"""The seam to another machine: scripts run there, and files sent to it.

It knows nothing of how the machine is reached, nor of what the scripts are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


class ShellGone(Exception):
    """The line to the machine is lost; what ran there may go on."""


class NotOffered(Exception):
    """Nothing of this machine can be offered on the other one; the text says why."""


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection, which is closed after."""


@dataclass(frozen=True)
class ScriptResult:
    """How a script ended: its exit status, what it wrote to stdout, and to stderr."""

    code: int
    out: bytes
    err: str


LINE = """exec /bin/sh -c 'IFS= read -r s && eval "$(printf %b "$s")"'"""
"""The command to run on a machine, the same for every script: it reads the script from stdin.

It means the same to any login shell, csh and fish among them. The shell's own `read` takes its line
and no byte more; other programs (busybox's and uutils' `head -c`) take what follows with it.
"""


def spoken(script: str) -> bytes:
    """What `LINE` has to get before the data of a script: one line.

    The script finds the umask that the login had in `login_umask`.
    """
    text = f"login_umask=$(umask)\numask 077\n{script}".replace("\\", r"\\").replace("\n", r"\n")
    return f"{text}\n".encode()


def unheard(_line: str) -> None:
    """Let a line of stderr pass."""


def untold(_size: int) -> None:
    """Let the number of bytes sent pass."""


class Shell(Protocol):
    """A machine's /bin/sh, which reads its script from the line: no process list shows it."""

    @property
    def name(self) -> str:
        """The machine, as the person wrote it."""
        ...

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
        ...

    async def send(
        self,
        path: str,
        parts: Iterable[bytes],
        *,
        mode: int = 0o600,
        told: Callable[[int], None] = untold,
    ) -> None:
        """Write a file there, all or nothing; its folder exists.

        `told` gets the number of bytes sent so far. Raises `OSError` where it cannot be written
        (ENOSPC where the disk is full), and `ShellGone` when the line is lost.
        """
        ...

    def offer(self, serve: Serve) -> AbstractAsyncContextManager[int]:
        """While inside, connections to a port of the machine's loopback are served here; the port.

        Raises `NotOffered` where that is forbidden there, and `ShellGone` when the line is lost.
        """
        ...
