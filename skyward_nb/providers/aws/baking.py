"""Makes an image (AMI) of a machine at its pool's end, and removes images with the snapshots that they consist of.

The machine is not rebooted for it: it would end by itself then. Agents have ended and disks are synced, so nothing of
this package writes; what other programs write is copied as after a cut of the power, which file systems with a journal
mend at the next boot. EC2 copies disks as they are when a snapshot begins, and goes on without the machine, for minutes.

Sources: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateImage.html,
https://docs.aws.amazon.com/ebs/latest/userguide/ebs-creating-snapshot.html and
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/deregister-ami.html.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.providers.aws import image_records, tags, termination
from skyward_nb.providers.aws.api_errors import AWSError, spell_fault
from skyward_nb.providers.aws.client import Answer, Arguments, AWSClient
from skyward_nb.providers.aws.image_contents import PUT_BACK, TAKE_OUT
from skyward_nb.providers.aws.image_records import PREFIX, ImageEntry, ImageRecord
from skyward_nb.providers.aws.rental_records import RentalRecord, as_far_as_it_can
from skyward_nb.providers.far.line_protocol import Line

_OWN: Arguments = {"Owners": ["self"], "IncludeDisabled": True}
"""The account's own images, with those that nobody may start from now, which EC2 does not list otherwise."""
_MAY = "DryRunOperation"
"""EC2's refusal to do what was only asked to be tried, and would be allowed."""
_THERE = "InvalidAMIName.Duplicate"
_IMAGE_GONE = {"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"}
_SNAPSHOT_GONE = "InvalidSnapshot.NotFound"
_SNAPSHOT_USED = "InvalidSnapshot.InUse"
_SCRIPT_LIMIT = 300.0
_SEEN_LATE = 120.0
"""Seconds within which EC2 may not yet list a new image."""
_LOOKS = (0.5, 1.0, 2.0, 4.0, *[8.0] * 14)
"""Seconds between checks whether disks are being copied: two minutes in all."""
_AGAIN = (0.5, 1.0, 2.0, 4.0, 0.0)
"""Seconds between tries to remove snapshots, of an image that was removed just now."""


class NotBaked(Exception):
    """Why there is no image."""


class NotRestored(Exception):
    """What came of an image is `said`; the machine lacks what was taken off its disk, its keys maybe."""

    def __init__(self, said: str, why: str) -> None:
        super().__init__(f"{said}; what was taken off the disk may not be back: {why}")
        self.said = said


@dataclass(frozen=True)
class SeenImages:
    """Images, and snapshots, as EC2 describes them."""

    images: list[Answer]
    snapshots: list[Answer]


async def check(cloud: AWSClient, rental: RentalRecord, name: str) -> None:
    """Raise `NotBaked` where an image of this name cannot be made of a pool's machines, before the pool ends."""
    machine = rental.machines[0]
    region = machine.region
    if image_records.named(name, [region]):
        raise NotBaked(
            f"there is an image {name!r} in {region}: `%sky bake {name} remove` removes it"
        )
    try:
        # It tries both rights to look, without which what was begun can neither be waited for nor removed.
        await seen(cloud, region, tags.OWNER, rental.owner)
        for image in await named(cloud, name, region):
            there = tags.spell_other(image, region)
            raise NotBaked(f"take another name: the account has an image {there}")
        await cloud.ask(
            "CreateImage", region, DryRun=True, InstanceId=machine.instance, Name=f"{PREFIX}{name}",
            TagSpecifications=_tagged(image_records.record_of(rental, machine.instance, name, time.time())),
        )  # fmt: skip
    except AWSError as fault:
        if fault.code != _MAY:
            raise NotBaked(spell_fault(fault)) from fault


async def bake(cloud: AWSClient, rental: RentalRecord, line: Line, name: str) -> str:
    """Have EC2 make an image of the machine of a line, whose agent has ended; its id and what to know of it, in words.

    Raises `NotBaked`: what was begun is removed, by the next sweep at the latest.
    """
    try:
        entry = ImageEntry.begin(image_records.record_of(rental, line.name, name, time.time()))
    except FileExistsError:
        raise NotBaked(f"another process makes an image {name!r}") from None
    except OSError as error:
        raise NotBaked(f"its record cannot be written: {error}") from error
    try:
        more = await _bake(cloud, entry, line)
    except BaseException as error:
        # EC2 may begin late to copy a disk: what must not be copied is put back when the image is gone.
        left = await asyncio.shield(remove(cloud, entry))
        lacking = await asyncio.shield(_put_back(line))
        if not isinstance(error, Exception):
            raise
        why = (
            spell_fault(error) if isinstance(error, AWSError) else str(error) or "no answer in time"
        )
        more = f"; {left} may be left, and the next sweep looks again" if left else ""
        if lacking:
            raise NotRestored(f"no image {name} was made: {why}{more}", lacking) from error
        raise NotBaked(f"{why}{more}") from error
    said = f"image {name} is {entry.record.ami}, whose disks EC2 copies now{more}"
    if lacking := await _put_back(line):
        raise NotRestored(said, lacking)
    return said


async def _bake(cloud: AWSClient, entry: ImageEntry, line: Line) -> str:
    """Make an image; what to know of it. Raises `NotBaked`, `AWSError`, `OSError`, `ShellGone`, `TimeoutError`."""
    record = entry.record
    there = await termination.asked(cloud, record.region, record.pool_id)
    own = next((each for each in there if each["InstanceId"] == record.instance), {})
    disks = sum("Ebs" in each for each in own.get("BlockDeviceMappings", ()))
    ran = await line.run(TAKE_OUT, limit=_SCRIPT_LIMIT)
    if ran.code:
        raise ShellGone(f"{line.name}: {ran.err.strip()[-500:]}")
    told = ran.out.decode(errors="replace").splitlines()
    await _create(cloud, entry, has_driver="sky=driver" in told)
    await _begun(cloud, record, max(disks, 1))
    entry.note(state="made")
    lacking = [each.removeprefix("sky=fstab ") for each in told if each.startswith("sky=fstab ")]
    if not lacking:
        return ""
    return f" ({', '.join(lacking)} in /etc/fstab: without `nofail` a machine that lacks it does not boot)"


async def _put_back(line: Line) -> str:
    """Have the machine as it was; why it may not be so, in words."""
    try:
        ran = await line.run(PUT_BACK, limit=_SCRIPT_LIMIT)
    except (ShellGone, TimeoutError) as error:
        return str(error) or "no answer in time"
    return f"{line.name}: {ran.err.strip()[-500:] or ran.code}" if ran.code else ""


async def _create(cloud: AWSClient, entry: ImageEntry, *, has_driver: bool) -> None:
    """Ask EC2 for an image, once; raises `AWSError`."""
    record = entry.record
    entry.note(asked=True)
    try:
        said = await cloud.ask(
            "CreateImage",
            record.region,
            InstanceId=record.instance,
            Name=record.title,
            Description=f"{record.type} of pool {record.pool_id}, by skyward_nb"[:255],
            NoReboot=True,
            TagSpecifications=_tagged(record, has_driver=has_driver),
        )
        ami = str(said["ImageId"])
    except AWSError as fault:
        # Where an answer was lost, and boto3 asked again, the image is there.
        if fault.code != _THERE and not fault.is_unknown:
            entry.note(asked=False)
            raise
        ami = await _made_all_the_same(cloud, entry, is_there=fault.code == _THERE)
        if not ami:
            raise
    with as_far_as_it_can():
        entry.note(ami=ami)


async def _made_all_the_same(cloud: AWSClient, entry: ImageEntry, *, is_there: bool) -> str:
    """The id of an image whose call had no answer; "" if none is listed. Raises `AWSError`.

    If one of its name `is_there`, it is waited for, unless that is another one: EC2 may list it late, and copies its disks.
    """
    record = entry.record
    for pause in _LOOKS if is_there else (0.0,):
        found = await seen(cloud, record.region, tags.MARK, record.mark)
        if found.images:
            return str(found.images[0]["ImageId"])
        for image in await named(cloud, record.name, record.region) if is_there else ():
            if tags.tags_in(image).get(tags.MARK) == record.mark:
                return str(image["ImageId"])
            entry.note(asked=False)
            return ""
        await asyncio.sleep(pause)
    return ""


async def _begun(cloud: AWSClient, record: ImageRecord, disks: int) -> None:
    """Wait until EC2 copies all disks as they are now; raises `NotBaked`, and `AWSError` where it said nothing at last."""
    refusal: AWSError | None = None
    for pause in _LOOKS:
        try:
            found = await seen(cloud, record.region, tags.MARK, record.mark)
        except AWSError as fault:
            refusal = fault
            await asyncio.sleep(pause)
            continue
        refusal = None
        if why := next((failure(each) for each in found.images if has_failed(each)), ""):
            raise NotBaked(why)
        if len(found.snapshots) >= disks:
            return
        await asyncio.sleep(pause)
    if refusal is not None:
        raise refusal
    raise NotBaked(f"EC2 has not begun to copy its disks within {sum(_LOOKS):.0f} s")


def has_failed(image: Answer) -> bool:
    """Whether EC2 could not make an image."""
    return str(image.get("State")) in ("failed", "error", "invalid")


def failure(image: Answer) -> str:
    """Why EC2 could not make an image, in words."""
    return f"EC2 could not make it: {reason(image)}"


def reason(image: Answer) -> str:
    """The reason of an image's state, as far as EC2 says it."""
    return image.get("StateReason", {}).get("Message") or "no reason is given"


async def named(cloud: AWSClient, name: str, region: str) -> list[Answer]:
    """The account's images of this name in a region, at most one; raises `AWSError`."""
    only = [{"Name": "name", "Values": [f"{PREFIX}{name}"]}]
    said = await cloud.ask("DescribeImages", region, **_OWN, Filters=only)
    return list(said["Images"])


async def seen(cloud: AWSClient, region: str, tag: str = tags.MARK, value: str = "") -> SeenImages:
    """The account's images and snapshots with this tag, or those of anybody; raises `AWSError`."""
    images = await _images(cloud, region, tag, value)
    return SeenImages(images, await _snapshots(cloud, region, tag, value))


async def _images(cloud: AWSClient, region: str, tag: str, value: str) -> list[Answer]:
    only = _marked(tag, value)
    said = await cloud.ask_all("DescribeImages", region, **_OWN, Filters=only)
    return list(said["Images"])


async def _snapshots(cloud: AWSClient, region: str, tag: str, value: str) -> list[Answer]:
    only = _marked(tag, value)
    said = await cloud.ask_all("DescribeSnapshots", region, OwnerIds=["self"], Filters=only)
    return list(said["Snapshots"])


def _marked(tag: str, value: str) -> list[Arguments]:
    only = [{"Name": "tag-key", "Values": [tags.MARK]}]
    return [{"Name": f"tag:{tag}", "Values": [tags.fitting(value)]}, *only] if value else only


async def remove(cloud: AWSClient, entry: ImageEntry) -> str:
    """Remove an image and its snapshots, and its record where nothing is left; what may be left, in words."""
    record = entry.record
    was_half_made = record.state == "making" and record.asked
    with contextlib.suppress(OSError):
        entry.note(state="ending", given_up=time.time() if was_half_made else record.given_up)
    try:
        with_mark = await _images(cloud, record.region, tags.MARK, record.mark)
        images, copies = apart(record, with_mark)
        await _deregister(cloud, record.region, images)
        if images:
            with contextlib.suppress(OSError):
                entry.note(asked=False)
        return await _remove_rest(cloud, entry, images, copies)
    except AWSError as fault:
        return f"image {record.name} in {record.region} ({spell_fault(fault)})"


async def forget_gone(cloud: AWSClient, entry: ImageEntry) -> str:
    """Remove the snapshots and the record of an image that was finished and is gone; what may be left, in words.

    No image is removed by it.
    """
    record = entry.record
    words = f"image {record.name} in {record.region}"
    try:
        with_mark = await _images(cloud, record.region, tags.MARK, record.mark)
        images, copies = apart(record, with_mark)
        if images:
            return f"{words}, which EC2 lists again"
        return await _remove_rest(cloud, entry, [], copies)
    except AWSError as fault:
        return f"{words} ({spell_fault(fault)})"


async def _remove_rest(
    cloud: AWSClient,
    entry: ImageEntry,
    images: list[Answer],
    copies: list[Answer],
) -> str:
    """Remove what is left of images that were removed: snapshots that no copy uses, then the record; what may be left, in words.

    Raises `AWSError`.
    """
    record = entry.record
    snapshots = await _snapshots(cloud, record.region, tags.MARK, record.mark)
    found = SeenImages(images, unused(snapshots, copies))
    left = await _delete_snapshots(cloud, record.region, found) or _may_come(record, found)
    if not left:
        entry.forget()
    return ", ".join(left)


def _may_come(record: ImageRecord, found: SeenImages) -> list[str]:
    """What EC2 may list later, of an image that it was asked for just now or that nobody waited for to the end."""
    if time.time() - max(record.created, record.given_up) >= _SEEN_LATE:
        return []
    if record.asked:
        return [f"image {record.name} in {record.region}, if EC2 has made it"]
    if record.given_up and not found.snapshots and not any(map(snapshots_of, found.images)):
        return [f"snapshots of image {record.name} in {record.region}, if EC2 begins them late"]
    return []


async def remove_seen(cloud: AWSClient, region: str, found: SeenImages) -> list[str]:
    """Remove images, and then their snapshots and these others; those that may be left. Raises `AWSError`."""
    await _deregister(cloud, region, found.images)
    return await _delete_snapshots(cloud, region, found)


async def _deregister(cloud: AWSClient, region: str, images: list[Answer]) -> None:
    for image in images:
        try:
            await cloud.ask("DeregisterImage", region, ImageId=image["ImageId"])
        except AWSError as fault:
            if fault.code not in _IMAGE_GONE:
                raise


async def _delete_snapshots(cloud: AWSClient, region: str, found: SeenImages) -> list[str]:
    """Delete snapshots, and those of images; those that may be left. Raises `AWSError`."""
    snapshots = [str(each["SnapshotId"]) for each in found.snapshots]
    snapshots += [each for image in found.images for each in snapshots_of(image)]
    left = list(dict.fromkeys(snapshots))
    for pause in _AGAIN:
        left = [each for each in left if not await _is_deleted(cloud, region, each)]
        if not left:
            break
        await asyncio.sleep(pause)
    return [f"snapshot {each} in {region}" for each in left]


async def _is_deleted(cloud: AWSClient, region: str, snapshot: str) -> bool:
    try:
        await cloud.ask("DeleteSnapshot", region, SnapshotId=snapshot)
    except AWSError as fault:
        if fault.code == _SNAPSHOT_USED:
            return False
        if fault.code != _SNAPSHOT_GONE:
            raise
    return True


def snapshots_of(image: Answer) -> list[str]:
    """The ids of the snapshots that an image consists of."""
    disks = (each.get("Ebs", {}) for each in image.get("BlockDeviceMappings", ()))
    return [str(each["SnapshotId"]) for each in disks if each.get("SnapshotId")]


def apart(record: ImageRecord, images: list[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Of the images of a record's mark its own, and those that somebody has copied from it, under other names."""
    own = [
        each for each in images if each["ImageId"] == record.ami or each.get("Name") == record.title
    ]
    return own, [each for each in images if each not in own]


def unused(snapshots: list[Answer], images: list[Answer]) -> list[Answer]:
    """The snapshots that none of these images consists of; none where EC2 does not say yet what one consists of."""
    used = [snapshots_of(each) for each in images]
    if not all(used):
        return []
    return [each for each in snapshots if all(str(each["SnapshotId"]) not in one for one in used)]


def _tagged(record: ImageRecord, *, has_driver: bool = False) -> list[Arguments]:
    own = tags.of_image(record, has_driver=has_driver)
    return [{"ResourceType": kind, "Tags": own} for kind in ("image", "snapshot")]
