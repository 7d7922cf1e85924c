"""`sky.Volume`: a bucket of S3, or a file system of EFS or FSx for Lustre, as a folder of machines. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import Any

import msgspec

from skyward_nb.words.errors import OptionError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
"""https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"""
_FILE_SYSTEM = re.compile(r"fs-[0-9a-f]{8,40}")
_MOUNT_NAME = re.compile(r"[A-Za-z0-9_-]{1,8}")
"""https://docs.aws.amazon.com/fsx/latest/APIReference/API_LustreFileSystemConfiguration.html"""
_FIELDS = {"s3": "bucket", "efs": "efs", "fsx": "fsx"}
"""By the beginning of an address, the field that has its name."""
_WRITTEN = re.compile(
    r"(?P<kind>s3|efs|fsx)://(?P<name>[^/:]+)/?(?P<prefix>[^:]*):(?P<mount>[^:]*)(?P<writes>:rw)?"
)
_FORMS = (
    "s3://bucket/prefix:/data, efs://fs-0123abcd/path:/data or fsx://fs-0123abcd/mountname:/data"
)
_SYSTEM = frozenset((
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/mnt", "/opt", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var",  # noqa: S108
))  # fmt: skip


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A `bucket` of S3, or what is below `prefix` in it, as the folder `mount` of each rented machine.

    In place of a bucket: the id of a file system, `efs` of EFS, where `prefix` is a folder, or `fsx` of FSx for
    Lustre, where `prefix` begins with the mount name. It can be written to unless it is `read_only`. Raises
    `OptionError` for what cannot be one of these, or a folder.
    """

    mount: str
    bucket: str = ""
    efs: str = ""
    fsx: str = ""
    prefix: str = ""
    read_only: bool = True

    def __post_init__(self) -> None:
        given: Any = self
        for field in ("mount", "bucket", "efs", "fsx", "prefix"):
            if not isinstance(getattr(given, field), str):
                raise _wrong(field, getattr(given, field), "write it as text")
        if not isinstance(given.read_only, bool):
            raise _wrong("read_only", given.read_only, "write True or False")
        self._check_name()
        path = posixpath.normpath(self.mount)
        if not path.startswith("/") or "\n" in path:
            raise _wrong("mount", self.mount, "give an absolute path, such as /data")
        if path in _SYSTEM or path.startswith("//"):
            raise _wrong(
                "mount", self.mount, "the system needs this folder: give another, such as /data"
            )
        parts = self.prefix.strip("/").split("/")
        if {".", ".."} & {*parts} or "\n" in self.prefix:
            raise _wrong(
                "prefix", self.prefix, "give the beginning of keys, such as imagenet/train"
            )
        if self.fsx and not _MOUNT_NAME.fullmatch(parts[0]):
            why = (
                "it begins with the mount name that FSx gave the file system (`aws fsx describe-file-systems "
                f"--file-system-ids {self.fsx} --query 'FileSystems[].LustreConfiguration.MountName'`)"
            )
            raise _wrong("prefix", self.prefix, why)

    def _check_name(self) -> None:
        """Raise `OptionError` unless there is one name, which can be one."""
        named = [field for field in _FIELDS.values() if getattr(self, field)]
        if len(named) != 1:
            what = " and ".join(f"{each}=" for each in named) or "nothing"
            raise OptionError(
                "bucket", f"sky.Volume: it takes one of bucket=, efs= and fsx=, not {what}"
            )
        (field,) = named
        name: str = getattr(self, field)
        if field == "bucket" and not _BUCKET.fullmatch(name):
            raise _wrong(field, name, "that is not the name of a bucket")
        if field != "bucket" and not _FILE_SYSTEM.fullmatch(name):
            raise _wrong(field, name, "write the id of a file system, such as fs-0123456789abcdef0")

    @property
    def source(self) -> str:
        """Its address, as a line writes it."""
        kind, name = next(
            (kind, getattr(self, field)) for kind, field in _FIELDS.items() if getattr(self, field)
        )
        return f"{kind}://{name}/{self.prefix.strip('/')}".rstrip("/")


def read_volume(option: str, text: str) -> Volume:
    """A volume as an option line writes it: `s3://bucket/prefix:/data`, with `:rw` behind it to write there, too.

    File systems are `efs://fs-…/path:/data` and `fsx://fs-…/mountname:/data`.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise OptionError(
            option,
            f"{option}={text}: write {_FORMS}, the folder of machines after the colon; "
            "with :rw behind it machines write there, too",
        )
    try:
        return Volume(
            **{_FIELDS[found["kind"]]: found["name"]},
            prefix=found["prefix"] or "",
            mount=found["mount"],
            read_only=not found["writes"],
        )
    except OptionError as error:
        why = error.message.partition("): ")[2]
        raise OptionError(option, f"{option}={text}: {why}") from None


def apart(volumes: tuple[Volume, ...]) -> tuple[Volume, ...]:
    """Volumes, each in a folder of its own; raises `OptionError` for one at or within the folder of another."""
    mounts = [posixpath.normpath(each.mount) for each in volumes]
    for each in mounts:
        if mounts.count(each) > 1:
            raise OptionError("volumes", f"volumes=: two volumes cannot both be at {each}")
        if above := [other for other in mounts if each.startswith(f"{other}/")]:
            raise OptionError(
                "volumes", f"volumes=: {each} would be within the volume at {above[0]}"
            )
    return volumes


def _wrong(field: str, value: object, why: str) -> OptionError:
    return OptionError(field, f"sky.Volume({field}={value!r}): {why}")
