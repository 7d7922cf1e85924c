"""What is told before machines with several network cards are rented. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from skyward_nb.words.aws_access import AWSAccess
from skyward_nb.words.offers import InstanceType
from skyward_nb.words.spec import PoolSpec

_ADDRESSES = 5
"""Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/elastic-ip-addresses-eip.html."""


def card_remarks(spec: PoolSpec, types: Iterable[InstanceType]) -> tuple[str, ...]:
    """Remarks on machines whose network cards need more Elastic IP addresses than an account has by itself."""
    access = spec.aws or AWSAccess()
    is_private = access.public_ip is False or (access.subnet and not access.public_ip)
    if spec.nodes <= _ADDRESSES or access.placement == "no" or is_private:
        return ()
    several = [each for each in types if each.efa and each.network_cards > 1]
    if not several:
        return ()
    names = ", ".join(each.name for each in several)
    return (
        f"machines with several network cards ({names}) take an Elastic IP address each, of which an account has "
        f"{_ADDRESSES} in each region unless it was given more (quota L-0263D0A3): public_ip=no with jump= or a VPN "
        "needs none",
    )
