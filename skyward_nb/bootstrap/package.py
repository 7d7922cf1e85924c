"""This package as it runs here, editable or not: each version of its files is sent to a machine once."""

from __future__ import annotations

import gzip
import hashlib
import io
import shlex
import tarfile
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path

from skyward_nb.bootstrap.folder_scripts import LOCK
from skyward_nb.bootstrap.machine_facts import MachineFacts
from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.bootstrap.setup_errors import failure

_KINDS = (".py", ".json", ".typed")
_LIMIT = 600.0
_OLD = 90
"""Days without use after which a copy of the package is removed, when another one arrives."""

IS_WHOLE = """[ "$(find "$final" -type f ! -name '*.pyc' 2>/dev/null | wc -l)" -ge "$files" ]"""
"""Tests whether a copy is there with its `files`: some machines remove old ones, and leave the folders."""
USED = 'touch "$final" 2>/dev/null; find "$final" -type f -mtime +5 -exec touch -c {} + 2>/dev/null'
"""Has those machines see that a copy is used; of its files, that all are of one age."""

_UNPACK = f"""
if {IS_WHOLE}; then {USED}; exit 0; fi
rm -rf "$final"
mkdir "$new" && tar -xzf - -C "$new" && find "$new" -type f -exec touch {{}} + && in_place || exit 3
find "$folder" -mindepth 1 -maxdepth 1 -type d -mtime "+$old" -exec rm -rf {{}} +
"""


class Package:
    """The package's files as they are on disk now: their digest, and an archive of them, gzipped."""

    def __init__(self) -> None:
        self._files = tuple(_files())
        digest = hashlib.sha256()
        for name, content in self._files:
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        self.digest: str = digest.hexdigest()[:16]

    @property
    def count(self) -> int:
        """How many files it has."""
        return len(self._files)

    @cached_property
    def archive(self) -> bytes:
        """The same bytes for the same files; a process packs them once."""
        return _archive(self._files)


@lru_cache(maxsize=1)
def _archive(files: tuple[tuple[str, bytes], ...]) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o600
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def place(facts: MachineFacts, digest: str) -> str:
    """The folder of this copy of the package on a machine, for its `sys.path`."""
    return f"{facts.cache}/code/{digest}"


async def ship(shell: Shell, facts: MachineFacts, package: Package | None = None) -> str:
    """Send the package to a machine that lacks it; returns the folder for `sys.path` there.

    Raises `HostNotReady` if it cannot be written, for example on a full disk.
    """
    package = package or Package()
    final = place(facts, package.digest)
    given = f"old={_OLD} files={package.count}\nfinal={shlex.quote(final)}\n"
    script = f"{given}{LOCK}{_UNPACK}"
    ran = await shell.run(script, data=package.archive, limit=_LIMIT)
    if ran.code:
        raise await failure(shell, facts, ran, f"skyward_nb could not be copied to {final}")
    return final


def _files() -> Iterator[tuple[str, bytes]]:
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*")):
        if path.suffix in _KINDS and path.is_file():
            yield f"{root.name}/{path.relative_to(root).as_posix()}", path.read_bytes()
