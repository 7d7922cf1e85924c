"""Records of baked images, each written before the call that makes the image.

An image outlives its pool, so each has a file of its own, which is removed when the image and the snapshots that it
consists of are known to be gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from skyward_nb.providers.aws import rental_records
from skyward_nb.providers.aws.rental_records import MakerProcess, RentalRecord, UsedRegion
from skyward_nb.providers.state_files import remove, state_folder, write
from skyward_nb.words.decoding import from_json

PREFIX = "sky-"
"""The beginning of the names of images at AWS, which are unique in a region of an account."""
_FOLDER = "images"
_USED = "images.jsonl"
_LOCK = "lock"
_LONGEST = 3600.0
"""Seconds that the making of an image, until EC2 copies its disks, surely takes less than."""
State = Literal["making", "made", "ending"]


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An image of one region, made of the machine `instance` of a pool; times in seconds since 1970.

    It, and its snapshots, have the tag `mark`, which nothing else has. While it is "making", EC2 may not have begun to
    copy the disks, and what must not be copied may be back on them: if its `maker` is gone then, it is removed.
    """

    name: str
    region: str
    mark: str
    owner: str
    maker: MakerProcess
    created: float
    pool_id: str
    instance: str
    type: str
    user: str
    account: str = ""
    profile: str | None = None
    endpoint: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    state: State = "making"
    asked: bool = False
    """Whether EC2 may have been asked for it."""
    ami: str = ""
    given_up: float = 0.0
    """When it was given up before EC2 was seen to copy its disks; 0 if it was not."""

    @property
    def title(self) -> str:
        """Its name at AWS."""
        return f"{PREFIX}{self.name}"

    @property
    def regions(self) -> tuple[str, ...]:
        """The one that it is in."""
        return (self.region,)

    @property
    def place(self) -> UsedRegion:
        """Its region, and the credentials that it was made with."""
        return UsedRegion(self.region, self.profile, self.endpoint)

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody will go on with what was begun; of another computer nobody knows, and so it counts after an hour."""
        is_late = not self.maker.is_here and time.time() - self.created > _LONGEST
        lives = self.maker.may_live and not is_late
        return self.state == "ending" or (self.state == "making" and not lives)

    @property
    def is_being_made(self) -> bool:
        """Whether its maker may go on with it."""
        return self.state == "making" and not self.is_abandoned


class ImageEntry:
    """The file of one image, and its record, which is on disk when `note` returns."""

    def __init__(self, path: Path, record: ImageRecord) -> None:
        self._path = path
        self.record: ImageRecord = record

    @classmethod
    def begin(cls, record: ImageRecord) -> ImageEntry:
        """Begin the record of an image; raises FileExistsError where there is one, OSError where it cannot be written."""
        note_used(record.place)
        path = _path(record.name, record.region)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        write(new, _written(record))
        try:
            # Of two processes that begin at once, one has the name.
            path.hardlink_to(new)
        finally:
            new.unlink()
        return cls(path, record)

    def note(self, **changes: Any) -> None:
        """Write the record down with these changes; raises FileNotFoundError where it is gone, even if a new one has its name."""
        self.record = replace(self.record, **changes)
        with self._held() as is_there:
            if not is_there:
                raise FileNotFoundError(f"the record of image {self.record.name} is gone")
            write(self._path, _written(self.record))

    def forget(self) -> None:
        """Remove the record of an image that is gone."""
        with self._held() as is_there:
            if is_there:
                remove(self._path)

    @contextlib.contextmanager
    def _held(self) -> Generator[bool]:
        """Whether the record on disk is this one's, which it stays while inside."""
        handle = os.open(self._path.with_name(_LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(handle, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            there = _read(self._path)
            yield there is not None and there.record.mark == self.record.mark


def record_of(rental: RentalRecord, instance: str, name: str, created: float) -> ImageRecord:
    """The record of an image to be made of a pool's machine."""
    (machine,) = [each for each in rental.machines if each.instance == instance]
    return ImageRecord(
        name=name,
        region=machine.region,
        mark=secrets.token_hex(8),
        owner=rental.owner,
        maker=MakerProcess.this(),
        created=created,
        pool_id=rental.pool_id,
        instance=instance,
        type=machine.type,
        user=rental.user,
        account=rental.account,
        profile=rental.profile,
        endpoint=rental.endpoint,
        tags=rental.tags,
    )


def entries() -> list[ImageEntry]:
    """All readable records."""
    paths = sorted((state_folder(rental_records.PROVIDER) / _FOLDER).glob("*.json"))
    return [each for each in map(_read, paths) if each is not None]


def named(name: str, regions: Iterable[str] = ()) -> list[ImageEntry]:
    """The records of images of this name, in these regions or in any."""
    wanted = {*regions}
    found = (each for each in entries() if each.record.name == name)
    return [each for each in found if not wanted or each.record.region in wanted]


def used() -> list[UsedRegion]:
    """All regions in which an image was ever made."""
    return rental_records.used(_USED)


def note_used(place: UsedRegion) -> None:
    """Note a region in which an image is made, or was found."""
    rental_records.note_used(place, _USED)


def _path(name: str, region: str) -> Path:
    return state_folder(rental_records.PROVIDER) / _FOLDER / f"{region}.{name}.json"


def _written(record: ImageRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record))


def _read(path: Path) -> ImageEntry | None:
    # A record of another version is left alone.
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return ImageEntry(path, from_json(path.read_bytes(), ImageRecord))
    return None
