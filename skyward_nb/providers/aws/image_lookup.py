"""The baked image that a pool asks for by its name, in a region: whether there is one, and which machines it fits."""

from __future__ import annotations

import json
import shlex

from skyward_nb.providers.aws import baking, image_records, rental_records, tags
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.client import Answer, AWSClient
from skyward_nb.providers.aws.rental_records import UsedRegion
from skyward_nb.words.offers import InstanceType
from skyward_nb.words.provider_access import is_image_id

NONE_HERE = "NoBakedImage"
NOT_READY = "BakedImageNotReady"
_ASKED = "DescribeImages"


async def described(cloud: AWSClient, asked: str, region: str) -> Answer:
    """What EC2 says of an image by its id, or by the name that it was baked with; raises `AWSError`."""
    if is_image_id(asked):
        said = await cloud.ask(_ASKED, region, ImageIds=[asked])
        if not said["Images"]:
            raise AWSError("InvalidAMIID.NotFound", asked, _ASKED)
        return said["Images"][0]
    found = await baking.named(cloud, asked, region)
    if not found:
        raise AWSError(NONE_HERE, _none_here(asked, region), _ASKED)
    (image,) = found
    own = tags.tags_in(image)
    mark = own.get(tags.MARK)
    if mark and own.get(tags.OWNER) == tags.fitting(rental_records.owner()):
        # It may be a copy that was made by hand: it is listed and removed from here on.
        with rental_records.as_far_as_it_can():
            image_records.note_used(UsedRegion(region, cloud.profile, cloud.endpoint))
    for entry in image_records.named(asked, [region]):
        if entry.record.mark == mark and (why := _unfinished(entry.record)):
            raise AWSError(NOT_READY, f"image {asked!r} in {region} {why}", _ASKED)
    state = str(image.get("State", ""))
    if state == "pending":
        why = f"EC2 still copies the disks of image {asked!r}: `%sky bake` says when it is ready"
        raise AWSError(NOT_READY, why, _ASKED)
    if state == "disabled":
        command = f"aws ec2 enable-image --image-id {image['ImageId']} --region {region}"
        why = f"image {asked!r} in {region} is disabled: `{command}` enables it"
        raise AWSError(NOT_READY, why, _ASKED)
    if state != "available":
        why = f"image {asked!r} is {state}: {baking.reason(image)}"
        raise AWSError(NOT_READY, why, _ASKED)
    return image


def _unfinished(record: image_records.ImageRecord) -> str:
    """Why no machine starts from an image that is there, by its record: it may have what must not be copied."""
    if record.state == "made":
        return ""
    if record.is_abandoned:
        return f"was not finished, or is being removed: `%sky bake {record.name} remove` removes it"
    return f"is still being made by {record.maker}: `%sky bake` says when it is ready"


def _none_here(name: str, region: str) -> str:
    here = f"there is no image {name!r} in {region}"
    records = [each.record for each in image_records.named(name)]
    others = [each for each in records if each.ami and each.region != region]
    own = [each for each in records if each.region == region]
    if own and not others:
        gone = f"its AMI is gone: `%sky bake {name} remove`, then bake again"
        return f"{here}: {_unfinished(own[0]) or gone}"
    if not others:
        return f"{here}: `%sky bake {name}` makes it of a pool that is up there"
    one = others[0]
    command = [
        "aws", "ec2", "copy-image", "--source-region", one.region, "--source-image-id", one.ami,
        "--region", region, "--name", one.title, "--copy-image-tags",
        "--tag-specifications", json.dumps([{"ResourceType": "snapshot", "Tags": _snapshot_tags(one)}]),
    ]  # fmt: skip
    there = ", ".join(each.region for each in others)
    return f"{here}, but in {there}: region={one.region}, or copy it: `{shlex.join(command)}` (without the last option, its snapshots have no tags)"


def _snapshot_tags(record: image_records.ImageRecord) -> list[dict[str, str]]:
    needed = (tags.POOL, tags.OWNER, tags.MARK)
    return [each for each in tags.of_image(record, has_driver=False) if each["Key"] in needed]


def check_driver(image: Answer, asked: str, kind: InstanceType) -> None:
    """Raise `AWSError` where an image was made on a machine without the driver that a type's GPUs need."""
    if kind.gpus and tags.tags_in(image).get(tags.DRIVER) == "no":
        why = (
            f"image {asked!r} was made on a machine without a driver for GPUs, and {kind.name} has GPUs: bake one on a "
            "machine with them"
        )
        raise AWSError("UnsupportedInstanceType", why, _ASKED)
