"""The tags of all resources at AWS, by which they are found. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from skyward_nb.providers.aws.client import Arguments
from skyward_nb.providers.aws.image_records import ImageRecord
from skyward_nb.providers.aws.rental_records import RentalRecord

POOL = "skyward:pool"
OWNER = "skyward:owner"
CREATED = "skyward:created"
EXPIRES = "skyward:expires"
MARK = "skyward:image"
"""What an image and its snapshots have, and nothing else."""
USER = "skyward:user"
"""Of an image: who logs in."""
DRIVER = "skyward:driver"
"""Of an image: whether it has a driver for NVIDIA's GPUs."""
_MOST = 256


def tags_of(record: RentalRecord) -> list[dict[str, str]]:
    """The tags of a pool's resources, in EC2's form."""
    expires = spell_time(record.deadline) if record.deadline else "when nobody needs it"
    words = {
        "Name": f"sky-{record.name}",
        POOL: record.pool_id,
        OWNER: record.owner,
        CREATED: spell_time(record.created),
        EXPIRES: expires,
    }
    # Ours last: by them resources are found again.
    return _in_form({**dict(record.tags), **words})


def of_image(record: ImageRecord, *, has_driver: bool) -> list[dict[str, str]]:
    """The tags of an image and its snapshots, in EC2's form."""
    words = {
        **dict(record.tags),
        "Name": record.title,
        POOL: record.pool_id,
        OWNER: record.owner,
        CREATED: spell_time(record.created),
        EXPIRES: "when it is removed",
        MARK: record.mark,
        USER: record.user,
        DRIVER: "yes" if has_driver else "no",
    }
    return _in_form(words)


def _in_form(words: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": fitting(value)} for key, value in words.items()]


def fitting(value: str) -> str:
    """A value as a tag has it: EC2 takes no longer ones."""
    return value[:_MOST]


def tagged(kinds: Sequence[str], record: RentalRecord) -> list[Arguments]:
    """A `TagSpecifications` for these kinds of resources."""
    tags = tags_of(record)
    return [{"ResourceType": kind, "Tags": tags} for kind in kinds]


def tags_in(resource: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a resource."""
    return {str(each["Key"]): str(each.get("Value", "")) for each in resource.get("Tags", [])}


def spell_other(image: Mapping[str, Any], region: str) -> str:
    """An image of which nobody here has a record: whose it is, and the command that removes it."""
    ami, own = image["ImageId"], tags_in(image)
    command = (
        f"aws ec2 deregister-image --image-id {ami} --delete-associated-snapshots --region {region}"
    )
    name, owner = image.get("Name", ""), own.get(OWNER, "nobody")
    return f"{name} in {region} ({ami}) of {owner}: `{command}` removes it"


def of_pool(pool_id: str) -> Arguments:
    """A filter for a pool's resources."""
    return {"Name": f"tag:{POOL}", "Values": [pool_id]}


def of_anybody() -> Arguments:
    """A filter for the resources of all pools, of any owner."""
    return {"Name": "tag-key", "Values": [POOL]}


def spell_time(seconds: float) -> str:
    """A time in UTC, in the form of tags."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
