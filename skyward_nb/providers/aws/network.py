"""The network of machines: subnets, the pool's security group, its placement group, network cards.

Each pool has its own security group: port 22 from the caller's address, everything between its members,
nothing else. It is removed with the pool.
"""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass

from skyward_nb.providers.aws.api_errors import AWSError, family_of
from skyward_nb.providers.aws.client import Answer, Arguments, AWSClient
from skyward_nb.providers.aws.rental_records import CreatedResource, RentalFolder
from skyward_nb.providers.aws.tags import tagged
from skyward_nb.words.offers import InstanceType
from skyward_nb.words.provider_access import AWSAccess

_SSH = 22
_NO_PLACEMENT = {"t2", "t3", "t3a", "t4g", "mac1", "mac2"}
"""Families that no cluster placement group takes. Source: Amazon EC2 User Guide, "Placement groups"."""
_NO_EFA_FIRST = {"p6-b300"}
"""Families whose first network card has no EFA. Source: efa-acc-inst-types.html, as below."""
_SEEN_LIMIT = 5


@dataclass(frozen=True)
class PoolSubnets:
    """The subnets for machines in a region, by zone; in `private` zones, machines get no public addresses.

    `inside` is an address of their network.
    """

    vpc: str
    by_zone: dict[str, str]
    private: frozenset[str] = frozenset()
    inside: str = ""


async def subnets_in(cloud: AWSClient, access: AWSAccess, region: str) -> PoolSubnets:
    """The subnets of the default VPC, or the requested one; raises `AWSError`."""
    if access.subnet:
        said = await cloud.ask("DescribeSubnets", region, SubnetIds=[*access.subnet])
    else:
        only = [{"Name": "default-for-az", "Values": ["true"]}]
        said = await cloud.ask("DescribeSubnets", region, Filters=only)
    found = said["Subnets"]
    if not found:
        raise AWSError("VPCIdNotSpecified", f"no default subnet in {region}", "DescribeSubnets")
    networks = {str(each["VpcId"]) for each in found}
    if len(networks) > 1:
        why = f"subnet={','.join(access.subnet or ())}: they are of several VPCs, {', '.join(sorted(networks))}"
        raise AWSError("SeveralNetworks", why, "DescribeSubnets")
    order = {name: at for at, name in enumerate(access.subnet or ())}
    found.sort(key=lambda each: order.get(str(each["SubnetId"]), 0))
    zones: dict[str, Answer] = {}
    for each in found:
        zones.setdefault(str(each["AvailabilityZone"]), each)
    return PoolSubnets(
        vpc=networks.pop(),
        by_zone={zone: str(each["SubnetId"]) for zone, each in zones.items()},
        private=frozenset(zone for zone, each in zones.items() if not _is_public(each, access)),
        inside=_first_host(str(found[0].get("CidrBlock", ""))),
    )


def _first_host(network: str) -> str:
    """The first address of a network that a host may have: not the network's own, which is one for broadcasts; "" for "".

    Linux before 5.14 lets no socket connect to that one.
    """
    return str(ipaddress.ip_network(network)[1]) if network else ""


def _is_public(subnet: Answer, access: AWSAccess) -> bool:
    """Whether machines get public addresses: as asked, else in AWS's default network, else as a subnet says."""
    if access.public_ip is not None:
        return access.public_ip
    return not access.subnet or bool(subnet.get("MapPublicIpOnLaunch"))


# ── the security group ──────────────────────────────────────────────────────────────────


async def group_in(
    cloud: AWSClient, entry: RentalFolder, region: str, vpc: str, callers: tuple[str, ...]
) -> str:
    """The pool's security group in a region, made if need be; raises `AWSError`."""
    name = f"sky-{entry.record.pool_id}"
    entry.make(CreatedResource("group", region, name))
    group = await find_group(cloud, region, name)
    if group is None:
        try:
            said = await cloud.ask(
                "CreateSecurityGroup",
                region,
                GroupName=name,
                Description="skyward_nb: SSH from its maker, everything between its members",
                VpcId=vpc,
                TagSpecifications=tagged(["security-group"], entry.record),
            )
            group = str(said["GroupId"])
        except AWSError as fault:
            if fault.code == "InvalidGroup.Duplicate":
                # A first answer was lost, and boto3 asked again.
                group = await find_group(cloud, region, name)
            if group is None:
                raise
    # Also what EFA asks for: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html.
    members = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    rules = [members, *map(_login, callers)]
    await _allow(cloud, region, "AuthorizeSecurityGroupIngress", group, rules)
    await _allow(cloud, region, "AuthorizeSecurityGroupEgress", group, [members])
    return group


async def let_in(cloud: AWSClient, entry: RentalFolder, callers: tuple[str, ...]) -> bool:
    """Let more callers into the groups of a pool; whether any was not let in before. Raises `AWSError`."""
    is_new = False
    for made in entry.record.made:
        group = await find_group(cloud, made.region, made.name) if made.kind == "group" else None
        if group is not None:
            is_new |= await _allow(
                cloud, made.region, "AuthorizeSecurityGroupIngress", group, [*map(_login, callers)]
            )
    return is_new


def _login(caller: str) -> Arguments:
    """A rule that allows SSH from a network."""
    login: Arguments = {"IpProtocol": "tcp", "FromPort": _SSH, "ToPort": _SSH}
    if ":" in caller:
        return login | {"Ipv6Ranges": [{"CidrIpv6": caller}]}
    return login | {"IpRanges": [{"CidrIp": caller}]}


async def _allow(
    cloud: AWSClient, region: str, operation: str, group: str, rules: list[Arguments]
) -> bool:
    """Add rules to a group; False if it has them all. Retries, as a new group may not be visible at once.

    Of several rules in one call, EC2 adds none if the group has one of them: then each is asked for by itself.
    """
    for left in reversed(range(_SEEN_LIMIT)):
        try:
            await cloud.ask(operation, region, GroupId=group, IpPermissions=rules)
        except AWSError as fault:
            if fault.code == "InvalidPermission.Duplicate":
                if len(rules) == 1:
                    return False
                return any(
                    [await _allow(cloud, region, operation, group, [each]) for each in rules]
                )
            if fault.code != "InvalidGroup.NotFound" or not left:
                raise
            await asyncio.sleep(1)
        else:
            return True
    return False


async def find_group(cloud: AWSClient, region: str, name: str) -> str | None:
    """The security group of this name."""
    only = [{"Name": "group-name", "Values": [name]}]
    said = await cloud.ask("DescribeSecurityGroups", region, Filters=only)
    return str(said["SecurityGroups"][0]["GroupId"]) if said["SecurityGroups"] else None


# ── side by side ────────────────────────────────────────────────────────────────────────


def fits_side_by_side(kind: InstanceType) -> bool:
    """Whether machines of a type are put in a cluster placement group: those with GPUs or EFA.

    Others would gain little, and capacity would be harder to find.
    """
    return (
        (kind.efa or kind.gpus > 0)
        and family_of(kind.name) != "t"
        and (kind.name.partition(".")[0] not in _NO_PLACEMENT)
    )


async def placement_in(cloud: AWSClient, entry: RentalFolder, region: str, zone: str) -> str:
    """The pool's placement group in a zone, made if need be; raises `AWSError`.

    Each zone has its own: a group stays in its machines' zone until they have ended for good.
    """
    name = f"sky-{entry.record.pool_id}-{zone}"
    entry.make(CreatedResource("placement", region, name))
    try:
        await cloud.ask(
            "CreatePlacementGroup",
            region,
            GroupName=name,
            Strategy="cluster",
            TagSpecifications=tagged(["placement-group"], entry.record),
        )
    except AWSError as fault:
        # The name is the pool's own: an earlier attempt made it, or a first answer was lost.
        if fault.code != "InvalidPlacementGroup.Duplicate":
            raise
    return name


def cards_for(
    kind: InstanceType,
    subnet: str,
    group: str,
    *,
    efa: bool,
    is_public: bool,
    asked: bool | None = None,
) -> list[Arguments]:
    """The network interfaces of a machine, as RunInstances takes them.

    EC2 gives public addresses only to machines with one interface: those with several need Elastic IP addresses.
    `asked` is whether one was asked for: a subnet that gives them by itself is overruled only then.
    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html.
    """
    first: Arguments = {
        "DeviceIndex": 0,
        "SubnetId": subnet,
        "Groups": [group],
        "DeleteOnTermination": True,
    }
    several = efa and kind.network_cards > 1
    # Of several interfaces, EC2 takes no word about it, and gives none.
    if not several and (is_public or asked is False):
        first["AssociatePublicIpAddress"] = is_public
    if not efa:
        return [first]
    first["NetworkCardIndex"] = 0
    if kind.name.partition(".")[0] not in _NO_EFA_FIRST:
        first["InterfaceType"] = "efa"
    if not several:
        return [first]
    rest = [
        {
            "DeviceIndex": 1,
            "NetworkCardIndex": card,
            "SubnetId": subnet,
            "Groups": [group],
            "InterfaceType": "efa-only",
            "DeleteOnTermination": True,
        }
        for card in range(1, kind.network_cards)
    ]
    return [first, *rest]
