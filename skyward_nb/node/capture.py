"""Output of a rank: `sys.stdout` and `sys.stderr` to the uplink, fds 1 and 2 to pipes.

The pipes are read by the agent; they carry what C code and child processes write.
"""

from __future__ import annotations

import ctypes
import fcntl
import io
import os
import resource
import sys
from typing import Any

from skyward_nb.node.uplink import Uplink

_HIGH = 200
"""The least number of a descriptor that is out of the way, where so many are allowed."""


class _Buffer(io.FileIO):
    """The bytes below a text stream: they go to the pipe, after the text written before."""

    def __init__(self, uplink: Uplink, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._uplink = uplink

    def write(self, data: Any, /) -> int | None:
        """Write bytes after the text that came first."""
        self._uplink.settle()
        return super().write(data)


class CapturedStream(io.TextIOBase):
    """A text stream of a rank; user code cannot close it."""

    encoding = "utf-8"
    errors: str = "backslashreplace"
    newlines: None = None

    def __init__(self, uplink: Uplink, name: str, descriptor: int) -> None:
        self._uplink = uplink
        self.name: str = f"<{name}>"
        self._stream = name
        self._descriptor = descriptor
        self.buffer: _Buffer = _Buffer(uplink, descriptor)

    def write(self, text: str, /) -> int:
        """Send text on its way; TypeError for anything else, as of any text stream."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users call it
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._uplink.write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        """Send the text now, so that it stands before what a child process writes next."""
        self._uplink.settle()

    def close(self) -> None:
        """Stay open: the next cell prints, too."""

    def fileno(self) -> int:
        """The pipe's descriptor, as `subprocess` wants it."""
        return self._descriptor

    def isatty(self) -> bool:
        """Never a terminal."""
        return False

    def writable(self) -> bool:
        """Always."""
        return True


class Capture:
    """Puts a rank's streams in place and keeps them there, whatever a cell did to them."""

    def __init__(self, uplink: Uplink, stdout_pipe: int, stderr_pipe: int) -> None:
        self._libc = ctypes.CDLL(None)
        self._pipes = {1: out_of_the_way(stdout_pipe), 2: out_of_the_way(stderr_pipe)}
        self._streams = CapturedStream(uplink, "stdout", 1), CapturedStream(uplink, "stderr", 2)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        for descriptor, pipe in self._pipes.items():
            os.dup2(pipe, descriptor)
        self.repair()

    def repair(self) -> None:
        """Give fds 1 and 2 and `sys.stdout`/`sys.stderr` back after a cell, flushing C's stdio."""
        self._libc.fflush(None)
        for descriptor, pipe in self._pipes.items():
            try:
                same = os.path.samestat(os.fstat(descriptor), os.fstat(pipe))
            except OSError:
                same = False
            if not same:
                os.dup2(pipe, descriptor)
        sys.stdout, sys.stderr = self._streams
        sys.__stdout__, sys.__stderr__ = self._streams  # type: ignore[assignment]


def out_of_the_way(descriptor: int) -> int:
    """A copy of a descriptor above those that user code opens and closes by number; the original is closed."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(_HIGH, most // 2))
    os.close(descriptor)
    return high
