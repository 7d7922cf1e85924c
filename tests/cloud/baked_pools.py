"""Pools whose machines images are made of, on machines that one can log in to."""

from __future__ import annotations

import asyncio
import sys

from pools import start

from skyward_nb.providers.aws import image_records, rental_records, sweep
from skyward_nb.reports import baked_images
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import AWSAccess


def emptied(cloud):
    """A cloud without images, before and after."""
    cloud.reset()
    yield cloud
    for each in image_records.entries():
        baked_images.remove(each.record.name, [each.record.region])
    asyncio.run(sweep.sweep(ends_stopped=True))
    asyncio.run(sweep.sweep())
    cloud.nothing_left()
    assert not rental_records.entries() and not image_records.entries()


def made(*, nodes=1, ami=None, warm=None, **options):
    return start(
        provider="aws",
        aws=AWSAccess(region="us-east-1", instance_type="c6i.large", ami=ami, warm=warm),
        nodes=nodes,
        image=Image(interpreter=sys.executable),
        **options,
    )


def baked(pool, name="torch"):
    """The image that is made of a pool's machine."""
    baked_images.check(pool.spec, pool.pool_id, name)
    pool.close(image=name)
    return baked_images.wait(pool.spec.name, name, "us-east-1")


def only_the_image(cloud):
    cloud.up(0)
    assert cloud.left().keys() == {"images", "snapshots"}, cloud.left()
