"""Bytes that are only added to, in a file or in memory: what the parts of the journal are made of."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class MemoryStore:
    """Bytes in memory."""

    on_disk = False

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Add bytes at the end."""
        self._data += data

    def read(self, place: int, size: int) -> bytes:
        """These bytes."""
        return bytes(memoryview(self._data)[place : place + size])

    def seal(self) -> None:
        """Nothing to do."""

    def remove(self) -> None:
        """They are gone with this object."""


class FileStore:
    """Bytes in a file that only its user may read; it is open only while it is written to."""

    on_disk = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._size = 0
        self._ours = False

    def add(self, data: bytes) -> None:
        """Add bytes at the end; raises OSError, and then the file is as it was."""
        if self._file < 0:
            # A file that is there already is none of ours.
            new = 0 if self._ours else os.O_CREAT | os.O_EXCL
            self._file = os.open(self._path, os.O_WRONLY | new | os.O_CLOEXEC, 0o600)
            self._ours = True
        left = memoryview(data)
        try:
            while left:
                left = left[os.pwrite(self._file, left, self._size + len(data) - len(left)) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def read(self, place: int, size: int) -> bytes:
        """These bytes; raises OSError where they are not there any more."""
        with self._path.open("rb") as file:
            file.seek(place)
            data = file.read(size)
        if len(data) < size:
            raise OSError(f"{self._path} was cut short")
        return data

    def seal(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Close and remove the file."""
        self.seal()
        if self._ours:
            with contextlib.suppress(OSError):
                self._path.unlink()


AppendStore = MemoryStore | FileStore
