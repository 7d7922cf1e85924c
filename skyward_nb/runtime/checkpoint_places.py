"""Where checkpoints are: a folder of this machine, which others may share, or a bucket of S3.

Both hold files of bytes under `KEY/NAME`, which are there as a whole or not at all. S3 is spoken to by boto3 where the
ranks have it, with the credentials that it finds here. Errors of either are `OSError`s that name the place.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from skyward_nb.store.blobs import Buffer
from skyward_nb.words.checkpoints import PART, S3
from skyward_nb.words.errors import spell_size

_PIECE = 8 << 20
"""Bytes that are written before it is asked whether there is time left."""
_PRIVATE, _OURS_ALONE = 0o700, 0o600
_OTHERS_WRITE = 0o022
_CONNECT_LIMIT, _READ_LIMIT, _TRIES = 5, 30, 3
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of errors where a file does not fit."""


class CheckpointPlace(Protocol):
    """Files of checkpoints."""

    def write(self, key: str, name: str, parts: list[Buffer], until: float | None) -> None:
        """Write a file; raises TimeoutError where it is not whole at `until` (seconds since 1970)."""
        ...

    def read(self, key: str, name: str) -> memoryview:
        """The bytes of a file, writable and private to this process."""
        ...

    def files(
        self, beginning: str = "", answered: Callable[[], None] = lambda: None
    ) -> dict[str, list[str]]:
        """The names of files, by key, of keys that begin so; `answered` is called after each answer."""
        ...

    def remove(self, key: str) -> None:
        """Remove a checkpoint; one that another process removes meanwhile is no error."""
        ...


def place_at(where: str) -> CheckpointPlace:
    """The place of this spelling; of S3 raises OSError where boto3 is not installed."""
    return _Bucket(where) if where.startswith(S3) else _SharedFolder(Path(where).expanduser())


def _in_time(parts: Iterable[Buffer], until: float | None) -> Iterator[memoryview]:
    """The bytes of these parts in pieces; raises TimeoutError when the time is over."""
    written = 0
    views = [memoryview(each).cast("B") for each in parts if len(each)]
    total = sum(view.nbytes for view in views)
    for view in views:
        for at in range(0, view.nbytes, _PIECE):
            if until is not None and time.time() > until:
                done = f"{spell_size(written)} of {spell_size(total)} were written"
                raise TimeoutError(f"there was not time enough: {done}")
            piece = view[at : at + _PIECE]
            yield piece
            written += piece.nbytes


class _SharedFolder:
    """A folder, whose checkpoints are of the same user, and writable by nobody else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, key: str, name: str, parts: list[Buffer], until: float | None) -> None:
        folder = self._folder / key
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        for each in (self._folder, folder):
            each.mkdir(mode=_PRIVATE, exist_ok=True)
            _check_ours(each)
        size, room = sum(map(len, parts)), shutil.disk_usage(folder).free
        if size > room:
            raise _no_room(
                errno.ENOSPC,
                f"{folder} has {spell_size(room)} free, and {spell_size(size)} are needed",
            )
        part = folder / f"part-{name}-{os.getpid()}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OURS_ALONE)
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                for piece in _in_time(parts, until):
                    while piece:
                        piece = piece[file.write(piece) :]
                os.fsync(file.fileno())
            part.replace(folder / name)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise _no_room(
                    error.errno, f"{folder}: {error.strerror}: {spell_size(size)} are needed"
                ) from None
            raise
        finally:
            part.unlink(missing_ok=True)

    def read(self, key: str, name: str) -> memoryview:
        _check_ours(self._folder)
        _check_ours(self._folder / key)
        path = self._folder / key / name
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0) as file:
            found = os.fstat(file.fileno())
            _check_stat(path, found)
            if not found.st_size:
                return memoryview(bytearray())
            # Not the file itself: it may be removed, or cut, while arrays lie there.
            data = memoryview(mmap.mmap(-1, found.st_size, flags=mmap.MAP_PRIVATE))
            at = 0
            while at < len(data) and (count := file.readinto(data[at:])):
                at += count
            return data[:at]

    def files(
        self, beginning: str = "", answered: Callable[[], None] = lambda: None
    ) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for each in sorted(self._folder.iterdir()):
                if not each.name.startswith(beginning):
                    continue
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    found[each.name] = [file.name for file in sorted(each.iterdir())]
                answered()
        return found

    def remove(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # another process removes it
            for each in (self._folder / key).glob(f"*{PART}"):
                each.unlink(missing_ok=True)  # first: without its parts nobody takes it
        shutil.rmtree(self._folder / key, ignore_errors=True)


def _no_room(number: int, words: str) -> OSError:
    """An error of this number, with these words alone."""
    error = OSError(words)
    error.errno = number
    return error


def _check_ours(path: Path) -> None:
    _check_stat(path, path.lstat())


def _check_stat(path: Path, found: os.stat_result) -> None:
    """Raise PermissionError where anybody else may have written this: reading a pickle runs code."""
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE or stat.S_ISLNK(found.st_mode):
        raise PermissionError(
            f"{path} may have been written by others: it has to be of user {os.geteuid()}, and writable by that user "
            f"alone (chmod -R go-w {shlex.quote(str(path))})"
        )


class _Bytes(io.RawIOBase):
    """Pieces as a file to read."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = piece
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class _Bucket:
    """What is below a prefix of a bucket of S3."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._bucket, _, prefix = where.removeprefix(S3).partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise OSError(
                f"{where} needs the package boto3 on the ranks: add pip=boto3 to the pool's options"
            ) from None
        config = Config(
            connect_timeout=_CONNECT_LIMIT,
            read_timeout=_READ_LIMIT,
            retries={"total_max_attempts": _TRIES, "mode": "standard"},
        )
        with self._told():
            self._client: Any = boto3.client("s3", config=config)  # pyright: ignore[reportUnknownMemberType]

    @contextlib.contextmanager
    def _told(self) -> Generator[None]:
        """Raise errors of boto3 as OSError, with the place."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise OSError(
                f"{self._where}: {why}. The ranks' own credentials are used: those of instance_profile= on machines of EC2"
            ) from error

    def write(self, key: str, name: str, parts: list[Buffer], until: float | None) -> None:
        with self._told():
            file = io.BufferedReader(_Bytes(_in_time(parts, until)), _PIECE)
            self._client.upload_fileobj(file, self._bucket, f"{self._prefix}{key}/{name}")

    def read(self, key: str, name: str) -> memoryview:
        into = io.BytesIO()
        with self._told():
            self._client.download_fileobj(self._bucket, f"{self._prefix}{key}/{name}", into)
        return into.getbuffer()

    def files(
        self, beginning: str = "", answered: Callable[[], None] = lambda: None
    ) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        with self._told():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + beginning):
                for each in page.get("Contents", ()):
                    key, _, name = each["Key"].removeprefix(self._prefix).partition("/")
                    found.setdefault(key, []).append(name)
                answered()
        return found

    def remove(self, key: str) -> None:
        with self._told():
            names = self.files(f"{key}/").get(key, [])
            for name in sorted(names, key=lambda name: not name.endswith(PART)):
                self._client.delete_object(Bucket=self._bucket, Key=f"{self._prefix}{key}/{name}")
