"""What keeps a machine from answering a login at all, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from skyward_nb.providers.aws.offer_walk import LARGE
from skyward_nb.providers.aws.rental_records import RentalRecord, RunningInstance

TOLD_AFTER = 60.0
"""Seconds without any answer after which it is told why that may be."""
MOST = 300.0
"""Seconds without any answer after which no more is paid for; a machine's own boot takes one or two minutes."""
LARGE_MOST = 900.0
"""The same of the largest machines."""


def most_for(kind: str) -> float:
    """Seconds without any answer after which a machine of a type is given up."""
    return LARGE_MOST if kind.startswith(LARGE) else MOST


def spell_silence(record: RentalRecord, machines: Sequence[RunningInstance]) -> str:
    """The address, the group, its rule, and what to do."""
    first = machines[0]
    where = f"{first.instance} at {first.address} port 22"
    more = f", and {len(machines) - 1} more" * (len(machines) > 1)
    group = next((each.name for each in record.made if each.kind == "group"), "")
    if group:
        rule = f"the security group {group} lets in {', '.join(record.let_in) or 'nobody'}"
    else:
        rule = "its security_group= is your own: does it let port 22 in from here?"
    ways = [
        "name the address from which SSH leaves here, caller=1.2.3.4 (HTTPS may leave by another one)"
    ]
    if first.public is None:
        way = "that address is private: a VPN, peering or jump=me@bastion must lead there, or jump=ssm (AWS's Session Manager)"
        ways = [way, *ways, "or public_ip=yes in a subnet with an internet gateway"]
    else:
        ways += [
            "a network that lets no SSH out needs jump=me@bastion, or jump=ssm (AWS's Session Manager)"
        ]
    return f"{where}{more} gives no answer; {rule}. What helps: {'; '.join(ways)}"
