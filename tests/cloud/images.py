"""Which image is the newest of its kind, as public parameters of SSM say; moto has none of these.

docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html for images with GPU drivers, and for Ubuntu
documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images.
"""

from __future__ import annotations

import hashlib
import re

from cloud.answers import Answer, Refused, said
from cloud.calls import Call

_ROOT = "/aws/service"
_KNOWN = (
    re.compile(
        rf"{_ROOT}/deeplearning/ami/(?P<arch>x86_64|arm64)/"
        r"(base-oss-nvidia-driver-gpu-(ubuntu-2[24]\.04|amazon-linux-2023)"
        r"|oss-nvidia-driver-gpu-pytorch-\d\.\d+-(ubuntu-2[24]\.04|amazon-linux-2023)"
        r"|base-neuron-.*)/latest/ami-id"
    ),
    re.compile(
        rf"{_ROOT}/canonical/ubuntu/server/(2[0-9]\.04|jammy|noble)/stable/current/"
        r"(?P<arch>amd64|arm64)/hvm/ebs-gp[23]/ami-id"
    ),
)


def image(region: str, name: str) -> str:
    """The image's id in this region: images have another one in each."""
    return f"ami-{hashlib.sha256(f'{region} {name}'.encode()).hexdigest()[:17]}"


def arch(name: str) -> str:
    """What an image by this parameter runs on; "" if there is none."""
    found = next((each for each in (known.fullmatch(name) for known in _KNOWN) if each), None)
    return "" if found is None else "arm64" if found["arch"] == "arm64" else "x86_64"


class Images:
    """Parameters that are asked for; `known` are the images that were told of, by region and id."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], str] = {}
        self.missing: set[str] = set()
        """Parameters that a region has not, although others do."""

    def parameter(self, call: Call) -> Answer | None:
        name = call.data["Name"]
        if not name.startswith((f"{_ROOT}/deeplearning", f"{_ROOT}/canonical")):
            return None
        if not (found := self._found(call.region, name)):
            raise Refused("ParameterNotFound", f"Parameter {name} not found.")
        return said(call, {"Parameter": found})

    def parameters(self, call: Call) -> Answer | None:
        names = call.data["Names"]
        if not any(each.startswith((f"{_ROOT}/deep", f"{_ROOT}/canon")) for each in names):
            return None
        found = {each: self._found(call.region, each) for each in names}
        bad = [name for name, each in found.items() if each is None]
        good = [each for each in found.values() if each]
        return said(call, {"Parameters": good, "InvalidParameters": bad})

    def _found(self, region: str, name: str) -> dict[str, object] | None:
        if not arch(name) or name in self.missing:
            return None
        own = image(region, name)
        self.known[region, own] = name
        return {
            "Name": name,
            "Type": "String",
            "Value": own,
            "Version": 1,
            "LastModifiedDate": 1760000000.0,
            "ARN": f"arn:aws:ssm:{region}::parameter{name}",
            "DataType": "aws:ec2:image",
        }
