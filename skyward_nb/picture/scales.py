"""Scales of a picture: where values lie between two ends, round ticks, and short numbers. Pure."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# Values whose span is a smaller part of them than this are told apart by their distance alone.
_CLOSE = 1e-5
# Below it 10**k is no longer exact enough to step by.
_LEAST_SPAN = 1e-290


@dataclass(frozen=True)
class Tick:
    """A value worth a label: `part` of the way from the low end (0) to the high one (1)."""

    part: float
    text: str


@dataclass(frozen=True)
class Scale:
    """The way from `low` to `high`, both finite; by powers of ten if `is_log` (both above 0)."""

    low: float
    high: float
    is_log: bool = False

    def parts(self, values: Sequence[float]) -> list[float]:
        """Where values lie: 0 is the low end, 1 the high one; a scale of one value has all at ½."""
        low, high = self.low, self.high
        if low == high:
            return [0.5] * len(values)
        if self.is_log:
            low, span = math.log10(low), math.log10(high) - math.log10(low)
            # Neighbouring floats can have the same logarithm.
            return [(math.log10(value) - low) / (span or 1) for value in values]
        span = high - low
        if math.isinf(span):
            low, span = low / 2, high / 2 - low / 2
            return [(value / 2 - low) / span for value in values]
        return [(value - low) / span for value in values]

    def ends(self) -> list[Tick]:
        """The two ends; one tick if they are one value."""
        if self.low == self.high:
            return [Tick(0.5, compact(self.low, 6))]
        if self._is_close():
            far = Tick(1, f"+{compact(self.high - self.low)}")
            return [Tick(0, compact(self.low, 6)), far]
        span = min(self.high - self.low, sys.float_info.max)
        digits = 3 if self.is_log else max(3, self._digits(span) + 1)
        like = None if self.is_log else self._largest()
        return [
            Tick(0, compact(self.low, digits, like=like)),
            Tick(1, compact(self.high, digits, like=like)),
        ]

    def ticks(self, most: int) -> list[Tick]:
        """About `most` round values within the scale: steps of 1, 2 or 5, or decades."""
        if not self.high - self.low > _LEAST_SPAN or math.isinf(self.high - self.low):
            return self._decades(most) if self.is_log and self.high > self.low else []
        if self.is_log and self.high / self.low >= 10:
            return self._decades(most)
        step = nice_step(self.high - self.low, most)
        if isinstance(self.low, int) and isinstance(self.high, int):
            step = max(1, int(step))
        if self._is_close():
            count = int((self.high - self.low) / step)
            return [
                Tick(i * step / (self.high - self.low), f"+{compact(i * step)}")
                for i in range(1, count + 1)
            ]
        first = math.ceil(self.low / step)
        values = [i * step for i in range(first, math.floor(self.high / step) + 1)]
        values = [value for value in values if self.low <= value <= self.high]
        digits, like = self._digits(step), self._largest()
        texts = [compact(value, digits, like=like) for value in values]
        return [Tick(part, text) for part, text in zip(self.parts(values), texts, strict=True)]

    def _decades(self, most: int) -> list[Tick]:
        """Powers of ten, every n-th if they are many, with 2 and 5 of each if they are few."""
        low, high = math.log10(self.low), math.log10(self.high)
        first, last = math.ceil(low), math.floor(high)
        every = max(1, math.ceil((last - first + 1) / most))
        powers = range(-(-first // every) * every, last + 1, every)
        # As text, for 10**-320 is no power of ten any more.
        ticks = [
            Tick((power - low) / (high - low), compact(float(f"1e{power}"), 1)) for power in powers
        ]
        if len(ticks) * 2 < most:
            for power in range(first - 1, last + 1):
                values = [float(f"{digit}e{power}") for digit in (2, 5)]
                within = [value for value in values if self.low < value < self.high]
                parts = self.parts(within)
                ticks += [Tick(part, compact(v, 1)) for part, v in zip(parts, within, strict=True)]
        return [tick for tick in ticks if 0 <= tick.part <= 1]

    def _is_close(self) -> bool:
        """Whether the ends differ too little for numbers that tell them apart to be short."""
        return self.high - self.low < _CLOSE * self._largest()

    def _largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    def _digits(self, step: float) -> int:
        """How many digits tell values apart that differ by `step`."""
        return max(1, math.floor(math.log10(self._largest())) - math.floor(math.log10(step)) + 1)


def nice_step(span: float, most: int) -> float:
    """The least of 1, 2 and 5 times a power of ten that divides `span` into `most` parts or fewer."""
    raw = span / most
    power = math.floor(math.log10(raw))
    for factor in (1, 2, 5, 10):
        step = factor * 10**power if power >= 0 else factor / 10**-power
        if step >= raw:
            return step
    return 10.0 ** (power + 1)


def compact(value: float, digits: int = 3, *, like: float | None = None) -> str:
    """A number in few characters, with `digits` digits that count: `0.25`, `1e-3`, `10k`, `3e9`.

    `like` is the largest number beside it, so that a column of numbers is written one way.
    """
    size = abs(value)
    like = size if like is None else like
    if size == 0:
        return "0"
    if size >= 1e9 or size < (1e-2 if like < 1e-2 else 1e-3):
        number, power = f"{value:.{digits - 1}e}".split("e")
        return f"{_bare(number)}e{int(power)}"
    unit = ""
    if size >= 1e6:
        value, unit = value / 1e6, "M"
    elif size >= 1e3 and like >= 1e4:
        value, unit = value / 1e3, "k"
    whole = math.floor(math.log10(abs(value)))
    return f"{_bare(f'{value:.{max(0, digits - 1 - whole)}f}')}{unit}"


def _bare(number: str) -> str:
    """A decimal number without zeros at its end."""
    return number.rstrip("0").rstrip(".") if "." in number else number
