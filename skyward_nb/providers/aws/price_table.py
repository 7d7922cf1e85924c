"""The types and list prices that this package ships in `types.json`, with their sources.

Types do not change; prices are of the date in the file, and are used if AWS's price list cannot be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from skyward_nb.words.decoding import converted, from_json
from skyward_nb.words.offers import Arch, InstanceType, Price

_FILE = Path(__file__).with_name("types.json")
_Row = tuple[str, Arch, int, float, str | None, int, float, bool, int, float]


class PriceTable(msgspec.Struct, frozen=True, kw_only=True):
    """The file: rows of types with the `types_fields`, regions by family, dollars an hour by region and type."""

    types_source: str
    types_fields: tuple[str, ...]
    types: tuple[_Row, ...]
    regions_source: str
    regions: dict[str, tuple[str, ...]]
    prices_source: str
    prices_date: str
    prices: dict[str, dict[str, float]]


@lru_cache(maxsize=1)
def _table() -> PriceTable:
    return from_json(_FILE.read_bytes(), PriceTable, strict=False)


@lru_cache(maxsize=1)
def shipped_types() -> tuple[InstanceType, ...]:
    """The types with GPUs, and the common ones without, of the table's date."""
    table = _table()
    fields = [dict(zip(table.types_fields, row, strict=True)) for row in table.types]
    return tuple(converted(each, InstanceType) for each in fields)


def shipped_regions(name: str) -> tuple[str, ...]:
    """The regions that had a type with GPUs; none for an unknown type."""
    return _table().regions.get(name.partition(".")[0], ())


def shipped_prices(region: str) -> Mapping[str, Price]:
    """List prices of a region by type; none for a region that the table lacks."""
    table = _table()
    source = f"list price of {table.prices_date}, shipped"
    prices = table.prices.get(region, {})
    return {name: Price(dollars=dollars, source=source) for name, dollars in prices.items()}


def usual_prices() -> Mapping[str, Price]:
    """List prices of the region with most types: their order is taken for the same elsewhere."""
    return shipped_prices("us-east-1")
