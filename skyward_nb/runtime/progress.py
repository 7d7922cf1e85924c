"""`sky.progress` and `sky.log`: loops and metrics that a rank reports while it runs.

A `ProgressBar` is one loop as it is shown; what hooks into other packages' loops uses it, too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, SupportsFloat, TypeVar

from skyward_nb.protocol.events import Metric, Progress
from skyward_nb.runtime import event_sink
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.late_flusher import LateFlusher

T = TypeVar("T")

_PERIOD = 0.1
_LONGEST = 200
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FAR = 2**63
_numbers = itertools.count(1)
_MOST_RUNS = 8
_logged: dict[int, _Logged] = {}
"""By run; of the last few that logged, as threads of earlier ones go on beside the present one."""
_going: list[ProgressBar] = []


class ProgressBar:
    """One loop as it is shown; tells the pool at most ten times a second, and its end.

    What is held back by that is told by another thread if the loop does not go on.
    `total` is None where it is not known. One that is begun while others of its thread go on is
    within them; those of several threads stand side by side.
    """

    def __init__(
        self, total: float | None, text: str = "", *, unit: str = "it", keeping: bool = True
    ) -> None:
        self.total: float | None = total
        self.text: str = text
        self.note: str = ""
        self.done: float = 0
        self.skipped: float = 0
        """Of those, what was done before it began."""
        self._unit = unit
        self._keeping = keeping
        self._number = next(_numbers)
        self._run = event_sink.run()
        _going[:] = [bar for bar in _going if bar._run == self._run]
        self._thread = threading.get_ident()
        around = (bar for bar in _going if bar._thread == self._thread)
        self._level = max((bar._level + 1 for bar in around), default=0)
        self._began = self._told = time.perf_counter()
        self._over = False
        self._done_told: float = 0
        # The last event must have the last values, whichever thread tells it.
        self._order = threading.RLock()
        self._process = os.getpid()
        # Looked up once, as it is asked at every step.
        self._must_wake: Callable[[], bool] = (
            _flusher.is_asleep if event_sink.is_connected() else bool
        )
        _going.append(self)
        self._tell(self._began)

    def advance(self, done: float) -> None:
        """So many items are done."""
        self.done = done
        now = time.perf_counter()
        if now - self._told >= _PERIOD and not self._over:
            self._told = now
            self._tell(now)
        elif self._must_wake():
            _flusher.wake()

    def renew(self) -> None:
        """Tell now, as after a change of `total`, `text` or `note`."""
        if not self._over:
            self._tell(time.perf_counter())

    def flush(self) -> bool:
        """Tell what was held back if that is a while ago; whether anything still is."""
        with self._order:
            # Numbers of other packages are counted in their own thread alone.
            is_plain = type(self.done) in (int, float)
            if self._over or not is_plain or self.done == self._done_told:
                return False
            now = time.perf_counter()
            if now - self._told >= _PERIOD:
                self._told = now
                self._tell(now)
            return self.done != self._done_told

    def end(self) -> None:
        """It will not go on; safe to call twice."""
        if not self._over:
            self._over = True
            if self in _going:
                _going.remove(self)
            self._tell(time.perf_counter())

    def _tell(self, now: float) -> None:
        if os.getpid() != self._process:
            return  # a forked child, which nobody hears, has our lock as it was
        with self._order:
            done = self._done_told = self.done
            event_sink.emit(
                Progress(
                    instance_info().pool_rank,
                    self._number,
                    number(done) or 0,
                    None if self.total is None else number(self.total),
                    words(self.text),
                    now - self._began,
                    self._level,
                    words(self._unit),
                    words(self.note),
                    self._over,
                    self._keeping,
                    self._run,
                    number(self.skipped) or 0,
                )
            )


def _flush_all() -> bool:
    """Tell what all bars hold back; whether any still does."""
    left = [bar for bar in list(_going) if bar.flush()]
    return bool(left)


_flusher = LateFlusher(_flush_all)


def number(value: Any) -> float | None:
    """A count as it can travel, whatever kind of number it is; None where it counts nothing."""
    try:
        found = operator.index(value)
    except TypeError:
        found = float(value)
    if abs(found) < _FAR:
        return found
    with contextlib.suppress(OverflowError):
        if math.isfinite(found := float(found)):
            return found
    return None


def one_number(value: Any) -> float:
    """The number that a value is; raises TypeError, ValueError, RuntimeError or OverflowError."""
    # Arrays and tensors of one element give it by `item`, gradients or not.
    item = getattr(value, "item", None)
    return float(value if item is None else item())


def words(text: object) -> str:
    """Text as it can be shown beside a bar: one line, no escapes, not too long."""
    line = " ".join(_ESCAPES.sub("", str(text)).split())
    line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


_name = functools.lru_cache(maxsize=1024)(words)


def progress(items: Iterable[T], *, total: int | None = None, desc: str = "") -> Iterator[T]:
    """Yield from `items` and show how far this rank is, at most ten times a second.

    `total` is the number of items where `len(items)` does not tell it. Outside a pool nothing
    is shown.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if total is not None:
        try:
            number(total)
        except (TypeError, ValueError) as error:
            kind = type(total).__name__
            raise TypeError(
                f"sky.progress(total=...): a {kind} is not a number of items"
            ) from error
    bar = ProgressBar(total, desc or "")
    done = 0
    try:
        for item in items:
            yield item
            done += 1
            bar.advance(done)
    finally:
        bar.end()


class _Logged:
    """What a run has logged: how often each set of names, and the names that `log` itself reported."""

    def __init__(self) -> None:
        self.steps: dict[frozenset[str], int] = {}
        self.names: set[str] = set()
        self.last = next(_numbers)
        """When it logged last; a later one is larger."""


def _logged_in(run: int) -> _Logged:
    """What a run has logged; those that have not logged for long are forgotten, without a lock, as ranks fork."""
    found = _logged.get(run) or _logged.setdefault(run, _Logged())
    found.last = next(_numbers)
    if len(_logged) > _MOST_RUNS:
        runs = sorted((each.last, old) for old, each in tuple(_logged.items()))
        for _, old in runs[:-_MOST_RUNS]:
            _logged.pop(old, None)
    return found


def _next_step(run: int, values: Mapping[str, float]) -> int:
    """How often these metrics were logged before; those that are logged apart are counted apart."""
    steps, names = _logged_in(run).steps, frozenset(values)
    step = steps.get(names, 0)
    steps[names] = step + 1
    return step


def log_beside_a_bar(values: Mapping[str, float]) -> None:
    """Report what is said beside a bar, but for metrics of the run that `log` reports."""
    run = event_sink.run()
    own = {name: value for name, value in values.items() if name not in _logged_in(run).names}
    if own:
        event_sink.emit(Metric(instance_info().pool_rank, _next_step(run, own), own, run))


def log(*, step: int | None = None, **metrics: SupportsFloat) -> None:
    """Report metrics of this rank at `step`; without it, the calls of each run are counted from 0.

    Each value is anything `float()` takes, such as a number or a tensor of one element;
    raises TypeError naming the metric otherwise. Outside a pool nothing is shown.
    """
    values: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            values[_name(name)] = one_number(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            kind = type(value).__name__
            raise TypeError(f"sky.log({name}=...): a {kind} is not one number") from error
    run = event_sink.run()
    if step is not None:
        try:
            step = int(step)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"sky.log(step={step!r}): not a whole number") from error
        if abs(step) >= _FAR:
            raise ValueError(f"sky.log(step=...): {step:.3g} is beyond 64 bits")
    _logged_in(run).names.update(values)
    if step is None:
        step = _next_step(run, values)
    event_sink.emit(Metric(instance_info().pool_rank, step, values, run))
