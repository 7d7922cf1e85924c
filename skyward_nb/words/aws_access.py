"""A pool's use of AWS, as one value: `AWSAccess`. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

Placement = Literal["auto", "no"]
SSM = "ssm"
"""The `jump` of AWS's Session Manager."""
LEAST_WARM = 600.0
"""Seconds for which machines are stopped at least: their start takes minutes, in which no timer should end them."""
MOST_WARM = 30 * 86_400.0
"""Seconds for which machines are stopped at most: nobody remembers them for longer, and their disks cost."""
IMAGE_ID = r"ami-[0-9a-f]{8,17}"
IMAGE_NAME = r"(?!ami-)[A-Za-z0-9][A-Za-z0-9._-]{0,59}"
"""The form of names of baked images; EC2's own names, which have more characters, begin with `sky-`."""
OnPreempt = Literal["tell", "replace"]
"""Whether a reclaimed machine is only reported, or also replaced."""


class AWSAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where machines may be rented, and with which resources; None means a default.

    `regions` are alternatives to `region`, `zones` the only allowed ones; `user` logs in to the `ami`, which is an id, or
    the name of a baked image;
    `profile` is one of AWS's configuration, `disk` GB of gp3 with
    `throughput` MiB/s. With `placement` "auto", nodes are put side by
    side if their type allows it. `endpoint` is another server with EC2's interface. `instance_profile` is the role
    of machines, by the name or ARN of its profile.

    `subnet` has subnets, one for each zone; `public_ip` None: as they say. `jump` is a host on the way to machines, or
    `SSM`; `caller` has the networks from which they are reached. `reservation` and `capacity_block` are ids.

    `warm` is how long machines are stopped at the pool's end, in seconds, before they end.
    """

    region: str | None = None
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    instance_type: str | None = None
    ami: str | None = None
    user: str | None = None
    subnet: tuple[str, ...] | None = None
    security_group: str | None = None
    profile: str | None = None
    placement: Placement = "auto"
    disk: int = 100
    throughput: int | None = None
    endpoint: str | None = None
    instance_profile: str | None = None
    public_ip: bool | None = None
    jump: str | None = None
    caller: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    reservation: str | None = None
    capacity_block: str | None = None
    warm: float | None = None


def is_image_id(asked: str) -> bool:
    """Whether an `ami` is EC2's id, and not the name of a baked image."""
    return asked.startswith("ami-")
