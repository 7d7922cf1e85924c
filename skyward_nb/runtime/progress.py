"""`sky.progress` and `sky.log`: loops and metrics that a rank reports while it runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sized
from typing import SupportsFloat, TypeVar

from skyward_nb.runtime import outlet
from skyward_nb.runtime.here import instance_info
from skyward_nb.words.messages import Metric, Progress

T = TypeVar("T")

_PERIOD = 0.1
_bars = itertools.count(1)
_steps = itertools.count()


def progress(items: Iterable[T], *, total: int | None = None, desc: str = "") -> Iterator[T]:
    """Yield from `items` and show how far this rank is, at most ten times a second.

    `total` is the number of items where `len(items)` does not tell it. Outside a pool nothing
    is shown.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    rank = instance_info().rank
    bar, started, shown, done = next(_bars), time.perf_counter(), 0.0, 0
    outlet.emit(Progress(rank, bar, 0, total, desc, 0.0))
    try:
        for item in items:
            yield item
            done += 1
            now = time.perf_counter()
            if now - shown >= _PERIOD:
                shown = now
                outlet.emit(Progress(rank, bar, done, total, desc, now - started))
    finally:
        outlet.emit(Progress(rank, bar, done, total, desc, time.perf_counter() - started))


def log(*, step: int | None = None, **metrics: SupportsFloat) -> None:
    """Report metrics of this rank at `step` (counted from 0 when left out).

    Each value is anything `float()` takes, such as a number or a tensor of one element;
    raises TypeError naming the metric otherwise. Outside a pool nothing is shown.
    """
    values: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            # Arrays and tensors of one element give it by `item`, gradients or not.
            item = getattr(value, "item", None)
            values[name] = float(value if item is None else item())
        except (TypeError, ValueError, RuntimeError) as error:
            kind = type(value).__name__
            raise TypeError(f"sky.log({name}=...): a {kind} is not one number") from error
    number = next(_steps) if step is None else step
    outlet.emit(Metric(instance_info().rank, number, values))
