"""What keeps a machine from answering a login at all, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from skyward_nb.providers.aws.offer_walk import is_large
from skyward_nb.providers.aws.rental_records import RentalRecord, RunningInstance
from skyward_nb.words.provider_access import SSM

TOLD_AFTER = 60.0
"""Seconds without any answer after which it is told why that may be."""
MOST = 300.0
"""Seconds without any answer after which no more is paid for; a machine's own boot takes one or two minutes."""
LARGE_MOST = 900.0
"""The same of the largest machines."""
_SSM_WAYS = (
    "machines need a role with AmazonSSMManagedInstanceCore, named by instance_profile=",
    "an image with the SSM agent (AWS's Ubuntu and Amazon Linux have it), if ami= is your own",
    "a way from their subnet to AWS's Session Manager, by a NAT gateway or its VPC endpoints",
    "ssm:StartSession among your own rights",
)


def most_for(kind: str) -> float:
    """Seconds without any answer after which a machine of a type is given up."""
    return LARGE_MOST if is_large(kind) else MOST


def spell_silence(record: RentalRecord, machines: Sequence[RunningInstance]) -> str:
    """The address, the way there, the group's rule, and what to do."""
    first = machines[0]
    where = f"{first.instance} at {first.address} port 22"
    more = f", and {len(machines) - 1} more" * (len(machines) > 1)
    if record.jump == SSM:
        return f"{where}{more} gives no answer by jump=ssm. What helps: {'; '.join(_SSM_WAYS)}"
    by = f" by jump={record.jump}" * bool(record.jump)
    group = next((each.name for each in record.made if each.kind == "group"), "")
    if group:
        rule = f"the security group {group} lets in {', '.join(record.let_in) or 'nobody'}"
    else:
        own = "from that host" if record.jump else "from here"
        rule = f"its security_group= is your own: does it let port 22 in {own}?"
    ways = _ways_by(record.jump, first) if record.jump else _direct_ways(first)
    return f"{where}{more} gives no answer{by}; {rule}. What helps: {'; '.join(ways)}"


def _ways_by(jump: str, machine: RunningInstance) -> list[str]:
    return [
        f"`ssh -o BatchMode=yes {jump} true` must log in without a question",
        f"that host must reach {machine.private} port 22, and forward there (AllowTcpForwarding)",
        "name the address that it has on the machines' network, caller=10.0.0.5",
    ]


def _direct_ways(machine: RunningInstance) -> list[str]:
    named = "give the public address of your SSH connections, caller=1.2.3.4 (HTTPS may have another one)"
    if machine.public is None:
        return [
            "that address is private: a VPN, peering or jump=me@bastion must lead there, or jump=ssm (AWS's Session Manager)",
            named,
            "or public_ip=yes in a subnet with an internet gateway",
        ]
    return [
        named,
        "a network that lets no SSH out needs jump=me@bastion, or jump=ssm (AWS's Session Manager)",
    ]
