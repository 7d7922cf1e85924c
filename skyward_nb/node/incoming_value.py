"""A value that comes in ranges, in any order and over several streams, into a file of its own until it is whole."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

from skyward_nb.store.blobs import seal
from skyward_nb.store.reassembly import Reassembly

_TICK = 0.1
_numbers = itertools.count(1)


class IncomingValue:
    """A value that comes into a file of its own; `arriving` is what has come."""

    def __init__(self, digest: str, size: int, folder: Path) -> None:
        self.digest = digest
        self.size = size
        self.path: Path = folder / f".part-{digest}-{next(_numbers)}"
        self.lock: threading.RLock = threading.RLock()
        self.is_settled = False
        self.touched: float = 0.0
        self.trouble: OSError | None = None
        """Why it was given up, if it was: streams that come later are told the same."""
        self.arriving: Reassembly = Reassembly(size, self._read)
        self._users = 0
        self._is_doubled = False
        """Whether bytes came more than once, which may be others than those that were hashed."""
        self.is_whole: bool = False
        """Whether it was found to have its digest, and got its name."""
        self._is_removed = False
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(self._handle, size)
        except BaseException:
            self.remove()
            raise

    @property
    def left(self) -> int:
        """Bytes that are to come."""
        with self.arriving.changed:
            return self.arriving.missing.size

    def write(self, at: int, data: memoryview) -> None:
        """These bytes have come. Raises OSError."""
        start, whole, self.touched = at, data, time.monotonic()
        with self._using():
            while data:
                count = os.pwrite(self._handle, data, at)
                data, at = data[count:], at + count
            if not self.arriving.came(start, whole):
                self._is_doubled = True

    def finish(self) -> None:
        """Give a value that was found to have its digest its name. Raises OSError."""
        os.close(os.dup(self._handle))  # NFS tells of a full disk when a file is closed
        self.path.rename(self.path.parent / self.digest)
        self.is_whole = True

    def check(self) -> None:
        """Raise OSError where it was dropped, or has its name."""
        if self._is_removed:
            raise self.trouble or OSError(errno.ESTALE, "the unfinished value was dropped")

    def _read(self, start: int, stop: int) -> bytes:
        return os.pread(self._handle, stop - start, start)

    @contextlib.contextmanager
    def _using(self) -> Generator[None]:
        """Keep the file open meanwhile: a closed descriptor's number could be reused."""
        with self.lock:
            self.check()
            self._users += 1
        try:
            yield
        finally:
            with self.lock:
                self._users -= 1
                self._close_if_removed()

    def opened(self) -> int:
        """One more descriptor of its file."""
        with self._using():
            return os.dup(self._handle)

    def wait(self, start: int, stop: int, tick: Callable[[], None]) -> None:
        """Wait until these bytes have come; raises OSError when they never will."""
        while True:
            with self.arriving.changed:
                if not self.arriving.missing.has(start, stop):
                    return
                self.check()
                self.arriving.changed.wait(_TICK)
            tick()

    def remove(self, trouble: OSError | None = None) -> None:
        """Drop the value, for this reason if there is one; safe to call twice."""
        with self.lock:
            if not self._is_removed:
                self._is_removed = True
                self.trouble = trouble
                self.path.unlink(missing_ok=True)
                self._close_if_removed()

    def _close_if_removed(self) -> None:
        if self._is_removed and not self._users:
            # Not before: whoever writes may bring bytes that came before, and may be others now.
            if self.is_whole and not self._is_doubled:
                seal(self._handle, self.digest)
            os.close(self._handle)
