"""Readers of options about machines of AWS; each raises `OptionError`. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from skyward_nb.options.option_readers import Reader, matching
from skyward_nb.words.errors import OptionError
from skyward_nb.words.hosts import parse_host
from skyward_nb.words.provider_access import LEAST_WARM, MOST_WARM, SSM
from skyward_nb.words.units import read_duration
from skyward_nb.words.volume import Volume, apart, read_volume

RESERVED = r"cr-[0-9a-f]{8,17}"
"""The form of ids of reserved capacity."""
LEAST_DISK = 30
_MOST_DISK = 65_536
_THROUGHPUT = (125, 2000)
"""MiB/s of a gp3. Source: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html."""
_MOST_KEY, _MOST_VALUE, _MOST_TAGS = 128, 256, 40
"""Limits of EC2's tags (50 of a resource, some of which are ours).

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html.
"""


def jump(option: str, text: str) -> str:
    """`ssm`, or a host as `ssh` takes it."""
    if text == SSM:
        return text
    try:
        host = parse_host(text)
    except OptionError as error:
        raise OptionError(option, error.message.replace("hosts=", f"{option}=", 1)) from None
    return f"ssh://{host.address}" if host.port else host.address


def volumes(option: str, text: str) -> tuple[Volume, ...]:
    """Buckets and file systems, and the folders that they are on machines, with commas between them."""
    parts = [each.strip() for each in text.split(",")]
    return apart(tuple(read_volume(option, each) for each in parts))


def networks(option: str, text: str) -> tuple[str, ...]:
    """Addresses or networks, with commas between them; not the whole internet."""
    try:
        found = [ipaddress.ip_network(each.strip()) for each in text.split(",")]
    except ValueError as error:
        raise OptionError(option, f"{option}={text}: {error}: write {option}=1.2.3.4") from None
    for each in found:
        if not each.prefixlen:
            raise OptionError(
                option, f"{option}={text}: {each} is everybody: name the addresses that log in"
            )
    return tuple(dict.fromkeys(map(str, found)))


def tags(option: str, text: str) -> tuple[tuple[str, str], ...]:
    """Tags as AWS takes them: `K=V`, with commas between them."""
    pairs: list[tuple[str, str]] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise OptionError(
                option, f"{option}={text}: {part!r} is not a tag: write {option}=K=V,..."
            )
        pairs.append((key, value))
    return tag_pairs(option, text, pairs)


def tag_pairs(
    option: str, text: str, pairs: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Tags that AWS takes; `text` is what was written."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if not key:
            raise OptionError(option, f"{option}={text}: a tag has a name: write {option}=K=V,...")
        if key.lower().startswith(("aws:", "skyward:")) or key == "Name":
            raise OptionError(option, f"{option}={text}: the tag {key} is not yours to give")
        if len(key) > _MOST_KEY or len(value) > _MOST_VALUE:
            raise OptionError(
                option,
                f"{option}={text}: AWS takes keys of {_MOST_KEY} and values of {_MOST_VALUE} characters at most",
            )
        found[key] = value
    if not found or len(found) > _MOST_TAGS:
        raise OptionError(option, f"{option}={text}: give 1 to {_MOST_TAGS} tags, {option}=K=V,...")
    return tuple(found.items())


def gigabytes(option: str, text: str) -> int:
    """A disk's size in GB: `200`, `200GB`, `2TB`."""
    found = re.fullmatch(r"(\d+)\s*(GB|G|TB|T)?", text, re.IGNORECASE)
    size = int(found[1]) * (1000 if (found[2] or "").upper() in ("TB", "T") else 1) if found else 0
    if not LEAST_DISK <= size <= _MOST_DISK:
        raise OptionError(
            option, f"{option}={text}: give {LEAST_DISK} to {_MOST_DISK} GB, such as {option}=200GB"
        )
    return size


def throughput(option: str, text: str) -> int:
    """MiB/s of a gp3."""
    least, most = _THROUGHPUT
    if not text.isdecimal() or not least <= int(text) <= most:
        raise OptionError(option, f"{option}={text}: give {least} to {most}, MiB/s of a gp3 disk")
    return int(text)


profile: Reader = matching(
    r"[A-Za-z0-9+=,.@_\-]{1,128}|arn:aws[a-z\-]*:iam::\d{12}:instance-profile/\S+",
    "that is not an instance profile: write its name, or arn:aws:iam::123456789012:instance-profile/NAME (a role's own "
    "ARN is not taken)",
)
"""The name or ARN of an instance profile."""


def warm(option: str, text: str) -> float:
    """Seconds for which machines are stopped before they end."""
    seconds = read_duration(option, text)
    if seconds < LEAST_WARM:
        raise OptionError(
            option, f"{option}={text}: give {LEAST_WARM / 60:g}m at least, such as {option}=2h"
        )
    if seconds > MOST_WARM:
        raise OptionError(
            option,
            f"{option}={text}: give {MOST_WARM / 86_400:g}d at most: their disks cost until then",
        )
    return seconds
