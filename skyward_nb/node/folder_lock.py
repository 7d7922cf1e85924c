"""Protection of a pool's folders while its agent lives: locks, and regular changes of their times.

Systems remove files of temporary folders that nobody has touched for days, and leave alone a folder
whose lock somebody holds. Source: tmpfiles.d(5).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Generator, Iterable
from pathlib import Path

_EVERY = 6 * 3600.0


@contextlib.contextmanager
def held(folder: Path, lock: int) -> Generator[None]:
    """Hold the lock of a pool's folder, a file that is open and locked already, and that on the folder itself.

    The file says our pid from now on.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(lock, "w"))
        file.write(str(os.getpid()))
        file.flush()
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, directory)
        # Not every file system has locks of folders.
        with contextlib.suppress(OSError):
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


class FolderRefresher:
    """Touches a pool's folders and what is in the first one, from `begin` to `end`."""

    def __init__(self, folders: Iterable[Path], every: float = _EVERY) -> None:
        self._folders = tuple(folders)
        self._every = every
        self._next: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Touch all of it now, and every few hours."""
        self._touch()
        self._next = loop.call_later(self._every, self.begin, loop)

    def end(self) -> None:
        """Touch nothing any more."""
        if self._next is not None:
            self._next.cancel()

    def _touch(self) -> None:
        own, *values = self._folders
        # Values say by their times which are used, and which are as they were written.
        for path in (own.parent, *own.rglob("*"), own, *values):
            with contextlib.suppress(OSError):
                os.utime(path, follow_symlinks=False)
