"""Machines that are stopped and started again.

docs.aws.amazon.com/AWSEC2/latest/UserGuide/Stop_Start.html and how-ec2-instance-stop-start-works.html: disks stay, the
public address is let go, the private one stays here for its interface, what is in memory or on disks within the machine
is lost. .../APIReference/API_StopInstances.html: no machine of a one-time spot request, none whose root lies within it.
.../APIReference/API_StartInstances.html, and errors-overview.html: InsufficientInstanceCapacity, IncorrectInstanceState.
"""

from __future__ import annotations

from typing import Any

from cloud.answers import Refused
from cloud.calls import Call

_MAY_STOP = ("pending", "running", "stopping", "stopped")


def check_stop(instances: list[Any]) -> None:
    """Raise what EC2 says where machines cannot be stopped."""
    for each in instances:
        if each.lifecycle == "spot":
            words = (
                f"You can't stop the Spot Instance '{each.id}' because it is associated with a one-time Spot "
                "Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests."
            )
            raise Refused("UnsupportedOperation", words)
        if each.state not in _MAY_STOP:
            words = f"This instance '{each.id}' is not in a state from which it can be stopped."
            raise Refused("IncorrectInstanceState", words)


def check_start(
    call: Call, instances: list[Any], capacity: dict[tuple[str, str], int], stopping: dict[str, int]
) -> None:
    """Raise what EC2 says where machines cannot be started: all are, or none."""
    wanted: dict[tuple[str, str], int] = {}
    for each in instances:
        if each.state not in ("stopped", "running", "pending") or stopping.get(each.id, 0) > 0:
            words = f"The instance '{each.id}' is not in a state from which it can be started."
            raise Refused("IncorrectInstanceState", words)
        if each.state == "stopped":
            key = each.instance_type, each.placement.zone or f"{call.region}a"
            wanted[key] = wanted.get(key, 0) + 1
    for (kind, zone), count in wanted.items():
        if count > capacity.get((kind, zone), count):
            words = (
                f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone}). "
                "Our system will be working on provisioning additional capacity."
            )
            raise Refused("InsufficientInstanceCapacity", words)
    for key, count in wanted.items():
        if key in capacity:
            capacity[key] -= count
