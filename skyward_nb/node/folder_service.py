"""The agent's service for copies of working folders: they are compared, brought up to date, searched and read."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from skyward_nb.store.blobs import BlobStore, CorruptValue, digest_of
from skyward_nb.store.value_messages import (
    Answer,
    FolderAsk,
    FolderBrought,
    FolderFound,
    FolderPack,
    FolderQuery,
    FolderSearch,
    FolderUpdate,
    FolderUpdated,
    MissingContents,
    ValuePacked,
    ValueRefused,
)
from skyward_nb.workdir.machine_folder import MachineFolder
from skyward_nb.workdir.working_folder import copies_root


def answer(ask: FolderAsk, store: BlobStore) -> Answer:
    """The answer to a client; contents go through the machine's store."""
    try:
        folder = MachineFolder(copies_root(), ask.key)
        match ask:
            case FolderQuery():
                return MissingContents(*folder.lacking(ask.entries))
            case FolderUpdate():
                return FolderUpdated(folder.update(ask.entries, _contents(store, ask).get))
            case FolderSearch():
                return FolderFound(folder.find(ask.patterns), folder.sent(ask.patterns))
            case FolderBrought():
                folder.note_brought(ask.entries)
                return FolderUpdated(0)
            case FolderPack():
                return _packed(store, list(folder.read(ask.parts)))
    except CorruptValue as error:
        return ValueRefused(errno.EBADMSG, str(error))
    except OSError as error:
        return ValueRefused(error.errno or errno.EIO, _spelt(error))


def _contents(store: BlobStore, ask: FolderUpdate) -> dict[str, list[memoryview]]:
    """By digest, the parts of what came in values of the store; raises `CorruptValue`."""
    left = {entry.content: entry.size for entry in ask.entries}
    found: dict[str, list[memoryview]] = {}
    for each in ask.packed:
        data, start = store.map(each.digest), 0
        for digest, size in each.contents:
            parts = found.setdefault(digest, [])
            if left.get(digest, 0) > 0:  # else another file with the same content came before
                parts.append(data[start : start + size])
                left[digest] -= size
            start += size
    return found


def _packed(store: BlobStore, parts: Sequence[bytes]) -> ValuePacked:
    digest = digest_of(parts)
    store.put(digest, parts)
    return ValuePacked(digest, tuple(map(len, parts)))


def _spelt(error: OSError) -> str:
    """Why a machine cannot do it, with the file."""
    why = error.strerror or str(error)
    return f"{error.filename}: {why}" if error.filename else why
