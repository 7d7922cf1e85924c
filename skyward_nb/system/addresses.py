"""Addresses that the world at large cannot reach: only there anything of a pool listens."""

from __future__ import annotations

import ipaddress
import socket

_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        (
            "127.0.0.0/8",
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "169.254.0.0/16",
            "100.64.0.0/10",
            "::1/128",
            "fc00::/7",
        ),
    )
)
"""RFC 1918, 3927, 6598, 4193, and loopback. IPv6 link-local ones mean something else on each machine."""


def is_private(host: str) -> bool:
    """Whether it is an address that the world at large cannot reach."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False  # with a zone, or a name
    return any(address in network for network in _PRIVATE if network.version == address.version)


def family_of(host: str) -> socket.AddressFamily:
    """Which kind of sockets an address is for."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET
