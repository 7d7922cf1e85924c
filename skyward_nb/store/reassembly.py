"""A value whose bytes come in any order: which of them are missing, and the digest of them all."""

from __future__ import annotations

import threading
from collections.abc import Callable

import xxhash

from skyward_nb.store.blobs import Buffer
from skyward_nb.store.value_messages import ByteGaps

_BEHIND = 8 << 20
_STEP = 1 << 20
_AT_ONCE = 4 << 20


class Reassembly:
    """What has come of `size` bytes, from any thread; `read` gives bytes that have come.

    They are digested as they come, so that no time is lost when the last one has.
    """

    def __init__(self, size: int, read: Callable[[int, int], Buffer]) -> None:
        self.size = size
        self.missing: ByteGaps = ByteGaps(size)
        self.changed: threading.Condition = threading.Condition()
        """Held to look at what is missing, and told when that is less."""
        self._read = read
        self._hasher = xxhash.xxh3_128()
        self._hashed = 0
        self._hashing = threading.Lock()

    def came(self, start: int, data: Buffer) -> bool:
        """These bytes are there now; whether none of them was before."""
        stop = start + len(data)
        if is_ours := self._hashing.acquire(blocking=False):
            try:
                if start == self._hashed:
                    self._hasher.update(data)
                    self._hashed = stop
            finally:
                self._hashing.release()
        with self.changed:
            before = self.missing.size
            self.missing.fill(start, stop)
            is_new = before - self.missing.size == len(data)
            until = self.missing.first(self.size)
            self.changed.notify_all()
        if is_ours and until - self._hashed > _BEHIND and self._hashing.acquire(blocking=False):
            try:
                # Not all at once: the caller has more to do.
                self._catch_up(min(until, self._hashed + _AT_ONCE))
            finally:
                self._hashing.release()
        return is_new

    def has_all(self) -> bool:
        """Whether nothing is missing."""
        with self.changed:
            return not self.missing

    def digest(self) -> str:
        """The digest of all bytes, once all have come; as `digest_of`."""
        with self._hashing:
            self._catch_up(self.size)
            return self._hasher.hexdigest()

    def _catch_up(self, until: int) -> None:
        while self._hashed < until:
            stop = min(until, self._hashed + _STEP)
            self._hasher.update(self._read(self._hashed, stop))
            self._hashed = stop
