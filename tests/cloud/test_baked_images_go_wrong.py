"""Images against the API alone that others have touched, or that are told of late: none that was finished is lost."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from cloud.bakes import all_removed, bake
from cloud.warm import LineThatObeys
from msgspec.structs import replace

from skyward_nb.providers.aws import (
    baking,
    image_lookup,
    image_records,
    rental_records,
    sweep,
    tags,
)
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.image_contents import PUT_BACK, TAKE_OUT
from skyward_nb.reports import baked_images
from skyward_nb.words.errors import OptionError, PoolError


def old():
    """The image's record, as if it had been made two hours ago."""
    (entry,) = image_records.entries()
    entry.note(created=time.time() - 7200)
    return entry


# ── other computers ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def elsewhere(monkeypatch):
    """From here on this is another computer with the same home."""
    return lambda: monkeypatch.setattr(rental_records, "machine_mark", lambda: "another0machine")


def test_a_computer_that_shares_the_home_lists_an_image_and_removes_nothing(
    api, one_rented, elsewhere
):
    ami = bake(one_rented)
    old()
    elsewhere()
    found = asyncio.run(sweep.sweep())
    assert not found.images and not found.left
    assert f"image torch in us-east-1: {ami}, ready, 3 GB at most $0.150" in found.baked[0]
    assert api.left()["images"] == ["us-east-1 sky-torch"] and "snapshots" in api.left()
    assert "with its snapshots" in baked_images.remove("torch")
    all_removed(api)


# ── copies ──────────────────────────────────────────────────────────────────────────────


def copied(one_rented, name="my-backup", copied_tags=None):
    """As `aws ec2 copy-image --copy-image-tags` does it in the same region: another image, with the same tags."""
    (entry,) = image_records.entries()
    record = entry.record
    own = copied_tags or tags.of_image(record, has_driver=False)
    made = one_rented.cloud.ask(
        "CreateImage", record.region, InstanceId=record.instance, Name=name, NoReboot=True,
        TagSpecifications=[{"ResourceType": kind, "Tags": own} for kind in ("image", "snapshot")],
    )  # fmt: skip
    return asyncio.run(made)["ImageId"]


def gone(one_rented, ami):
    asyncio.run(one_rented.cloud.ask("DeregisterImage", "us-east-1", ImageId=ami))


def test_a_copy_of_another_name_is_listed_and_stays_with_its_snapshots(api, one_rented):
    ami = bake(one_rented)
    copy = copied(one_rented)
    there = {each.ami: each for each in baked_images.look().there}
    assert there[ami].name == "torch" and there[copy].name == "my-backup"
    assert there[copy].source == "image torch, as a copy"
    assert there[ami].gigabytes == there[copy].gigabytes == 3
    said = baked_images.remove("torch")
    assert f"copies of other names stay: my-backup in us-east-1 ({copy})" in said
    assert f"`aws ec2 deregister-image --image-id {copy} --delete-associated-snapshots" in said
    assert api.left()["images"] == ["us-east-1 my-backup"] and len(api.left()["snapshots"]) == 1
    assert not asyncio.run(sweep.sweep()).images and len(api.left()["snapshots"]) == 1
    gone(one_rented, copy)
    assert len(asyncio.run(sweep.sweep()).images) == 1
    all_removed(api)


@pytest.mark.parametrize("has_record", [True, False])
def test_what_is_gone_without_us_takes_no_copy_with_it(api, one_rented, has_record):
    ami = bake(one_rented)
    copy = copied(one_rented)
    entry = old()
    if has_record:
        gone(one_rented, ami)
        assert asyncio.run(sweep.sweep()).images == ["torch in us-east-1, whose AMI is gone"]
    else:
        entry.forget()
        assert "removed: image torch" in baked_images.remove("torch")
    assert api.left()["images"] == ["us-east-1 my-backup"] and len(api.left()["snapshots"]) == 1
    assert not image_records.entries()
    gone(one_rented, copy)
    asyncio.run(sweep.sweep())
    all_removed(api)


# ── disabled ────────────────────────────────────────────────────────────────────────────


def test_one_that_is_disabled_is_listed_and_no_sweep_forgets_it(api, one_rented):
    ami = bake(one_rented)
    old()
    asyncio.run(one_rented.cloud.ask("DisableImage", "us-east-1", ImageId=ami))
    found = asyncio.run(sweep.sweep())
    assert not found.images and not found.left and f"{ami}, disabled" in found.baked[0]
    assert image_records.entries()[0].record.state == "made" and len(api.left()["images"]) == 1
    with pytest.raises(AWSError, match=f"is disabled: `aws ec2 enable-image --image-id {ami}"):
        asyncio.run(image_lookup.described(one_rented.cloud, "torch", "us-east-1"))
    with pytest.raises(baking.NotBaked, match="`%sky bake torch remove` removes it"):
        asyncio.run(baking.check(one_rented.cloud, one_rented.entry.record, "torch"))
    all_removed(api)


def test_what_is_listed_again_stays(api, one_rented, monkeypatch):
    bake(one_rented)
    entry = old()
    lists = baking._images

    async def listed_not(*_):
        return []

    monkeypatch.setattr(baking, "_images", listed_not)
    # Its snapshots cannot be removed while it is there, and so its record stays.
    assert "whose AMI is gone" in asyncio.run(sweep.sweep()).left[0]
    monkeypatch.setattr(baking, "_images", lists)
    assert "which EC2 lists again" in asyncio.run(baking.forget_gone(one_rented.cloud, entry))
    found = asyncio.run(sweep.sweep())
    assert not found.images and len(found.baked) == 1
    assert image_records.entries()[0].record.state == "made"
    all_removed(api)


# ── told late ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def late(monkeypatch):
    """EC2 does not list what it has, for so many looks."""
    left = [0]
    for each in ("_images", "_snapshots", "named"):
        monkeypatch.setattr(baking, each, listed_late(getattr(baking, each), left))

    def begin(looks):
        left[0] = looks

    return begin


def listed_late(real, left):
    async def listed(*arguments):
        left[0] = max(0, left[0] - 1)
        return [] if left[0] else await real(*arguments)

    return listed


def test_an_image_whose_answer_was_lost_is_waited_for(api, one_rented, late):
    api.lose("CreateImage")
    late(10)
    line = LineThatObeys()
    ami = bake(one_rented, line=line)
    assert image_records.entries()[0].record.ami == ami and line.ran == [TAKE_OUT, PUT_BACK]
    late(0)
    assert len(api.left()["images"]) == 1
    all_removed(api)


def test_one_that_is_listed_too_late_is_not_forgotten_and_rents_nothing(
    api, one_rented, late, monkeypatch
):
    monkeypatch.setattr(baking, "_SEEN_LATE", 120.0)
    api.lose("CreateImage")
    late(1000)
    with pytest.raises(baking.NotBaked, match=r"already in use.*if EC2 has made it may be left"):
        bake(one_rented)
    (entry,) = image_records.entries()
    assert entry.record.asked and entry.record.state == "ending"
    late(0)
    with pytest.raises(AWSError, match="was not finished, or is being removed"):
        asyncio.run(image_lookup.described(one_rented.cloud, "torch", "us-east-1"))
    assert len(asyncio.run(sweep.sweep()).images) == 1
    assert "images" not in api.left()
    all_removed(api)


# ── makers ──────────────────────────────────────────────────────────────────────────────


def made_elsewhere(seconds):
    """The image's record, as if a computer that is gone had begun it so long ago."""
    (entry,) = image_records.entries()
    maker = replace(entry.record.maker, host="pod-that-is-gone", machine="another")
    entry.note(state="making", created=time.time() - seconds, maker=maker)


def refusal(one_rented):
    with pytest.raises(AWSError) as caught:
        asyncio.run(image_lookup.described(one_rented.cloud, "torch", "us-east-1"))
    return str(caught.value)


def test_what_another_computer_began_is_abandoned_after_an_hour(api, one_rented):
    bake(one_rented)
    made_elsewhere(1800)
    assert not asyncio.run(sweep.sweep()).images
    assert "is still being made by process" in refusal(one_rented)
    made_elsewhere(4000)
    assert "`%sky bake torch remove` removes it" in refusal(one_rented)
    assert asyncio.run(sweep.sweep()).images == ["torch in us-east-1, that nobody finished"]
    assert "images" not in api.left()
    all_removed(api)


def test_one_that_is_being_made_is_not_removed(api, one_rented):
    refused = []

    class Line(LineThatObeys):
        async def run(self, script, **how):
            if script == TAKE_OUT:
                with pytest.raises(PoolError, match=f"is being made by process {os.getpid()} on"):
                    await asyncio.to_thread(baked_images.remove, "torch")
                refused.append(script)
            return await super().run(script, **how)

    bake(one_rented, line=Line())
    assert refused and image_records.entries()[0].record.state == "made"
    all_removed(api)


def test_whose_record_is_gone_meanwhile_leaves_no_image(api, one_rented):
    class Line(LineThatObeys):
        async def run(self, script, **how):
            for each in image_records.entries():
                each.forget()
            return await super().run(script, **how)

    with pytest.raises(baking.NotBaked, match="the record of image torch is gone"):
        bake(one_rented, line=Line())
    assert "images" not in api.left() and "snapshots" not in api.left()


def test_an_earlier_record_is_none_of_a_new_image_of_its_name(api, one_rented):
    bake(one_rented)
    image_records.entries()[0].note(state="ending")
    (earlier,) = image_records.entries()
    baked_images.remove("torch")
    ami = bake(one_rented)
    assert not asyncio.run(baking.remove(one_rented.cloud, earlier))
    (entry,) = image_records.entries()
    assert (entry.record.ami, entry.record.state) == (ami, "made")
    assert entry.record.mark != earlier.record.mark and len(api.left()["images"]) == 1
    all_removed(api)


# ── other owners ────────────────────────────────────────────────────────────────────────


def test_images_of_others_are_told_with_their_owner_and_how_to_remove_them(
    api, one_rented, monkeypatch
):
    ami = bake(one_rented)
    (entry,) = image_records.entries()
    whose = entry.record.owner
    entry.forget()
    with monkeypatch.context() as patch:
        patch.setattr(rental_records, "owner", lambda: "somebody else")
        words = f"{ami} in us-east-1 of {whose} (image sky-torch)"
        found = asyncio.run(sweep.sweep())
        assert words in found.foreign and not found.baked and not found.images
        assert f"not yours: {words}" in baked_images.lines(baked_images.look())
        command = f"`aws ec2 deregister-image --image-id {ami} --delete-associated-snapshots --region us-east-1`"
        with pytest.raises(PoolError, match="take another name") as caught:
            baked_images.check(one_rented.spec, "default-abc", "torch")
        assert whose in str(caught.value) and command in str(caught.value)
        with pytest.raises(OptionError, match="there is no image 'torch' of yours") as told:
            baked_images.remove("torch")
        assert whose in str(told.value) and command in str(told.value)
    baked_images.remove("torch")
    all_removed(api)


# ── said ────────────────────────────────────────────────────────────────────────────────


def test_a_name_whose_ami_is_gone_says_so_and_not_that_it_is_elsewhere(api, one_rented):
    gone(one_rented, bake(one_rented))
    said = refusal(one_rented)
    assert "its AMI is gone: `%sky bake torch remove`, then bake again" in said
    assert "but in" not in said
    (entry,) = image_records.entries()
    entry.note(state="making", ami="")
    assert "is still being made by process" in refusal(one_rented)
    all_removed(api)


def test_a_wait_goes_on_where_another_image_is_left(api, one_rented):
    api.images(copying=5)
    bake(one_rented)
    other = replace(
        image_records.entries()[0].record, name="other", mark="x", account="999999999999"
    )
    other = image_records.ImageEntry.begin(other)
    assert "of account 999999999999" in baked_images.look().left[0]
    assert baked_images.wait("default", "torch", "us-east-1").state == "available"
    other.forget()
    all_removed(api)


def test_a_wait_ends_where_the_same_refusal_stays(api, one_rented, monkeypatch):
    api.images(copying=1000)
    bake(one_rented)
    monkeypatch.setattr(baked_images, "_REFUSED_FOR", 0.1)
    looks = []
    look = baked_images.look
    monkeypatch.setattr(baked_images, "look", lambda places: (looks.append(1), look(places))[1])
    api.fail("DescribeImages", "UnauthorizedOperation", times=0)
    with pytest.raises(PoolError, match=r"EC2 goes on alone; .*; `%sky bake` lists it"):
        baked_images.wait("default", "torch", "us-east-1")
    assert len(looks) >= 2
    api.calm()
    all_removed(api)
