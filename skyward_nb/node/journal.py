"""The agent's numbered event log, from which a client that comes again reads on."""

from __future__ import annotations

from pathlib import Path


class Journal:
    """Whole frames in order; an offset counts bytes of them, for the agent's life."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = bytearray()
        self._starts: dict[int, int] = {}
        self.first = 0

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.first + len(self._data)

    def append(self, frames: bytes) -> None:
        """Whole frames."""
        self._data += frames

    def read(self, offset: int, most: int = 1 << 18) -> tuple[bytes, int]:
        """Whole frames from `offset` on, and the offset after them."""
        at = max(0, offset - self.first)
        to = at
        while to < len(self._data) and to - at < most:
            to += 4 + int.from_bytes(self._data[to : to + 4], "big")
        return bytes(self._data[at:to]), self.first + to

    def begin(self, run: int) -> int:
        """A run begins here."""
        self._starts[run] = self.end
        return self.end

    def start_of(self, run: int) -> int | None:
        """Where a run began."""
        return self._starts.get(run)

    def forget(self, offset: int) -> None:
        """All before this was seen."""
        del self._data[: max(0, offset - self.first)]
        self.first = max(self.first, offset)

    def close(self) -> None:
        """Remove all files."""
