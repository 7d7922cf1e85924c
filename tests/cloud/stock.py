"""What moto keeps, as the layer reads and sets it: the only module that knows moto's models."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from cloud import images
from cloud.prices import Size
from moto.core.base_backend import BackendDict
from moto.core.model_instances import reset_model_data
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import StateReason

ACCOUNT = "123456789012"
_OVER = ("shutting-down", "terminated")


@cache
def _offered(region: str) -> dict[str, tuple[str, ...]]:
    """The zones that have a type, of all types that a region has."""
    found: dict[str, list[str]] = {}
    for each in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, ()):
        found.setdefault(each["InstanceType"], []).append(each["Location"])
    return {kind: tuple(sorted(zones)) for kind, zones in found.items()}


@cache
def _sizes(region: str) -> dict[str, Size]:
    return {
        kind: _size(INSTANCE_TYPES[kind]) for kind in _offered(region) if kind in INSTANCE_TYPES
    }


def _size(told: dict[str, Any]) -> Size:
    return Size(
        cpus=told["VCpuInfo"]["DefaultVCpus"],
        memory=told["MemoryInfo"]["SizeInMiB"] / 1024,
        gpus=sum(each["Count"] for each in told.get("GpuInfo", {}).get("Gpus", ())),
    )


class Stock:
    """All regions of one account."""

    def __init__(self) -> None:
        self._own: dict[str, set[str]] = {}

    def reset(self) -> None:
        """As if nothing had ever been asked: what there was is dropped, not made anew as moto's `reset` does."""
        for each in BackendDict._instances:
            each.clear()
        BackendDict._instances.clear()
        reset_model_data()

    def _backend(self, region: str) -> Any:
        return ec2_backends[ACCOUNT][region]

    def _used(self) -> Iterator[tuple[str, Any]]:
        """The regions that were asked for anything."""
        yield from list(ec2_backends[ACCOUNT].items())

    # ── types ───────────────────────────────────────────────────────────────────────────

    def sizes(self, region: str) -> dict[str, Size]:
        """The types of a region."""
        return _sizes(region)

    def zones(self, region: str, kind: str) -> tuple[str, ...]:
        """The zones that have a type."""
        return _offered(region).get(kind, ())

    def arch(self, kind: str) -> list[str]:
        """What runs on a type."""
        return INSTANCE_TYPES[kind]["ProcessorInfo"]["SupportedArchitectures"]

    def zone_of(self, region: str, subnet: str) -> str:
        """The zone that a subnet lies in; "" without one."""
        for zone, found in self._backend(region).subnets.items():
            if subnet in found:
                return zone
        return ""

    def learn(self, region: str, image: str, name: str) -> None:
        """An image that is told of by this parameter is there."""
        backend = self._backend(region)
        if image not in backend.amis:
            backend.amis[image] = Ami(
                backend,
                image,
                name=name.rpartition("/latest")[0] or name,
                owner_id="099720109477",
                owner_alias="amazon",
                public=True,
                virtualization_type="hvm",
                architecture=images.arch(name),
                hypervisor="xen",
                root_device_type="ebs",
                root_device_name="/dev/sda1",
                region_name=region,
            )

    def keep_image(self, region: str, image: str, name: str, arch: str) -> None:
        """The account has an image of its own, of which machines can be made."""
        backend = self._backend(region)
        backend.amis[image] = Ami(
            backend, image, name=name, owner_id=ACCOUNT, virtualization_type="hvm", architecture=arch, hypervisor="xen",
            root_device_type="ebs", root_device_name="/dev/sda1", region_name=region,
        )  # fmt: skip

    def drop_image(self, region: str, image: str) -> None:
        self._backend(region).amis.pop(image, None)

    # ── instances ───────────────────────────────────────────────────────────────────────

    def all(self, region: str) -> list[Any]:
        return self._backend(region).all_instances()

    def alive(self, region: str) -> list[Any]:
        """Those that are paid for."""
        return [each for each in self.all(region) if each.state not in _OVER]

    def states(self) -> dict[str, str]:
        """The states of all instances that there were."""
        return {each.id: each.state for region, _ in self._used() for each in self.all(region)}

    def find(self, instance: str) -> tuple[str, Any]:
        """Its region, and itself."""
        for region, backend in self._used():
            for each in backend.all_instances():
                if each.id == instance:
                    return region, each
        raise KeyError(instance)

    def placed(self, region: str, instance: str, group: str, kinds: list[str]) -> None:
        """What moto drops: the placement group, and the kinds of interfaces; no public address with several of these."""
        own = self.find(instance)[1]
        if len(kinds) > 1:
            own.nics[0].public_ip = None
            own.nics[0].public_ip_auto_assign = False
        own.placement.group_name = group
        for number, kind in enumerate(kinds):
            if number in own.nics:
                own.nics[number].interface_type = kind

    def addressed(self, instance: str, public: str, private: str) -> Any:
        """The instance has these addresses from here on; the public one if it has one at all."""
        own = self.find(instance)[1]
        first = own.nics[0]
        first.private_ip_address = private
        first.private_ip_addresses[:] = [{"Primary": True, "PrivateIpAddress": private}]
        if first.public_ip:
            first.public_ip = public
        return own

    def key(self, region: str, name: str | None) -> str:
        """The public key that a machine is launched with."""
        pair = self._backend(region).key_pairs.get(name)
        return "" if pair is None else pair.material_public.decode().strip() + "\n"

    def terminate(self, instance: str, code: str, message: str) -> str:
        """The region of the instance, which is over, for this reason:
        docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html."""
        region, own = self.find(instance)
        self._backend(region).terminate_instances([instance])
        own.state_reason = StateReason(f"{code}: {message}", code)
        return region

    def power_off(self, instance: str) -> str:
        """What becomes of an instance that powered itself off; its region if it is over."""
        region, own = self.find(instance)
        if own.instance_initiated_shutdown_behavior == "terminate":
            code = "Client.InstanceInitiatedShutdown"
            return self.terminate(instance, code, "Instance initiated shutdown")
        self._backend(region).stop_instances([instance])
        return ""

    def clear(self, region: str, instance: str) -> list[str]:
        """Interfaces that end with an instance, without their addresses; the security groups that it was in."""
        backend = self._backend(region)
        own = self.find(instance)[1]
        # moto has one interface of each device index in `nics`.
        ending = [nic for nic in backend.enis.values() if nic.instance is own]
        for each in self.addresses(region):
            if each.eni in ending:
                each.eni = each.instance = each.association_id = None
        for nic in [*ending, *own.nics.values()]:
            backend.enis.pop(nic.id, None)
        return [each.id for each in own.security_groups] + [
            group.id for nic in own.nics.values() for group in nic._group_set
        ]

    # ── addresses ───────────────────────────────────────────────────────────────────────

    def addresses(self, region: str, allocation: str | None = None) -> list[Any]:
        """The Elastic IP addresses, or the one of this allocation."""
        found = self._backend(region).addresses
        return [each for each in found if allocation in (None, each.allocation_id)]

    def card(self, region: str, name: str) -> Any | None:
        """A network interface."""
        return self._backend(region).enis.get(name)

    # ── groups, and what is left ────────────────────────────────────────────────────────

    def group(self, region: str, name: str) -> Any | None:
        """A security group by its id or name."""
        for groups in self._backend(region).groups.values():
            for each in groups.values():
                if name in (each.id, each.name):
                    return each
        return None

    def uses(self, region: str, group: Any) -> bool:
        """Whether a machine or an interface is in a group."""
        backend = self._backend(region)
        held = [own for each in self.alive(region) for own in each.security_groups]
        held += [own for each in backend.enis.values() for own in each.group_set]
        return group.id in [own.id for own in held]

    def left(self) -> dict[str, list[str]]:
        """What there is that nobody has without asking for it, by kind."""
        found: dict[str, list[str]] = {}

        def add(kind: str, region: str, names: list[str]) -> None:
            if names:
                found.setdefault(kind, []).extend(f"{region} {each}" for each in names)

        for region, backend in self._used():
            machines = [f"{each.id} ({each.state})" for each in self.alive(region)]
            add("machines", region, machines)
            add("volumes", region, list(backend.volumes))
            add("interfaces", region, list(backend.enis))
            add("keys", region, list(backend.key_pairs))
            groups = [own for each in backend.groups.values() for own in each.values()]
            add("groups", region, [each.name for each in groups if each.name != "default"])
            add("templates", region, list(backend.launch_templates))
            add("addresses", region, [each.allocation_id for each in backend.addresses])
        return found
