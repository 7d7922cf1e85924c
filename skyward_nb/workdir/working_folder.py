"""Which folder of this machine a script works in, and where its copy on other machines is."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from skyward_nb.store.blobs import digest_of

FOLDERS = "SKYWARD_FOLDERS_DIR"
"""The variable that names the folder of all copies on a machine."""


@dataclass(frozen=True)
class WorkingFolder:
    """The folder `root` of this machine, which is `key` on other ones; without a key it does not travel.

    `takes_all` sends it however large it is. Files that the patterns `fetch` match are brought back.
    With `only`, it has just this file. Nothing is brought unasked into one that is `not_ours`: a machine named it.
    """

    root: Path
    key: str = ""
    takes_all: bool = False
    fetch: tuple[str, ...] = ()
    only: str = ""
    not_ours: bool = False


def key_of(root: Path, pool: str) -> str:
    """The name of a folder's copy on machines of a pool of this name: the same each time."""
    said = "\0".join((socket.gethostname(), str(os.getuid()), os.fspath(root), pool))
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", root.name).lstrip(".-")[:60] or "folder"
    return f"{name}-{digest_of([os.fsencode(said)])[:12]}"


def attached_folder(
    root: str, key: str, fetch: tuple[str, ...], pool: str, *, trusted: bool
) -> WorkingFolder | None:
    """The folder of a run that another client began, which is ours if it was sent from here; None if none was."""
    if not key:
        return None
    path = Path(root)
    is_ours = trusted and path.is_dir() and key == key_of(path, pool)
    return WorkingFolder(path, key, fetch=fetch, not_ours=not is_ours)


def copies_root() -> Path:
    """The folder of all copies on this machine: `SKYWARD_FOLDERS_DIR`, or one in the folder of environments."""
    if asked := os.environ.get(FOLDERS):
        return Path(asked)
    cache = os.environ.get("SKYWARD_CACHE_DIR") or "~/.cache/skyward_nb"
    return Path(cache).expanduser() / "folders"


def placed(key: str, path: str) -> str:
    """A path in the copy of a working folder on this machine; without a key, the path itself."""
    return os.fspath(copies_root() / key / path) if key else path
