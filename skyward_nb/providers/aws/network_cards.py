"""Messages about machines with several network cards. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from skyward_nb.words.offers import InstanceType
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

_ADDRESSES = 5
_LIMIT = f"of which an account has {_ADDRESSES} in each region unless it was given more (quota L-0263D0A3)"
_WAY_ROUND = "public_ip=no with jump= or a VPN needs none"
"""Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/elastic-ip-addresses-eip.html."""


def card_remarks(spec: PoolSpec, types: Iterable[InstanceType]) -> tuple[str, ...]:
    """Remarks on machines whose network cards need more Elastic IP addresses than an account has by itself."""
    access = spec.aws or AWSAccess()
    is_private = access.public_ip is False or (access.subnet and not access.public_ip)
    few = spec.nodes <= _ADDRESSES and access.warm is None
    if few or access.placement == "no" or is_private:
        return ()
    several = [each for each in types if each.efa and each.network_cards > 1]
    if not several:
        return ()
    if access.warm is not None:
        return tuple(map(one_card_if_warm, several))
    names = ", ".join(each.name for each in several)
    return (
        f"machines with several network cards ({names}) take an Elastic IP address each, {_LIMIT}: without it they use "
        f"one card. {_WAY_ROUND}",
    )


def fewer_cards(kind: InstanceType) -> str:
    """Why machines of a type use one of their cards."""
    return (
        f"each {kind.name} uses 1 of its {kind.network_cards} network cards, as the account may have no more Elastic IP "
        f"addresses there ({_LIMIT}): {_WAY_ROUND}"
    )


def one_card_if_warm(kind: InstanceType) -> str:
    """Why machines of a type that are stopped at the pool's end use one of their cards."""
    return (
        f"each {kind.name} uses 1 of its {kind.network_cards} network cards: for all, with a public address, it needs an "
        f"Elastic IP address, and with warm= it has none. {_WAY_ROUND[0].upper()}{_WAY_ROUND[1:]}"
    )
