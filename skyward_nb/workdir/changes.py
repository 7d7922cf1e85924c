"""The changes that make a copy equal to its working folder, from the entries of both. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from skyward_nb.words.folder_entry import FolderEntry

Entries = Mapping[bytes, FolderEntry]
"""Entries by their paths."""


@dataclass(frozen=True)
class FolderChanges:
    """What to remove, the deepest first; and what to write, folders before what is in them."""

    removed: tuple[FolderEntry, ...]
    written: tuple[FolderEntry, ...]


def changes(
    sent: Entries,
    now: Entries,
    is_there: Callable[[FolderEntry], bool],
    brought: Entries = MappingProxyType({}),
) -> FolderChanges:
    """The changes from what was `sent` before to what is `now`.

    What is the same as it was sent, or `brought` from there, stays as the machine has it, if something of its kind
    `is_there`.
    """

    def is_known(entry: FolderEntry) -> bool:
        known = (each[entry.path] for each in (sent, brought) if entry.path in each)
        return any(_is_same(each, entry) for each in known)

    removed = [
        entry for path, entry in sent.items() if path not in now or now[path].kind != entry.kind
    ]
    written = [entry for entry in now.values() if not (is_known(entry) and is_there(entry))]
    return FolderChanges(
        tuple(sorted(removed, key=lambda entry: entry.path.split(b"/"), reverse=True)),
        tuple(sorted(written, key=lambda entry: entry.path.split(b"/"))),
    )


def _is_same(sent: FolderEntry, now: FolderEntry) -> bool:
    """Whether an entry is as it was sent; when a file was written does not count."""
    return (sent.kind, sent.mode, sent.content, sent.target) == (
        now.kind,
        now.mode,
        now.content,
        now.target,
    )


def by_path(entries: Iterable[FolderEntry]) -> dict[bytes, FolderEntry]:
    """Entries by their paths; raises ValueError for a path that leads out of the folder."""
    found = {entry.path: entry for entry in entries}
    for entry in found.values():
        if not entry.is_inside:
            raise ValueError(f"{entry.name!r} is not a path in a folder")
    return found
