"""Bytes of this process alone: in memory, or where that is full in a file without a name."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path

from skyward_nb.store.blobs import MAPPED_FROM, disk_room, free_memory
from skyward_nb.store.file_mapping import map_privately
from skyward_nb.words.errors import spell_size

_RESERVE = 64 << 20


class PrivateMemory:
    """Room for `size` bytes, written once and mapped by their readers; from any thread.

    Raises OSError (ENOSPC) where neither memory nor the folder for temporary files has room.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._handle, is_in_memory = _opened(size)
        self.is_in_memory: bool = is_in_memory

    def write(self, at: int, data: memoryview) -> None:
        """Put bytes there. They are not written by way of a mapping: that takes twice as long."""
        while data:
            count = os.pwrite(self._handle, data, at)
            data, at = data[count:], at + count

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to before `stop`."""
        return os.pread(self._handle, stop - start, start)

    def map(self) -> memoryview:
        """A private copy, of which only written pages are copied."""
        if self.size < MAPPED_FROM:
            return memoryview(bytearray(self.read(0, self.size)))
        return map_privately(self._handle, self.size)

    def close(self) -> None:
        """Let go of it; what is mapped stays valid."""
        os.close(self._handle)


def _opened(size: int) -> tuple[int, bool]:
    """A file of that size that has no name, and whether it lies in memory."""
    if sys.platform == "linux" and size + _RESERVE <= free_memory():
        handle = os.memfd_create("skyward_nb")
        os.ftruncate(handle, size)
        return handle, True
    folder = Path(tempfile.gettempdir())
    if size + _RESERVE > disk_room(folder):
        rooms = (
            f"{spell_size(free_memory())} free in memory, {spell_size(disk_room(folder))} on disk"
        )
        raise OSError(errno.ENOSPC, f"it is {spell_size(size)}, and here there are {rooms}")
    handle, name = tempfile.mkstemp(prefix="skyward_nb-")
    try:
        Path(name).unlink()
        os.ftruncate(handle, size)
    except BaseException:
        os.close(handle)
        raise
    return handle, False
