"""Needs, offers and bills: requirements of machines, machines for rent, and costs. Pure."""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from skyward_nb.words.errors import OptionError
from skyward_nb.words.mig import MigModel, card_model
from skyward_nb.words.units import clock

_WARN = 0.8
"""The part of `max_cost` from which on the user is warned."""
_BEFORE = 90.0
"""Seconds before the end of a budget when machines may end for it."""

Arch = Literal["x86_64", "arm64"]
Spot = Literal["no", "yes", "auto", "cheapest"]


def spell_dollars(dollars: float) -> str:
    """Dollars as a person reads them: `$21.96`, `$0.084`."""
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.3f}"


class Need(msgspec.Struct, frozen=True):
    """An exact amount, or with `more` a least amount: `8`, `8+`."""

    amount: float
    more: bool = False

    def met_by(self, have: float) -> bool:
        """Whether this amount fits."""
        return have >= self.amount if self.more else have == self.amount

    def __str__(self) -> str:
        return f"{self.amount:g}{'+' * self.more}"


_NEED = re.compile(r"(\d+(?:\.\d+)?)\s*(?:g|gb|gib)?(\+?)", re.IGNORECASE)


def parse_need(option: str, text: str) -> Need:
    """Read `8` or `8+`, and for memory `32GB+`; raises `OptionError` for anything else."""
    found = _NEED.fullmatch(text.strip())
    is_plain = found is not None and (option == "memory" or text.strip()[-1] in "0123456789+")
    if found is None or not is_plain or not float(found[1]):
        what = "GB" if option == "memory" else "of them"
        raise OptionError(
            option,
            f"{option}={text}: write {option}=8+ for 8 {what} or more, {option}=8 for just 8",
        )
    return Need(float(found[1]), more=bool(found[2]))


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """A type of machines; memory in GiB (`gpu_memory`: of each GPU), `nvme` in GB of disks of its own.

    `gpu` is the catalogue's name, if the catalogue has it; each GPU is `gpu_part` of a whole one.
    """

    name: str
    arch: Arch
    cpus: int
    memory: float
    gpu: str | None = None
    gpus: int = 0
    gpu_memory: float = 0.0
    gpu_part: float = 1.0
    efa: bool = False
    network_cards: int = 1
    nvme: float = 0.0

    @property
    def mig(self) -> MigModel | None:
        """Its GPUs as MIG cuts them; None without MIG."""
        return None if self.gpu is None else card_model(self.gpu, self.gpu_memory)


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars an hour of one machine, and the source: `list price of 2026-10-01`."""

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

    def hourly(self, nodes: int) -> float | None:
        """Dollars an hour of so many machines; None without a price."""
        return None if self.price is None else self.price.dollars * nodes

    def lasts(self, dollars: float, nodes: int) -> float | None:
        """Seconds for which these dollars pay for so many machines; None without a price."""
        rate = self.hourly(nodes)
        if rate is None:
            return None
        return 3600 * dollars / rate if rate else math.inf


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """The offers for the `nodes` of a pool, in the order in which they are tried, and remarks."""

    nodes: int
    offers: tuple[Offer, ...]
    remarks: tuple[str, ...] = ()

    @property
    def first(self) -> float | None:
        """Dollars an hour of all nodes by the first offer; None without its price."""
        return self.offers[0].hourly(self.nodes)

    @property
    def most(self) -> float | None:
        """The most dollars an hour of all offers; None without the price of one."""
        prices = [offer.hourly(self.nodes) for offer in self.offers]
        known = [price for price in prices if price is not None]
        return max(known) if len(known) == len(prices) else None


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a pool's machines: `dollars` an hour of all since `began`, in seconds since 1970.

    `what` names the machines, `source` is that of the price; `dollars` is None without one. `before` was spent
    earlier on other machines, from `first` on; `max_cost` is the limit of the total.
    """

    dollars: float | None
    began: float
    what: str = ""
    source: str = ""
    before: float = 0.0
    max_cost: float | None = None
    first: float | None = None

    @property
    def since(self) -> float:
        """The time of the first cost, in seconds since 1970."""
        return self.began if self.first is None else self.first

    def spent(self, now: float) -> float | None:
        """Dollars so far; None without a price."""
        if self.dollars is None:
            return None
        return self.before + self.dollars * max(0.0, now - self.began) / 3600

    def rate_words(self) -> str:
        """The price of an hour in words; "" if it is free."""
        if self.dollars == 0:
            return ""
        return "price unknown" if self.dollars is None else f"{spell_dollars(self.dollars)} / h"

    def words(self, now: float) -> str:
        """The price of an hour and the cost so far, in words."""
        spent = self.spent(now)
        if spent is not None and not self.rate_words():
            return f"{spell_dollars(spent)} spent"
        so_far = "" if spent is None else f", {spell_dollars(spent)} so far"
        return f"{self.rate_words()}{so_far}"

    def warning(self, now: float) -> str:
        """The warning once most of `max_cost` is spent; "" before, and without a limit."""
        spent, end = self.spent(now), self.ends()
        if self.max_cost is None or spent is None or end is None or spent < _WARN * self.max_cost:
            return ""
        left = max(0.0, end - now)
        return (
            f"{spell_dollars(spent)} of max_cost={self.max_cost:g} is spent: the machines end in "
            f"{clock(left)}; fetch what you need with %sky pull"
        )

    def is_over(self, now: float) -> bool:
        """Whether machines that are gone `now` may have ended for `max_cost`, shortly before its end."""
        end = self.ends()
        return end is not None and now >= end - _BEFORE

    def ends(self) -> float | None:
        """When `max_cost` is reached, in seconds since 1970; None if never, or without a price."""
        if self.max_cost is None or not self.dollars:
            return None
        return self.began + 3600 * max(0.0, self.max_cost - self.before) / self.dollars
