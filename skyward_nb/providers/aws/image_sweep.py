"""Baked images as they are now: listed with their prices, as they are meant to stay; what was left half made is removed.

Of images and snapshots that no record has, images are listed, and snapshots that no image consists of are removed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from skyward_nb.providers.aws import (
    baking,
    disk_prices,
    image_records,
    rental_records,
    tags,
    termination,
)
from skyward_nb.providers.aws.api_errors import AWSError, spell_fault
from skyward_nb.providers.aws.baking import SeenImages
from skyward_nb.providers.aws.client import Answer, AWSClient
from skyward_nb.providers.aws.image_records import PREFIX, ImageEntry, ImageRecord
from skyward_nb.providers.aws.rental_records import UsedRegion
from skyward_nb.words.baked_image import BakedImage

_UNSEEN = 3600.0
"""Seconds for which a new image that EC2 does not list may only be seen late."""
_GIB = 1 << 30


@dataclass
class ImageReport:
    """Images that stay; those that were removed, what is left of them, and whose are not ours, in words."""

    there: list[BakedImage] = field(default_factory=list[BakedImage])
    removed: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])
    """Images of other owners, which stay."""


async def look(
    cloud_of: Callable[[UsedRegion], AWSClient], places: Sequence[UsedRegion] | None = None
) -> ImageReport:
    """Look in these regions, or in all where images were ever made; reports errors of AWS instead of raising."""
    report = ImageReport()
    for place in image_records.used() if places is None else places:
        try:
            await _look_in(cloud_of(place), place, report)
        except AWSError as fault:
            report.left.append(f"images in {place.region} ({spell_fault(fault)})")
    return report


async def _look_in(cloud: AWSClient, place: UsedRegion, report: ImageReport) -> None:
    """Look in one region; raises `AWSError`."""
    region = place.region
    there = await baking.seen(cloud, region)
    # A record exists before its image. Credentials of another place may be of the same account.
    every = image_records.entries()
    found = _ours(there, {each.record.mark for each in every})
    foreign = [
        f"{each['ImageId']} in {region} of {_owner(each) or 'nobody'} (image {each.get('Name', '')})"
        for each in there.images
        if each not in found.images
    ]
    # Another profile may have shown them.
    report.foreign += [each for each in foreign if each not in report.foreign]
    known = {each.record.mark for each in every if each.record.region == region}
    copied = {
        each.record.mark: each.record.region for each in every if each.record.mark not in known
    }
    price = await disk_prices.monthly_of_snapshots(cloud, region) if found.images else None
    for entry in [each for each in every if each.record.place == place]:
        own = _of_mark(found, entry.record.mark)
        if foreign := await whose(cloud, entry.record):
            report.left.append(foreign)
        elif entry.record.is_abandoned:
            why = "that nobody finished" if own.images else "whose AMI is gone"
            await _end(cloud, entry, own, report, why)
        elif baking.apart(entry.record, own.images)[0] or _is_new(entry):
            await _look_at(cloud, entry, own, price, report)
        else:
            await _forget(cloud, entry, report)
    await _look_at_others(cloud, region, found, known, copied, price, report)


async def whose(cloud: AWSClient, record: ImageRecord) -> str:
    """An image with the account that it is of, in words, if these credentials are of another; else "". Raises `AWSError`."""
    if not await termination.other_account(cloud, record):
        return ""
    return f"image {record.name} in {record.region}, of account {record.account}, which these credentials are not of"


def _is_new(entry: ImageEntry) -> bool:
    return time.time() - entry.record.created < _UNSEEN


async def _look_at(
    cloud: AWSClient,
    entry: ImageEntry,
    own: SeenImages,
    price: float | None,
    report: ImageReport,
) -> None:
    """List an image and its copies, or remove it where EC2 could not make it."""
    record = entry.record
    images, copied = baking.apart(record, own.images)
    snapshots = baking.unused(own.snapshots, copied)
    for image in copied:
        name = str(image.get("Name", ""))
        parts = [s for s in own.snapshots if str(s["SnapshotId"]) in baking.snapshots_of(image)]
        of = f"image {record.name}, as a copy"
        report.there.append(_found(image, name, record.region, parts, price, of))
    for image in images:
        if baking.has_failed(image):
            await _end(cloud, entry, own, report, baking.failure(image))
            return
        of = f"{record.type} {record.instance} at {tags.spell_time(record.created)}"
        report.there.append(_found(image, record.name, record.region, snapshots, price, of))


async def _end(
    cloud: AWSClient, entry: ImageEntry, own: SeenImages, report: ImageReport, why: str
) -> None:
    if left := await baking.remove(cloud, entry):
        report.left.append(f"{left}, {why}")
    elif own.images or own.snapshots:
        report.removed.append(f"{entry.record.name} in {entry.record.region}, {why}")


async def _forget(cloud: AWSClient, entry: ImageEntry, report: ImageReport) -> None:
    """Forget an image that was finished and is gone."""
    if left := await baking.forget_gone(cloud, entry):
        report.left.append(f"{left}, whose AMI is gone")
    else:
        report.removed.append(f"{entry.record.name} in {entry.record.region}, whose AMI is gone")


async def _look_at_others(
    cloud: AWSClient,
    region: str,
    found: SeenImages,
    known: set[str],
    copied: Mapping[str, str],
    price: float | None,
    report: ImageReport,
) -> None:
    """List images that no record of this region has, which may be copies, and remove snapshots that belong to none."""
    used = {each for image in found.images for each in baking.snapshots_of(image)}
    lost = [
        each
        for each in found.snapshots
        if _is_mine(each) and _mark(each) not in known and str(each["SnapshotId"]) not in used
    ]
    marks = {_mark(each) for each in found.images}
    # Of an image that is being made, EC2 may not say yet which snapshots it will have.
    lost = [each for each in lost if _mark(each) not in marks]
    for image in found.images:
        is_listed = any(each.ami == image["ImageId"] for each in report.there)
        if _mark(image) not in known and not is_listed:
            name = str(image.get("Name", "")).removeprefix(PREFIX)
            own = [each for each in found.snapshots if _mark(each) == _mark(image)]
            of = "a pool whose record is gone"
            if _mark(image) in copied:
                of = f"the image in {copied[_mark(image)]}, as a copy"
            report.there.append(_found(image, name, region, own, price, of))
    left = await baking.remove_seen(cloud, region, SeenImages([], lost))
    report.left += left
    report.removed += [
        f"snapshot {name}"
        for name in (str(each["SnapshotId"]) for each in lost)
        if not any(name in each for each in left)
    ]


def _ours(found: SeenImages, marks: Collection[str]) -> SeenImages:
    """Those of this owner, and those with these marks."""
    return SeenImages(
        [each for each in found.images if _is_mine(each) or _mark(each) in marks],
        [each for each in found.snapshots if _is_mine(each) or _mark(each) in marks],
    )


def _is_mine(resource: Answer) -> bool:
    # Computers that share a home share its records, and each is an owner of its own.
    return _owner(resource) == tags.fitting(rental_records.owner())


def _owner(resource: Answer) -> str:
    return tags.tags_in(resource).get(tags.OWNER, "")


def _mark(resource: Answer) -> str:
    return tags.tags_in(resource).get(tags.MARK, "")


def _of_mark(found: SeenImages, mark: str) -> SeenImages:
    return SeenImages(
        [each for each in found.images if _mark(each) == mark],
        [each for each in found.snapshots if _mark(each) == mark],
    )


def _found(
    image: Answer,
    name: str,
    region: str,
    snapshots: Sequence[Answer],
    price: float | None,
    of: str,
) -> BakedImage:
    # Snapshots of a copy may have no tags.
    disks = image.get("BlockDeviceMappings", ())
    size = sum(map(_gigabytes, snapshots or [each["Ebs"] for each in disks if "Ebs" in each]))
    going = [str(each["Progress"]) for each in snapshots if each.get("State") == "pending"]
    return BakedImage(
        name=name,
        region=region,
        ami=str(image["ImageId"]),
        state=str(image.get("State", "")),
        gigabytes=size,
        dollars=None if price is None else price * size,
        source=of,
        progress=", ".join(filter(None, going)),
    )


def _gigabytes(snapshot: Answer) -> float:
    """The size of all that a snapshot has, once EC2 says it; before, that of its disk."""
    written = snapshot.get("FullSnapshotSizeInBytes") or 0
    return written / _GIB if written else float(snapshot.get("VolumeSize", 0))


async def remove_unrecorded(cloud: AWSClient, region: str, name: str) -> list[str] | None:
    """Remove this owner's image of a name that no record has; what may be left, None if there is none. Raises `AWSError`."""
    found = await baking.seen(cloud, region, tags.OWNER, rental_records.owner())
    images = [each for each in found.images if each.get("Name") == f"{PREFIX}{name}"]
    if not images:
        return None
    marks = {_mark(each) for each in images}
    others = [each for each in found.images if _mark(each) in marks and each not in images]
    own = baking.unused([each for each in found.snapshots if _mark(each) in marks], others)
    # Those of a copy in another region have their tags, too, and are none of this one.
    return await baking.remove_seen(cloud, region, SeenImages(images, own))


async def copies(
    cloud_of: Callable[[UsedRegion], AWSClient], record: ImageRecord
) -> tuple[list[str], list[str]]:
    """Of the copies of an image that was removed, as far as AWS says it, the other regions with one of its name; the others, in words."""
    regions: dict[str, None] = {}
    others: dict[str, None] = {}
    for place in image_records.used():
        with contextlib.suppress(AWSError):
            there = await baking.seen(cloud_of(place), place.region, tags.MARK, record.mark)
            own, copied = baking.apart(record, there.images)
            # EC2 may still list the one that was removed.
            regions |= dict.fromkeys(
                [place.region] if own and place.region != record.region else []
            )
            others |= dict.fromkeys(tags.spell_other(each, place.region) for each in copied)
    return list(regions), list(others)


async def of_others(cloud: AWSClient, region: str, name: str) -> list[str]:
    """The account's images of this name that are not this owner's, in words; raises `AWSError`."""
    return [tags.spell_other(each, region) for each in await baking.named(cloud, name, region)]
