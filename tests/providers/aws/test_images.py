"""Who logs in to an image, and which disks it brings, as EC2 describes it."""

import asyncio

import pytest

from skyward_nb.providers.aws.api_errors import AWSError, NextStep, spell_fault, way_on
from skyward_nb.providers.aws.images import image_for
from skyward_nb.words.offers import InstanceType
from skyward_nb.words.provider_access import AWSAccess

KIND = InstanceType(name="c6i.large", arch="x86_64", cpus=2, memory=4)


class Shelf:
    """A cloud that has one image."""

    def __init__(self, **image):
        self._image = {"RootDeviceName": "/dev/xvda", **image}

    async def ask(self, operation, region, **words):
        assert (operation, words) == ("DescribeImages", {"ImageIds": ["ami-1"]})
        return {"Images": [self._image]}


def found(**image):
    return asyncio.run(image_for(Shelf(**image), AWSAccess(ami="ami-1"), KIND, "us-east-1"))


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("al2023-ami-2023.9.20251110.1-kernel-6.1-x86_64", "ec2-user"),
        ("amzn2-ami-kernel-5.10-hvm-2.0.20251110.1-x86_64-gp2", "ec2-user"),
        (
            "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.8 (Amazon Linux 2023) 2025",
            "ec2-user",
        ),
        ("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 2025", "ubuntu"),
        ("debian-13-amd64-20251117-2299", "admin"),
        ("RHEL-10.0.0_HVM-20251030-x86_64-0-Hourly2-GP3", "ec2-user"),
        ("mine", "ubuntu"),
    ],
)
def test_who_logs_in_is_known_by_the_name(name, user):
    assert found(Name=name).user == user


def test_an_image_of_another_architecture_is_said_to_be():
    assert found(Architecture="x86_64").ami == "ami-1"
    with pytest.raises(
        AWSError, match=r"ami=ami-1 is for arm64, and c6i.large is x86_64"
    ) as caught:
        found(Architecture="arm64")
    assert way_on(caught.value) is NextStep.TYPE


def test_an_image_whose_machines_cannot_be_stopped_is_refused_with_warm():
    stays = AWSAccess(ami="ami-1", warm=7200)
    for root in ("ebs", None):
        asyncio.run(image_for(Shelf(RootDeviceType=root), stays, KIND, "us-east-1"))
    with pytest.raises(AWSError, match=r"EC2 cannot stop machines whose root is on instance store"):
        asyncio.run(image_for(Shelf(RootDeviceType="instance-store"), stays, KIND, "us-east-1"))
    found(RootDeviceType="instance-store")


def test_windows_is_refused_before_anything_is_launched():
    with pytest.raises(AWSError) as caught:
        found(Platform="windows")
    assert way_on(caught.value) is NextStep.STOP
    assert spell_fault(caught.value) == (
        "ami=ami-1 is Windows: ranks are started by SSH and /bin/sh: ami= takes an image of Linux "
        "(DescribeImages: NotLinux)"
    )


def test_all_disks_of_an_image_are_known():
    image = found(
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8}},
            {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 500, "DeleteOnTermination": False}},
            {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
        ]
    )
    assert (image.root, image.size, image.others) == ("/dev/xvda", 8, (("/dev/sdf", 500),))
