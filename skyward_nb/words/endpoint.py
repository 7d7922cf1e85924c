"""How the machines of a pool find addresses at which they reach one another. Plain data."""

from __future__ import annotations

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    """An address of a machine at which it listens for the others, on `port`, by its own `number`."""

    number: int
    address: str
    interface: str
    port: int
