"""What is wanted of a machine, and what can be rented: needs, types, prices, offers. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

Arch = Literal["x86_64", "arm64"]
Spot = Literal["no", "yes", "auto"]
OnPreempt = Literal["tell", "replace"]


class Need(msgspec.Struct, frozen=True):
    """So much of something, or with `more` at least so much: `8`, `8+`."""

    amount: float
    more: bool = False

    def met_by(self, have: float) -> bool:
        """Whether a machine that has so much fits."""
        return have >= self.amount if self.more else have == self.amount

    def __str__(self) -> str:
        return f"{self.amount:g}{'+' * self.more}"


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """A type of machines; memory in GiB (`gpu_memory`: of each GPU), `nvme` in GB of disks of its own.

    `gpu` has the name of our catalogue, where it is known there.
    """

    name: str
    arch: Arch
    cpus: int
    memory: float
    gpu: str | None = None
    gpus: int = 0
    gpu_memory: float = 0.0
    efa: bool = False
    network_cards: int = 1
    nvme: float = 0.0


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars an hour of one machine, and who says so: `list price of 2026-10-01`."""

    dollars: float
    source: str
    spot: bool = False


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of one type that can be rented in a region; its zones are the best ones first."""

    type: InstanceType
    region: str
    zones: tuple[str, ...] = ()
    spot: bool = False
    price: Price | None = None
