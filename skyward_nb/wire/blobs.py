"""The content store of one machine: values as files on tmpfs, named by their digest.

Kernel and ranks of the same machine open the same store, so a value is written once and
mapped copy-on-write by whoever needs it. It knows nothing of pickles.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

MAPPED_FROM = 4 << 20
Buffer = bytes | bytearray | memoryview


class BlobStore:
    """Blobs below one folder that only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Where the blob of this digest lies, whether it is there or not."""
        return self.folder / digest

    def put(self, digest: str, parts: Sequence[Buffer]) -> None:
        """Write a blob from its parts, all or nothing; one that is there is left alone.

        Raises OSError when the store is full; nothing is left of the attempt.
        """
        target = self.path(digest)
        if target.exists():
            return
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".part-")
        try:
            with os.fdopen(handle, "wb", buffering=0) as file:
                for part in parts:
                    view = memoryview(part).cast("B")
                    while view:
                        view = view[file.write(view) or 0 :]
            Path(name).rename(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def map(self, digest: str) -> memoryview:
        """The blob's bytes, private to the caller: writing changes nobody else's copy.

        A mapping holds a file descriptor for as long as it lives, so only what is large is mapped;
        the rest is read. Raises FileNotFoundError when the store lacks it.
        """
        with self.path(digest).open("rb") as file:
            if os.fstat(file.fileno()).st_size < MAPPED_FROM:
                return memoryview(bytearray(file.read()))
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))

    def keep(self, digests: Collection[str]) -> None:
        """Forget all other blobs; memory already mapped stays valid until its last user lets go."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name not in digests:
                    Path(entry.path).unlink(missing_ok=True)
