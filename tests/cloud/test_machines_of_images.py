"""Machines that are rented of a baked image, against the API alone: which it fits, and what is said where it does not."""

from __future__ import annotations

import asyncio

import pytest
from cloud.bakes import all_removed, bake
from cloud.renter import CPU, GPU, launches, offer

from skyward_nb.providers.aws import image_records, tags
from skyward_nb.reports import baked_images
from skyward_nb.words.errors import LaunchError, OptionError
from skyward_nb.words.offers import InstanceType
from skyward_nb.words.provider_access import AWSAccess

ARM = InstanceType(name="c7g.large", arch="arm64", cpus=2, memory=4)


def rent(renter, *offers, ami="torch", region="us-east-1"):
    made = renter("next-1", nodes=1, aws=AWSAccess(region=region, ami=ami))
    try:
        made.launch(*offers)
    finally:
        made.left = made.end()
    return made


def test_a_pool_has_machines_of_it_by_its_name(api, one_rented, renter):
    ami = bake(one_rented)
    before = len(launches(api))
    rent(renter, offer(CPU))
    (call,) = launches(api)[before:]
    assert call.parameters["ImageId"] == ami
    all_removed(api)


def nothing_is_rented(api, renter, kind, words):
    before = len(launches(api))
    with pytest.raises(LaunchError, match=words):
        rent(renter, offer(kind))
    assert len(launches(api)) == before
    all_removed(api)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ARM, "ami=torch is for x86_64, and c7g.large is arm64"),
        (GPU, "made on a machine without a driver for GPUs, and p4d.24xlarge has GPUs"),
    ],
)
def test_machines_that_it_does_not_fit_are_not_rented(api, one_rented, renter, kind, words):
    bake(one_rented)
    nothing_is_rented(api, renter, kind, words)


def test_another_region_has_it_not_and_says_what_to_do(api, one_rented, renter):
    ami = bake(one_rented)
    with pytest.raises(LaunchError) as caught:
        rent(renter, offer(CPU, region="eu-west-1"), region="eu-west-1")
    said = str(caught.value)
    assert "there is no image 'torch' in eu-west-1, but in us-east-1: region=us-east-1" in said
    assert f"aws ec2 copy-image --source-region us-east-1 --source-image-id {ami}" in said
    assert '"ResourceType": "snapshot"' in said and image_records.entries()[0].record.mark in said
    with pytest.raises(LaunchError, match="`%sky bake jax` makes it of a pool"):
        rent(renter, offer(CPU), ami="jax")
    all_removed(api)


def test_a_copy_is_listed_once_it_was_asked_for_and_stays_without_its_original(
    api, one_rented, renter
):
    bake(one_rented)
    (record,) = [each.record for each in image_records.entries()]
    there = renter("next-2", nodes=1, aws=AWSAccess(region="eu-west-1"))
    there.launch(offer(CPU, region="eu-west-1"))
    copy = there.cloud.ask(
        "CreateImage", "eu-west-1", InstanceId=there.machines[0].instance, Name="sky-torch", NoReboot=True,
        TagSpecifications=[{"ResourceType": "image", "Tags": tags.of_image(record, has_driver=False)}],
    )  # fmt: skip
    ami = asyncio.run(copy)["ImageId"]
    there.end()
    assert len(baked_images.look().there) == 1
    with pytest.raises(OptionError, match="no image 'torch' in eu-west-1: it is in us-east-1"):
        baked_images.remove("torch", ["eu-west-1"])
    rent(renter, offer(CPU, region="eu-west-1"), region="eu-west-1")
    found = {each.region: each for each in baked_images.look().there}
    assert found["eu-west-1"].ami == ami and found["eu-west-1"].gigabytes == 100
    assert found["eu-west-1"].source == "the image in us-east-1, as a copy"
    assert "copies stay in eu-west-1" in baked_images.remove("torch", ["us-east-1"])
    assert [each.ami for each in baked_images.look().there] == [ami]
    assert "image torch in eu-west-1" in baked_images.remove("torch")
    all_removed(api)


def test_one_that_is_being_copied_rents_nothing(api, one_rented, renter):
    api.images(copying=9)
    bake(one_rented)
    before = len(launches(api))
    with pytest.raises(LaunchError, match="EC2 still copies the disks of image 'torch'"):
        rent(renter, offer(CPU))
    assert len(launches(api)) == before
    all_removed(api)


@pytest.mark.parametrize(
    ("state", "words"),
    [("making", "is still being made"), ("ending", "was not finished, or is being removed")],
)
def test_one_that_is_half_made_rents_nothing(api, one_rented, renter, state, words):
    bake(one_rented)
    (entry,) = image_records.entries()
    entry.note(state=state)
    nothing_is_rented(api, renter, CPU, words)


def test_the_login_is_that_of_the_machine_that_it_was_made_of(api, one_rented, renter):
    one_rented.entry.note(user="ec2-user")
    bake(one_rented)
    assert rent(renter, offer(CPU)).work.request.user == "ec2-user"
    all_removed(api)
