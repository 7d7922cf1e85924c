"""The digest of the sources of the Lab extension's browser half: what is built of them is kept beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "labextension"
_FILES = ("package.json", "package-lock.json", "tsconfig.json")
_FOLDERS = ("src", "style", "schema")


def digest() -> str:
    """SHA-256 over the names and bytes of all sources."""
    paths = [FOLDER / name for name in _FILES]
    for folder in _FOLDERS:
        paths += sorted(path for path in (FOLDER / folder).rglob("*") if path.is_file())
    found = hashlib.sha256()
    for path in paths:
        found.update(f"{path.relative_to(FOLDER).as_posix()}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest())
