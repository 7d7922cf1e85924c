"""A `ProgressBar` as the loops of other packages need it, and their values as numbers and words."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from skyward_nb.runtime import event_sink
from skyward_nb.runtime.hooks import careful, is_shown
from skyward_nb.runtime.progress import ProgressBar, _going, log, one_number, words

PERIOD = 0.1
_DUE = 0.08  # packages keep a period of their own, and should not just miss ours


class Loop(ProgressBar):
    """A bar that can begin anew, and that several threads may tell of."""

    done: float
    skipped: float
    note: str

    def __init__(
        self,
        total: float | None,
        text: str = "",
        *,
        unit: str = "it",
        keeping: bool = True,
        done: float = 0,
        skipped: float = 0,
        note: str = "",
    ) -> None:
        self._complete = False
        super().__init__(total, text, unit=unit, keeping=keeping)
        self.done, self.skipped = done, skipped
        self.note = note
        self._complete = True
        try:
            self.tell()
        except Exception:
            with contextlib.suppress(Exception):
                self.end()
            raise

    @property
    def run(self) -> int:
        """The run that it belongs to."""
        return self._run

    def is_due(self) -> bool:
        """Whether it is time to tell again."""
        return time.perf_counter() - self._told >= _DUE

    def restart(self, total: float | None, text: str) -> None:
        """Begin anew, as the next of several loops in its place."""
        self.total = total
        self.text = text
        self.note = ""
        self.done = self.skipped = 0
        self.be_as_old_as(0.0)
        if self.is_due():
            self.tell()

    def be_as_old_as(self, seconds: float) -> None:
        """Have begun so many seconds ago."""
        self._began = time.perf_counter() - seconds

    def be_in(self, unit: str, *, keeping: bool) -> None:
        """Count in this unit, and be worth keeping once over or not."""
        self._unit, self._keeping = unit, keeping

    def tell(self) -> None:
        """Tell now, and not again for a while."""
        self._told = time.perf_counter()
        self.renew()

    def _tell(self, now: float) -> None:
        if self._complete and is_shown():
            super()._tell(now)


def settle(*, closing: bool) -> None:
    """Have every loop of this run that goes on tell how far it is; or end all there are."""
    for loop in list(_going):
        if isinstance(loop, Loop) and (closing or loop.run == event_sink.run()):
            with careful("skyward_nb"):
                loop.end() if closing else loop.tell()


def numbers_in(logs: Mapping[str, Any]) -> dict[str, float]:
    """The values of a package's logs that are single numbers."""
    found: dict[str, float] = {}
    for name, value in logs.items():
        try:
            found[str(name)] = one_number(value)
        except (TypeError, ValueError, RuntimeError):
            continue  # a text or an array has no place on a curve
    return found


def note_of(values: Mapping[str, float]) -> str:
    """Values in a few words, as tqdm puts them: `loss=0.25, lr=0.001`."""
    return words(", ".join(f"{name}={value:.4g}" for name, value in values.items()))


def report(values: Mapping[str, float], step: int) -> None:
    """Report values as `sky.log` does."""
    # What `log` calls its own argument cannot be a metric's name.
    named = {name: value for name, value in values.items() if name != "step"}
    if named:
        log(step=step, **named)
