"""Images that are made against the API alone, of machines whose scripts all end well."""

from __future__ import annotations

import asyncio

from cloud.warm import LineThatObeys

from skyward_nb.providers.aws import baking, image_records
from skyward_nb.providers.aws.rental_records import MakerProcess
from skyward_nb.reports import baked_images


def bake(made, name="torch", *, line=None):
    line = line or LineThatObeys()
    line.name = made.machines[0].instance
    asyncio.run(baking.bake(made.cloud, made.entry.record, line, name))
    return image_records.named(name)[0].record.ami


def abandoned(name="torch"):
    """As if the process that makes the image had ended."""
    (entry,) = image_records.named(name)
    entry.note(maker=MakerProcess(entry.record.maker.pid, 1.0, entry.record.maker.host))


def all_removed(api):
    for each in image_records.entries():
        if each.record.state == "making":
            abandoned(each.record.name)
        baked_images.remove(each.record.name, [each.record.region])
    assert "images" not in api.left() and "snapshots" not in api.left()
    assert not image_records.entries()
