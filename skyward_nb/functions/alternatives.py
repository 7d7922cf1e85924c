"""Which of several specs a pool is started with: in their order, or by price; what cannot be had leads to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from skyward_nb.pool.pool import Pool
from skyward_nb.reports.cost_approval import dry_lines, quote_for
from skyward_nb.reports.resource_choices import CANNOT_BE_HAD
from skyward_nb.show.display import RunDisplay
from skyward_nb.words.errors import OptionError, SkyError, StartError
from skyward_nb.words.offers import spell_dollars
from skyward_nb.words.spec import PoolSpec

Selection = Literal["cheapest", "first"]


def check_selection(selection: str | None, specs: Sequence[object]) -> None:
    """Raise `OptionError` for another selection than there is, or for one without anything to choose from."""
    if selection not in (None, "cheapest", "first"):
        raise OptionError("selection", f"selection={selection!r}: there is 'cheapest' and 'first'")
    if selection is not None and not specs:
        raise OptionError(
            "selection", "selection= chooses from several sky.Spec(...): give some in front"
        )


@dataclass(frozen=True)
class Alternative:
    """One of the specs, its number, and its price: dollars an hour of all nodes, infinite if it is unknown."""

    number: int
    spec: PoolSpec
    price: float = 0.0

    def __str__(self) -> str:
        costs = "price unknown" if math.isinf(self.price) else f"{spell_dollars(self.price)} / h"
        return f"sky.Spec number {self.number}: {self.spec}, {costs if self.price else 'free'}"


def first_that_starts(
    specs: Sequence[PoolSpec],
    selection: Selection,
    display: RunDisplay,
    start: Callable[[PoolSpec, RunDisplay], Pool],
) -> Pool:
    """The pool of the first spec that can be had; `display` tells why those before could not.

    Raises what `start` raises where that is no lack of machines, and `StartError` where none can be had.
    """
    if len(specs) == 1:
        return start(specs[0], display)
    refused: list[str] = []

    def refuse(number: int, error: SkyError) -> None:
        refused.append(f"sky.Spec number {number}: {error.message}")
        display.note(" · ".join(refused[-1].splitlines()[:2]))

    for each in _ordered(specs, selection, refuse):
        try:
            return start(each.spec, display)
        except CANNOT_BE_HAD as error:
            refuse(each.number, error)
    raise StartError(specs[0].name, f"none of {len(specs)} sky.Spec can be had", "\n".join(refused))


def _ordered(
    specs: Sequence[PoolSpec], selection: Selection, refuse: Callable[[int, SkyError], None]
) -> Iterator[Alternative]:
    """The specs in the order in which they are tried; prices are asked for where they order them."""
    if selection == "first":
        yield from (Alternative(number, spec) for number, spec in enumerate(specs, 1))
        return
    known: list[Alternative] = []
    for number, spec in enumerate(specs, 1):
        try:
            known.append(Alternative(number, spec, _price(spec)))
        except CANNOT_BE_HAD as error:
            refuse(number, error)
    yield from sorted(known, key=lambda each: each.price)


def _price(spec: PoolSpec) -> float:
    quote = quote_for(spec)
    first = 0.0 if quote is None else quote.first
    return math.inf if first is None else first


def dry_run_lines(specs: Sequence[PoolSpec], selection: Selection) -> Iterator[str]:
    """What would be tried in which order, with the offers of each."""
    if len(specs) == 1:
        yield f"a pool would be started: {specs[0]}"
        yield from dry_lines(specs[0])
        return
    refused: list[str] = []
    ordered = _ordered(
        specs, selection, lambda n, e: refused.append(f"sky.Spec number {n}: {e.message}")
    )
    for each in ordered:
        yield (
            str(each) if selection == "cheapest" else f"sky.Spec number {each.number}: {each.spec}"
        )
        try:
            yield from dry_lines(each.spec)
        except CANNOT_BE_HAD as error:
            yield f"cannot be had: {error.message}"
    yield from (f"cannot be had: {each}" for each in refused)
