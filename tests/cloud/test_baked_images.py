"""Images against the API alone: what EC2 refuses, what is listed, what is left half one_rented, and who removes it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path

import pytest
from cloud.bakes import abandoned, all_removed, bake
from cloud.warm import ACCOUNT, LineThatObeys
from msgspec.structs import replace

from skyward_nb.providers.aws import baking, image_records, rental_records, sweep, tags
from skyward_nb.providers.aws.image_contents import CREDENTIALS, HISTORIES, PUT_BACK, TAKE_OUT
from skyward_nb.reports import baked_images
from skyward_nb.words.errors import OptionError, PoolError

# ── made ────────────────────────────────────────────────────────────────────────────────


def test_the_disk_is_cleaned_before_ec2_copies_it_and_whole_again_after(api, one_rented):
    api.images(slow=3)
    line = LineThatObeys()
    ami = bake(one_rented, line=line)
    assert line.ran == [TAKE_OUT, PUT_BACK]
    (record,) = [each.record for each in image_records.entries()]
    assert (record.ami, record.state, record.region) == (ami, "made", "us-east-1")
    actions = api.actions()
    assert actions.count("CreateImage") == 1 and actions.count("DescribeSnapshots") >= 3
    (call,) = [each for each in api.calls if each.action == "CreateImage"]
    kinds = {call.parameters[f"TagSpecification.{n}.ResourceType"] for n in (1, 2)}
    assert kinds == {"image", "snapshot"}
    assert call.parameters["NoReboot"] == "true"
    all_removed(api)


def test_the_docs_name_all_that_is_taken_off_the_disk():
    text = (Path(__file__).parents[2] / "docs/howto/aws.md").read_text()
    (said,) = [each for each in text.split("\n- ") if each.startswith("**What is no part of it**")]
    assert {*re.findall(r"`(?:~/)?(\..*?)`", said)} == {*HISTORIES, *CREDENTIALS}


def test_an_image_is_listed_with_its_price_and_no_sweep_removes_it(api, one_rented):
    ami = bake(one_rented)
    said = str(asyncio.run(sweep.sweep(ends_stopped=True)))
    assert f"image torch in us-east-1: {ami}, ready, 3 GB at most $0.150 a month" in said
    assert api.left()["images"] == ["us-east-1 sky-torch"]
    assert any("remove removes it" in each for each in baked_images.lines(baked_images.look()))
    assert "its snapshots" in baked_images.remove("torch")
    assert "images" not in api.left() and "snapshots" not in api.left()
    assert baked_images.lines(baked_images.look())[0].startswith("no image was baked")


def test_one_that_is_copied_is_waited_for(api, one_rented):
    api.images(copying=3)
    bake(one_rented)
    report = baked_images.look()
    assert "being copied (40%), 100 GB at most $5" in str(report.there[0])
    assert baked_images.wait("default", "torch", "us-east-1").state == "available"
    all_removed(api)


def test_its_price_may_not_be_told(api, one_rented):
    bake(one_rented)
    api.fail("GetProducts", "AccessDeniedException", times=0)
    assert "at a price that AWS did not tell" in str(baked_images.look().there[0])
    all_removed(api)


@pytest.mark.parametrize(
    ("action", "code", "words"),
    [
        ("CreateImage", "UnauthorizedOperation", "lack that permission"),
        ("CreateImage", "InternalError", "InternalError"),
        ("DescribeSnapshots", "UnauthorizedOperation", "lack that permission"),
    ],
)
def test_what_fails_leaves_no_image(api, one_rented, action, code, words):
    api.fail(action, code, times=0)
    line = LineThatObeys()
    with pytest.raises(baking.NotBaked, match=words):
        bake(one_rented, line=line)
    assert line.ran[-1] == PUT_BACK
    api.calm()
    asyncio.run(sweep.sweep())
    baked_images.look()
    all_removed(api)


class LineThatFails(LineThatObeys):
    """A line on which one script fails, and which notes what EC2 was asked for before each."""

    def __init__(self, script, api):
        super().__init__()
        self.script = script
        self.api = api
        self.before: list[list[str]] = []

    async def run(self, script, **how):
        self.before.append(self.api.actions())
        self.code = int(script == self.script)
        return await super().run(script, **how)


def test_a_machine_that_cannot_be_cleaned_is_not_copied(api, one_rented):
    with pytest.raises(baking.NotBaked, match="it says no"):
        bake(one_rented, line=LineThatFails(TAKE_OUT, api))
    assert "CreateImage" not in api.actions()
    assert not image_records.entries()


def test_disks_that_ec2_does_not_begin_to_copy_are_no_image(api, one_rented):
    api.images(slow=100)
    with pytest.raises(baking.NotBaked, match="has not begun to copy"):
        bake(one_rented)
    all_removed(api)


def test_a_failed_image_is_removed_before_the_disk_is_whole_again(api, one_rented):
    api.images(slow=100)
    line = LineThatFails("", api)
    with pytest.raises(baking.NotBaked, match="has not begun to copy"):
        bake(one_rented, line=line)
    assert line.ran == [TAKE_OUT, PUT_BACK] and "DeregisterImage" in line.before[1]


def test_an_image_is_deregistered_where_its_snapshots_cannot_be_looked_for(api, one_rented):
    api.fail("DescribeSnapshots", "UnauthorizedOperation", times=0)
    with pytest.raises(baking.NotBaked, match="may be left, and the next sweep looks again"):
        bake(one_rented)
    assert "images" not in api.left()
    api.calm()
    asyncio.run(sweep.sweep())
    all_removed(api)


def test_a_look_that_fails_is_repeated(api, one_rented):
    api.fail("DescribeSnapshots", "UnauthorizedOperation", times=3)
    bake(one_rented)
    assert image_records.entries()[0].record.state == "made"
    all_removed(api)


def test_what_ec2_may_begin_late_is_looked_for_again(api, one_rented, monkeypatch):
    monkeypatch.setattr(baking, "_SEEN_LATE", 120.0)
    api.images(slow=100)
    with pytest.raises(baking.NotBaked, match="if EC2 begins them late may be left"):
        bake(one_rented)
    assert "images" not in api.left() and image_records.entries()[0].record.given_up
    assert "if EC2 begins them late" in asyncio.run(sweep.sweep()).left[0]
    with pytest.raises(PoolError, match=r"there is no image 'torch': .*if EC2 begins them late"):
        baked_images.wait("default", "torch", "us-east-1")
    monkeypatch.setattr(baking, "_SEEN_LATE", 0.0)
    assert not asyncio.run(sweep.sweep()).left
    all_removed(api)


def test_a_machine_that_is_not_whole_again_is_told_with_its_image(api, one_rented):
    with pytest.raises(baking.NotRestored, match=r"image torch is ami-.*may not be back.*says no"):
        bake(one_rented, line=LineThatFails(PUT_BACK, api))
    assert image_records.entries()[0].record.state == "made"
    all_removed(api)


def test_a_wait_looks_at_its_image_alone_and_says_why_there_is_none(api, one_rented):
    api.images(copying=2)
    bake(one_rented)
    other = replace(image_records.entries()[0].record, region="eu-west-1", account="999999999999")
    other = image_records.ImageEntry.begin(replace(other, mark="of another"))
    assert "of account 999999999999" in baked_images.look().left[0]
    api.fail("DescribeImages", "RequestLimitExceeded", times=1)
    assert baked_images.wait("default", "torch", "us-east-1").state == "available"
    other.forget()
    all_removed(api)


def test_a_wait_says_why_ec2_failed(api, one_rented):
    bake(one_rented)
    api.images(reason="Client.InternalError: its key is disabled")
    asyncio.run(as_if_failed(api, one_rented))
    with pytest.raises(PoolError, match=r"there is no image 'torch': .*its key is disabled"):
        baked_images.wait("default", "torch", "us-east-1")
    all_removed(api)


async def as_if_failed(api, one_rented):
    """As if EC2 had failed after it had begun: the image is one that failed, of the same mark."""
    record = image_records.entries()[0].record
    cloud, region = one_rented.cloud, record.region
    await cloud.ask("DeregisterImage", region, ImageId=record.ami)
    await cloud.ask(
        "CreateImage", region, InstanceId=record.instance, Name="sky-torch", NoReboot=True,
        TagSpecifications=[{"ResourceType": "image", "Tags": tags.of_image(record, has_driver=False)}],
    )  # fmt: skip


def test_another_place_of_the_same_account_lists_and_removes_nothing_twice(api, one_rented):
    bake(one_rented)
    (entry,) = image_records.entries()
    place = replace(entry.record.place, endpoint=os.environ["AWS_ENDPOINT_URL"])
    rental_records.note_used(place, image_records._USED)
    assert len(image_records.used()) == 2
    assert len(baked_images.look().there) == 1
    # Its image is not listed yet, and its snapshot is.
    asyncio.run(one_rented.cloud.ask("DeregisterImage", "us-east-1", ImageId=entry.record.ami))
    assert not baked_images.look().removed and "snapshots" in api.left()
    entry.forget()
    assert len(baked_images.look().removed) == 1


def test_an_image_that_ec2_cannot_make_is_removed(api, one_rented):
    api.images(reason="Client.InternalError: its key is disabled")
    with pytest.raises(baking.NotBaked, match="its key is disabled"):
        bake(one_rented)
    all_removed(api)


def test_a_lost_answer_is_no_second_image(api, one_rented):
    api.lose("CreateImage")
    ami = bake(one_rented)
    assert len(api.left()["images"]) == 1 and image_records.entries()[0].record.ami == ami
    all_removed(api)


# ── refused before the pool ends ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("action", "code", "words"),
    [
        ("CreateImage", "UnauthorizedOperation", "lack that permission"),
        ("CreateImage", "IncorrectState", "IncorrectState"),
        ("DescribeImages", "UnauthorizedOperation", "lack that permission"),
        ("DescribeSnapshots", "UnauthorizedOperation", "lack that permission"),
    ],
)
def test_what_ec2_would_not_do_is_known_while_the_pool_is_up(api, one_rented, action, code, words):
    api.fail(action, code)
    with pytest.raises(PoolError, match=f"(?s)and the pool stays.*{words}"):
        baked_images.check(one_rented.spec, "default-abc", "torch")
    assert "images" not in api.left() and not image_records.entries()
    baked_images.check(one_rented.spec, "default-abc", "torch")
    assert "images" not in api.left()


@pytest.mark.parametrize("folder", ["/mnt/skyward/scratch/envs", "/opt/dlami/nvme"])
def test_of_an_environment_on_a_disk_that_is_in_no_image_none_is_made(api, one_rented, folder):
    with pytest.raises(PoolError, match=f"cache={folder} has its environment on a disk"):
        baked_images.check(replace(one_rented.spec, cache=folder), "default-abc", "torch")
    assert "CreateImage" not in api.actions()
    baked_images.check(replace(one_rented.spec, cache="/opt/envs"), "default-abc", "torch")


def test_a_name_is_given_once(api, one_rented):
    bake(one_rented)
    with pytest.raises(PoolError, match="`%sky bake torch remove` removes it"):
        baked_images.check(one_rented.spec, "default-abc", "torch")
    with pytest.raises(baking.NotBaked, match="another process makes an image 'torch'"):
        bake(one_rented)
    (entry,) = image_records.entries()
    entry.forget()
    with pytest.raises(PoolError, match="the account has an image sky-torch in us-east-1"):
        baked_images.check(one_rented.spec, "default-abc", "torch")
    with pytest.raises(baking.NotBaked, match="already in use"):
        bake(one_rented)
    # Without a record it is found in EC2.
    said = [str(each) for each in baked_images.look().there]
    assert len(said) == 1 and "a pool whose record is gone" in said[0]
    baked_images.remove("torch")
    assert "images" not in api.left() and "snapshots" not in api.left()


@pytest.mark.parametrize("name", ["ami-torch", "-x", "a/b", "a b", "x" * 61])
def test_names_that_no_image_can_have(name):
    with pytest.raises(OptionError, match="is not the name of an image"):
        baked_images.image_name([name])


def test_one_that_is_not_there_cannot_be_removed(api, one_rented):
    with pytest.raises(OptionError, match="there is no image 'torch'"):
        baked_images.remove("torch")


# ── left half made ──────────────────────────────────────────────────────────────────────


def half_baked(api, one_rented):
    """An image that EC2 makes, and nobody finished."""
    bake(one_rented)
    (entry,) = image_records.entries()
    entry.note(state="making", ami="")


def test_whose_maker_lives_it_is_left_alone(api, one_rented):
    half_baked(api, one_rented)
    found = asyncio.run(sweep.sweep())
    assert not found.images and len(found.baked) == 1
    all_removed(api)


def test_whose_maker_is_gone_it_is_removed(api, one_rented):
    half_baked(api, one_rented)
    abandoned()
    found = asyncio.run(sweep.sweep())
    assert found.images == ["torch in us-east-1, that nobody finished"]
    assert "images" not in api.left() and "snapshots" not in api.left()
    assert not image_records.entries()


def test_a_record_without_an_image_is_forgotten(api, one_rented):
    bake(one_rented)
    ami = image_records.entries()[0].record.ami
    asyncio.run(one_rented.cloud.ask("DeregisterImage", "us-east-1", ImageId=ami))
    assert not asyncio.run(sweep.sweep()).images, "EC2 may list it late"
    (entry,) = image_records.entries()
    entry.note(created=time.time() - 7200)
    assert asyncio.run(sweep.sweep()).images == ["torch in us-east-1, whose AMI is gone"]
    assert "snapshots" not in api.left() and not image_records.entries()


def test_a_snapshot_without_an_image_and_a_record_is_removed(api, one_rented):
    bake(one_rented)
    (entry,) = image_records.entries()
    asyncio.run(one_rented.cloud.ask("DeregisterImage", "us-east-1", ImageId=entry.record.ami))
    entry.forget()
    (found,) = asyncio.run(sweep.sweep()).images
    assert found.startswith("snapshot snap-") and "snapshots" not in api.left()


@pytest.mark.parametrize("action", ["DeregisterImage", "DeleteSnapshot"])
def test_what_could_not_be_removed_is_by_the_next_sweep(api, one_rented, action):
    bake(one_rented)
    api.fail(action, "UnauthorizedOperation", times=0)
    with pytest.raises(PoolError, match=r"not confirmed to be gone.*`%sky sweep` tries again"):
        baked_images.remove("torch")
    assert image_records.entries()[0].record.state == "ending"
    api.calm()
    assert asyncio.run(sweep.sweep()).images
    assert "images" not in api.left() and "snapshots" not in api.left()


def test_another_account_removes_no_record(api, one_rented):
    bake(one_rented)
    (entry,) = image_records.entries()
    entry.note(account="999999999999")
    found = asyncio.run(sweep.sweep())
    assert "of account 999999999999" in found.left[0]
    with pytest.raises(
        PoolError, match=r"nothing is removed: .* account 999999999999.* Sign in to"
    ):
        baked_images.remove("torch")
    entry.note(account=ACCOUNT)
    all_removed(api)


def test_those_of_others_are_not_ours(api, one_rented, monkeypatch):
    bake(one_rented)
    (entry,) = image_records.entries()
    entry.forget()
    with monkeypatch.context() as patch:
        patch.setattr(rental_records, "owner", lambda: "somebody else")
        assert not baked_images.look().there
        with pytest.raises(OptionError, match="there is no image 'torch'"):
            baked_images.remove("torch")
    baked_images.remove("torch")
    assert "images" not in api.left()
