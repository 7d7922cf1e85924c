"""Addresses that the internet cannot reach: a pool listens at no others."""

from __future__ import annotations

import ipaddress
import socket

_V4 = "127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 100.64.0.0/10"
_V6 = "::1/128 fc00::/7"
_PRIVATE = [ipaddress.ip_network(network) for network in f"{_V4} {_V6}".split()]
"""RFC 1918, 3927, 6598, 4193, and loopback; not IPv6 link-local, which is ambiguous without an interface."""


def is_private(host: str) -> bool:
    """Whether it is an address that the internet cannot reach."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False  # a name, or an address with a zone
    return any(address in network for network in _PRIVATE if network.version == address.version)


def family_of(host: str) -> socket.AddressFamily:
    """The socket family of an address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET
