"""Images that are baked of rented machines: checked before a pool ends, waited for, listed and removed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from skyward_nb.providers.aws import image_records, rental_records
from skyward_nb.providers.loop_thread import LOOP
from skyward_nb.words import scratch
from skyward_nb.words.baked_image import BakedImage
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.provider_access import IMAGE_NAME
from skyward_nb.words.spec import PoolSpec

if TYPE_CHECKING:
    from skyward_nb.providers.aws.client import AWSClient
    from skyward_nb.providers.aws.image_sweep import ImageReport
    from skyward_nb.providers.aws.rental_records import UsedRegion

T = TypeVar("T")
_READY_LIMIT = 3600.0
_REFUSED_FOR = 180.0
"""Seconds for which looks may be refused in the same words: a network that changes comes back."""
_PAUSE = 1.0
_MOST_PAUSE = 15.0


def image_name(words: Sequence[str]) -> str | None:
    """The name among the bare words of a line; raises `OptionError` for none that an image can have."""
    if not words:
        return None
    (name,) = words
    if not re.fullmatch(IMAGE_NAME, name):
        raise OptionError(
            "bake",
            f"{name!r} is not the name of an image: letters, digits, dots, - and _, at most 60, and not ami-…",
        )
    return name


def check(spec: PoolSpec, pool_id: str, name: str) -> None:
    """Raise `PoolError` where no image of this name can be made of a pool, before it ends."""
    from skyward_nb.providers.aws import baking
    from skyward_nb.providers.aws.client import AWSClient

    entry = rental_records.find(pool_id)
    if spec.provider != "aws":
        raise PoolError(
            spec.name,
            f"pool {spec.name!r} has no machines of AWS (provider={spec.provider}): images are made of those of provider=aws; "
            "on other hosts environments stay anyway",
        )
    if entry is None or not entry.record.machines:
        raise PoolError(spec.name, f"the machines of pool {spec.name!r} have no record here")
    if scratch.is_within(spec.cache):
        why = f"cache={spec.cache} has its environment on a disk of the machine's host, which is in no image"
        raise PoolError(
            spec.name,
            f"no image {name!r} is made, and the pool stays: {why}. Make the pool without cache=",
        )
    record = entry.record
    try:
        _done(baking.check(AWSClient(record.profile, record.endpoint), record, name))
    except baking.NotBaked as why:
        raise PoolError(spec.name, f"no image {name!r} is made, and the pool stays: {why}") from why


def region_of(pool_id: str) -> str:
    """The region of a pool's machines."""
    entry = rental_records.find(pool_id)
    return "" if entry is None else entry.record.machines[0].region


def is_begun(name: str, region: str) -> bool:
    """Whether EC2 makes an image of this name."""
    return any(each.record.state == "made" for each in image_records.named(name, [region]))


def wait(pool: str, name: str, region: str) -> BakedImage:
    """Wait until an image that was begun is ready, which AWS sees to alone; raises `PoolError`, also for a refusal that stays."""
    until, pause = time.monotonic() + _READY_LIMIT, _PAUSE
    last: list[str] = []
    since = time.monotonic()
    while True:
        entries = image_records.named(name, [region])
        report = look([each.record.place for each in entries])
        for each in report.there:
            if (each.name, each.region, each.state) == (name, region, "available"):
                return each
        why = [each for each in report.removed if each.startswith(f"{name} in {region}, ")]
        here = image_records.named(name, [region])
        if not here or here[0].record.state == "ending":
            words = "; ".join(why or report.left)
            raise PoolError(
                pool,
                f"pool {pool!r} is down, and there is no image {name!r}{words and f': {words}'}",
            )
        # What is left of others is none of this one.
        refused = [each for each in report.left if each.startswith(f"images in {region} (")]
        if refused != last:
            last, since = refused, time.monotonic()
        elif refused and time.monotonic() - since > _REFUSED_FOR:
            why = f"it cannot be seen whether image {name!r} is ready: {'; '.join(last)}"
            raise PoolError(pool, f"EC2 goes on alone; {why}; `%sky bake` lists it")
        if time.monotonic() > until:
            late = ", ".join(report.left) or "it takes longer than an hour"
            raise PoolError(pool, f"image {name!r} is not ready: {late}; `%sky bake` lists it")
        time.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)


def look(places: Sequence[UsedRegion] | None = None) -> ImageReport:
    """All images that were ever made from here, or in these places; what was left half made is removed."""
    from skyward_nb.providers.aws import image_sweep

    return _done(image_sweep.look(_clients(), places))


def lines(report: ImageReport) -> list[str]:
    """Images, and what was removed and may be left, in words."""
    said = list(map(str, report.there))
    if report.there:
        said.append(
            "%%sky_remote provider=aws ami=NAME starts from one; %sky bake NAME remove removes it"
        )
    said += [f"removed: image {each}" for each in report.removed]
    said += [f"not confirmed to be gone: {each}" for each in report.left]
    if not said:
        said = [
            "no image was baked; %sky bake NAME makes one of a pool's machine, and ends the pool"
        ]
    return said + [f"not yours: {each}" for each in report.foreign]


def remove(name: str, regions: Sequence[str] = ()) -> str:
    """Remove an image and its snapshots; what was removed, in words. Raises `OptionError`, `PoolError`."""
    entries = image_records.named(name, regions)
    if len(entries) > 1:
        there = ", ".join(each.record.region for each in entries)
        raise OptionError("region", f"image {name!r} is in {there}: name one, region=")
    if entries and (record := entries[0].record).is_being_made:
        why = f"image {name} in {record.region} is being made by {record.maker}: `%sky bake` says when it is ready"
        raise PoolError(name, why)
    found = _done(_removed(name, regions, entries))
    if found.elsewhere:
        raise PoolError(
            name,
            f"nothing is removed: {found.elsewhere[0]}. Sign in to that account, and remove it again",
        )
    if found.left:
        raise PoolError(
            name, f"not confirmed to be gone: {', '.join(found.left)}; `%sky sweep` tries again"
        )
    if not found.done:
        if there := ", ".join(each.record.region for each in image_records.named(name)):
            raise OptionError(
                "region", f"there is no image {name!r} in {', '.join(regions)}: it is in {there}"
            )
        if found.foreign:
            raise OptionError(
                "bake", f"there is no image {name!r} of yours, but {found.foreign[0]}"
            )
        there = ", ".join(sorted({each.record.name for each in image_records.entries()}))
        raise OptionError(
            "bake", f"there is no image {name!r}{f': there is {there}' if there else ''}"
        )
    whose = "their" if len(found.done) > 1 else "its"
    said = f"removed: {', '.join(found.done)}, with {whose} snapshots"
    if found.copies:
        said += f"; copies stay in {', '.join(found.copies)}: `%sky bake {name} remove region=...` removes them"
    if found.others:
        said += f"; copies of other names stay: {', '.join(found.others)}"
    return said


@dataclass
class _Removed:
    """Images that were removed, what may be left, regions with copies of the name; copies of other names, and images of other owners, in words."""

    done: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    copies: list[str] = field(default_factory=list[str])
    others: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])
    elsewhere: list[str] = field(default_factory=list[str])
    """Images of another account, in words."""


async def _removed(
    name: str, regions: Sequence[str], entries: Sequence[image_records.ImageEntry]
) -> _Removed:
    """Remove the images of this name; without a record, this owner's in EC2."""
    from skyward_nb.providers.aws import baking, image_sweep
    from skyward_nb.providers.aws.api_errors import AWSError, spell_fault

    cloud_of = _clients()
    found = _Removed()
    for entry in entries:
        record = entry.record
        cloud = cloud_of(record.place)
        words = f"image {name} in {record.region}"
        try:
            foreign = await image_sweep.whose(cloud, record)
        except AWSError as fault:
            found.left.append(f"{words} ({spell_fault(fault)})")
            continue
        if foreign:
            found.elsewhere.append(foreign)
        elif more := await baking.remove(cloud, entry):
            found.left.append(more)
        else:
            found.done.append(words)
            found.copies, found.others = await image_sweep.copies(cloud_of, record)
    for place in [] if entries else image_records.used():
        if regions and place.region not in regions:
            continue
        try:
            cloud = cloud_of(place)
            more = await image_sweep.remove_unrecorded(cloud, place.region, name)
            if more is None:
                found.foreign += await image_sweep.of_others(cloud, place.region, name)
        except AWSError as fault:
            found.left.append(f"images in {place.region} ({spell_fault(fault)})")
            continue
        if more is not None:
            found.done += [] if more else [f"image {name} in {place.region}"]
            found.left += more
    return found


def _clients() -> Callable[[UsedRegion], AWSClient]:
    from skyward_nb.providers.aws.sweep import cloud_of

    return partial(cloud_of, {})


def _done(work: Coroutine[Any, Any, T]) -> T:
    return LOOP.start(work).future.result()
