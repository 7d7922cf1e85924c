"""What a working folder consists of, as it travels: its files by their contents, links and folders."""

from __future__ import annotations

import os
import re
from typing import Literal

import msgspec

from skyward_nb.words.errors import SkyError

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")


class FolderEntry(msgspec.Struct, frozen=True, array_like=True):
    """A file, a link or a folder: its relative `path` as bytes, with `/` between its parts.

    `mode` has its permissions. A file has a `size`, the digest of its `content`, and when it was `modified`, in
    nanoseconds since 1970; a link has a `target`.
    """

    path: bytes
    mode: int = 0
    size: int = 0
    modified: int = 0
    content: str = ""
    target: bytes = b""

    @property
    def kind(self) -> Literal["file", "link", "folder"]:
        """What it is."""
        return "link" if self.target else "file" if self.content else "folder"

    @property
    def name(self) -> str:
        """Its path as text."""
        return os.fsdecode(self.path)

    @property
    def is_inside(self) -> bool:
        """Whether its path leads to a place in the folder, and nowhere else."""
        parts = self.path.split(b"/")
        return b"\0" not in self.path and not {b"", b".", b".."}.intersection(parts)


class FilePart(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of a file from `start` to before `stop`."""

    path: bytes
    start: int
    stop: int


class PackedContents(msgspec.Struct, frozen=True, array_like=True):
    """A value in a store that has the contents of files in a row: their digests and sizes.

    A large content is in several values, one after another.
    """

    digest: str
    contents: tuple[tuple[str, int], ...]


def is_folder_key(text: str) -> bool:
    """Whether it can be the name of a working folder on a machine, and no path."""
    return _KEY.fullmatch(text) is not None


class FolderError(SkyError):
    """A script's working folder cannot be brought to machines, or results cannot be brought back.

    `folder` is its path here, `why` the reason, with the machine.
    """

    def __init__(self, folder: str, why: str, message: str) -> None:
        super().__init__(message)
        self.folder = folder
        self.why = why

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.folder, self.why, self.message)
