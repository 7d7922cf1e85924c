"""`sky.Volume`: a bucket of S3 as a folder of machines. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import Any

import msgspec

from skyward_nb.words.errors import OptionError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
"""https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"""
_WRITTEN = re.compile(
    r"s3://(?P<bucket>[^/:]+)/?(?P<prefix>[^:]*):(?P<mount>[^:]*)(?P<writes>:rw)?"
)
_SYSTEM = frozenset((
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/mnt", "/opt", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var",  # noqa: S108
))  # fmt: skip


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A `bucket` of S3, or what is below `prefix` in it, as the folder `mount` of each rented machine.

    It can be written to unless it is `read_only`. Raises `OptionError` for what cannot be a bucket or a folder.
    """

    bucket: str
    mount: str
    prefix: str = ""
    read_only: bool = True

    def __post_init__(self) -> None:
        given: Any = self
        for field in ("bucket", "mount", "prefix"):
            if not isinstance(getattr(given, field), str):
                raise _wrong(field, getattr(given, field), "write it as text")
        if not isinstance(given.read_only, bool):
            raise _wrong("read_only", given.read_only, "write True or False")
        if not _BUCKET.fullmatch(self.bucket):
            raise _wrong("bucket", self.bucket, "that is no name of a bucket")
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


def read_volume(option: str, text: str) -> Volume:
    """A volume as an option line writes it: `s3://bucket/prefix:/data`, with `:rw` behind it to write there, too."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise OptionError(
            option,
            f"{option}={text}: write s3://bucket/prefix:/data, the folder of machines after the colon; "
            "with :rw behind it machines write there, too",
        )
    try:
        return Volume(
            bucket=found["bucket"],
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
