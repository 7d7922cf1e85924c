"""The image that a machine boots: with GPUs AWS's own for deep learning, else Ubuntu."""

from __future__ import annotations

from dataclasses import dataclass

from skyward_nb.providers.aws import tags
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.image_lookup import check_driver, described
from skyward_nb.words.offers import InstanceType
from skyward_nb.words.provider_access import AWSAccess

# https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html; the open driver is for GPUs
# from Turing on.
_GPU = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
# https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/
_CPU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{arch}/hvm/ebs-gp3/ami-id"
_ARCHES = {"x86_64": "amd64", "arm64": "arm64"}
_USERS = (
    ("al2023", "ec2-user"),
    ("amzn", "ec2-user"),
    ("amazon linux", "ec2-user"),
    ("debian", "admin"),
    ("rhel", "ec2-user"),
)


@dataclass(frozen=True)
class MachineImage:
    """An AMI: its root disk, that disk's least size in GB, its user, and its other disks with their sizes."""

    ami: str
    root: str
    size: int
    user: str
    others: tuple[tuple[str, int], ...] = ()


async def image_for(
    cloud: AWSClient, access: AWSAccess, kind: InstanceType, region: str
) -> MachineImage:
    """The image that a type boots in a region; raises `AWSError`."""
    ami = access.ami
    if ami is None:
        # A public parameter names the newest image.
        parameter = (
            _GPU.format(arch=kind.arch) if kind.gpus else _CPU.format(arch=_ARCHES[kind.arch])
        )
        said = await cloud.ask("GetParameter", region, service="ssm", Name=parameter)
        ami = str(said["Parameter"]["Value"])
    image = await described(cloud, ami, region)
    check_driver(image, ami, kind)
    arch = str(image.get("Architecture", kind.arch))
    if arch != kind.arch:
        why = f"ami={ami} is for {arch}, and {kind.name} is {kind.arch}"
        raise AWSError("UnsupportedInstanceType", why, "DescribeImages")
    if image.get("Platform") == "windows":
        raise AWSError("NotLinux", f"ami={ami} is Windows", "DescribeImages")
    if access.warm is not None and image.get("RootDeviceType") == "instance-store":
        why = f"warm=: EC2 cannot stop machines whose root is on instance store, as that of ami={ami} is"
        raise AWSError("UnsupportedRoot", why, "DescribeImages")
    root = str(image.get("RootDeviceName") or "/dev/sda1")
    disks = {
        str(each["DeviceName"]): int(each["Ebs"].get("VolumeSize", 0))
        for each in image.get("BlockDeviceMappings", [])
        if "Ebs" in each
    }
    name = str(image.get("Name", ""))
    own = tags.tags_in(image).get(tags.USER)
    return MachineImage(
        str(image.get("ImageId", ami)),
        root,
        disks.get(root, 0),
        access.user
        or own
        or next((user for word, user in _USERS if word in name.lower()), "ubuntu"),
        tuple((name, size) for name, size in disks.items() if name != root),
    )
