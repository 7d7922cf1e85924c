"""Images that are made of machines, and the snapshots that they consist of.

docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateImage.html: a name is unique in a region of an account; an image is
pending until its snapshots are complete. docs.aws.amazon.com/ebs/latest/userguide/ebs-creating-snapshot.html: a snapshot is
of the moment at which it begins, and goes on without the machine. .../API_DeregisterImage.html leaves snapshots;
.../API_DeleteSnapshot.html refuses those of an image that is registered. .../API_DescribeImages.html has the states.
.../UserGuide/ExamplePolicies_EC2.html has the answers to DryRun.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cloud.answers import Answer, Refused, said
from cloud.calls import Call
from cloud.stock import ACCOUNT, Stock

_MAY_BE = ("running", "stopped", "stopping")
_SIZE = 100
WRITTEN = 3 << 30
"""Bytes that a disk has, when they are copied."""


@dataclass
class Snapshot:
    """One disk as it was; `left` is how often it is told to be on its way."""

    id: str
    tags: dict[str, str]
    left: int


@dataclass
class BakedImage:
    """An image; `disk` is what a machine of it finds there."""

    id: str
    name: str
    instance: str
    arch: str
    tags: dict[str, str]
    snapshots: list[str] = field(default_factory=list)
    disk: bytes = b""
    reason: str = ""
    """Why it could not be made."""
    is_disabled: bool = False


class Baked:
    """The images of all regions. `disk_of` copies the disk of an instance as it is now."""

    def __init__(self, stock: Stock, disk_of: Callable[[str], bytes]) -> None:
        self._stock = stock
        self._disk_of = disk_of
        self.images: dict[tuple[str, str], BakedImage] = {}
        self.snapshots: dict[tuple[str, str], Snapshot] = {}
        self._ever: set[str] = set()
        self.copying = 0
        """How often snapshots are told to be on their way."""
        self.slow = 0
        """How often snapshots are asked for before they begin."""
        self.reason = ""
        """Why images that are asked for from here on cannot be made."""
        self._asked: dict[str, int] = {}

    # ── made and removed ────────────────────────────────────────────────────────────────

    def create(self, call: Call) -> Answer:
        instance, name = call.form["InstanceId"], call.form["Name"]
        try:
            region, own = self._stock.find(instance)
        except KeyError:
            region, own = "", None
        if own is None or region != call.region:
            words = f"The instance ID '{instance}' does not exist"
            raise Refused("InvalidInstanceID.NotFound", words)
        if own.state not in _MAY_BE:
            raise Refused("IncorrectState", f"Instance '{instance}' is not 'running' or 'stopped'.")
        for each in self._of(call.region):
            if each.name == name:
                words = f"AMI name {name} is already in use by AMI {each.id}"
                raise Refused("InvalidAMIName.Duplicate", words)
        if call.form.get("DryRun") == "true":
            words = "Request would have succeeded, but DryRun flag is set."
            raise Refused("DryRunOperation", words)
        assert call.form.get("NoReboot") == "true", "nobody has played a machine that is rebooted"
        tags = {each["ResourceType"]: _tags(each) for each in call.structs("TagSpecification")}
        made = BakedImage(
            f"ami-{secrets.token_hex(8)}0", name, instance, own.architecture, tags.get("image", {})
        )
        made.reason = self.reason
        self._ever.add(made.id)
        self.images[call.region, made.id] = made
        self._stock.keep_image(call.region, made.id, name, made.arch)
        self._asked[made.id] = self.slow
        self._tags = tags.get("snapshot", {})
        if not self.slow and not made.reason:
            self._begin(call.region, made)
        return said(call, {"imageId": made.id})

    def _begin(self, region: str, image: BakedImage) -> None:
        image.disk = self._disk_of(image.instance)
        one = Snapshot(f"snap-{secrets.token_hex(8)}0", self._tags, self.copying)
        self.snapshots[region, one.id] = one
        image.snapshots.append(one.id)

    def deregister(self, call: Call) -> Answer:
        found = self.images.pop((call.region, call.form["ImageId"]), None)
        if found is None:
            raise Refused("InvalidAMIID.Unavailable", f"{call.form['ImageId']} is gone")
        self._stock.drop_image(call.region, found.id)
        return said(call, {"return": True})

    def disable(self, call: Call) -> Answer:
        """docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DisableImage.html"""
        self.images[call.region, call.form["ImageId"]].is_disabled = True
        return said(call, {"return": True})

    def delete(self, call: Call) -> Answer:
        name = call.form["SnapshotId"]
        if (call.region, name) not in self.snapshots:
            raise Refused("InvalidSnapshot.NotFound", f"The snapshot '{name}' does not exist.")
        for each in self._of(call.region):
            if name in each.snapshots:
                words = f"The snapshot {name} is currently in use by {each.id}"
                raise Refused("InvalidSnapshot.InUse", words)
        del self.snapshots[call.region, name]
        return said(call, {"return": True})

    # ── told ────────────────────────────────────────────────────────────────────────────

    def describe(self, call: Call) -> Answer | None:
        """Of the account's own images; None where others are asked for."""
        ids = call.several("ImageId")
        if not ids and call.several("Owner") != ["self"]:
            return None
        found = [each for each in self._of(call.region) if each.id in ids or not ids]
        if ids and not found:
            if {*ids} & self._ever:
                raise Refused("InvalidAMIID.NotFound", f"The image id '[{ids[0]}]' does not exist")
            return None
        if call.form.get("IncludeDisabled") != "true":
            found = [each for each in found if not each.is_disabled]
        fitting = [each for each in found if _fits(call, each.name, each.tags)]
        return said(call, {"imagesSet": [self._told(call.region, each) for each in fitting]})

    def _told(self, region: str, image: BakedImage) -> dict[str, Any]:
        disks = [
            {
                "deviceName": "/dev/sda1",
                "ebs": {
                    "snapshotId": each,
                    "volumeSize": _SIZE,
                    "deleteOnTermination": True,
                    "volumeType": "gp3",
                    "encrypted": True,
                },
            }
            for each in image.snapshots
        ]
        why = {"stateReason": {"code": "Server.Error", "message": image.reason}}
        return {
            "imageId": image.id,
            "imageLocation": f"{ACCOUNT}/{image.name}",
            "imageState": self.state(region, image),
            "imageOwnerId": ACCOUNT,
            "isPublic": False,
            "architecture": image.arch,
            "imageType": "machine",
            "name": image.name,
            "rootDeviceType": "ebs",
            "rootDeviceName": "/dev/sda1",
            "blockDeviceMapping": disks,
            "virtualizationType": "hvm",
            "tagSet": [{"key": key, "value": value} for key, value in image.tags.items()],
            **(why if image.reason else {}),
        }

    def state(self, region: str, image: BakedImage) -> str:
        if image.reason:
            return "failed"
        if image.is_disabled:
            return "disabled"
        own = [self.snapshots.get((region, each)) for each in image.snapshots]
        return "available" if own and all(s and not s.left for s in own) else "pending"

    def describe_snapshots(self, call: Call) -> Answer | None:
        if call.several("Owner") != ["self"]:
            return None
        for image in self._of(call.region):
            if self._asked.get(image.id, 0) > 0:
                self._asked[image.id] -= 1
                if not self._asked[image.id]:
                    self._begin(call.region, image)
        found = [each for (region, _), each in self.snapshots.items() if region == call.region]
        told = []
        for each in found:
            if not _fits(call, "", each.tags):
                continue
            is_done = not each.left
            each.left = max(0, each.left - 1)
            told.append(
                {
                    "snapshotId": each.id,
                    "volumeId": "vol-ffffffff",
                    "status": "completed" if is_done else "pending",
                    "startTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.000Z}",
                    "progress": "100%" if is_done else "40%",
                    "ownerId": ACCOUNT,
                    "volumeSize": _SIZE,
                    "encrypted": True,
                    **({"fullSnapshotSizeInBytes": WRITTEN} if is_done else {}),
                    "tagSet": [{"key": key, "value": value} for key, value in each.tags.items()],
                }
            )
        return said(call, {"snapshotSet": told})

    # ── launched ────────────────────────────────────────────────────────────────────────

    def check(self, region: str, image: str, archs: list[str]) -> None:
        """Raise what EC2 says where no machine can be made of an image."""
        own = self.images.get((region, image))
        if own is None and image in self._ever:
            raise Refused("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
        if own is None:
            return
        if self.state(region, own) != "available":
            raise Refused("InvalidAMIID.Unavailable", f"The image ID '{image}' is not available")
        if own.arch not in archs:
            words = f"The architecture '{archs[0]}' does not match that of the AMI ({own.arch})."
            raise Refused("InvalidParameterValue", words)

    def disk(self, region: str, image: str) -> bytes:
        """What a machine of an image finds on its disk; nothing of one that was not made here."""
        own = self.images.get((region, image))
        return b"" if own is None else own.disk

    def left(self) -> dict[str, list[str]]:
        found = {
            "images": [f"{region} {each.name}" for (region, _), each in self.images.items()],
            "snapshots": [f"{region} {name}" for region, name in self.snapshots],
        }
        return {kind: names for kind, names in found.items() if names}

    def _of(self, region: str) -> list[BakedImage]:
        return [each for (own, _), each in self.images.items() if own == region]


def _tags(spec: dict[str, str]) -> dict[str, str]:
    return {
        value: spec[key.replace(".Key", ".Value")]
        for key, value in spec.items()
        if key.endswith(".Key")
    }


def _fits(call: Call, name: str, tags: dict[str, str]) -> bool:
    for key, values in call.filters().items():
        if key == "name":
            fits = name in values
        elif key == "tag-key":
            fits = bool({*values} & tags.keys())
        else:
            assert key.startswith("tag:"), key
            fits = tags.get(key.removeprefix("tag:")) in values
        if not fits:
            return False
    return True
