"""Keras 3 and tf_keras: `fit`, `evaluate` and `predict` as bars, an epoch's logs as metrics at that epoch.

Keras's own callback that draws is patched, so that `verbose=0` turns bars off.
With `verbose=2` Keras's line per epoch stays, and the bar counts epochs alone. Its `Progbar`, which
people use in loops of their own, is a bar, too.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from skyward_nb.compat.keras_private import mean_values
from skyward_nb.runtime.hooks import Changes, careful, is_shown
from skyward_nb.runtime.loops import Loop, note_of, numbers_in, report
from skyward_nb.runtime.progress import words

_LOOPS = "_skyward_loops"
_STEPS, _VALIDATION = "step", "validation"

Logs = Mapping[str, Any] | None


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch `ProgbarLogger`, or `Progbar`."""
    if hasattr(module, "Progbar") and not hasattr(module, "ProgbarLogger"):
        changes.put(module.Progbar, _LOOPS, None)
        changes.put(module.Progbar, "update", _update(vars(module.Progbar)["update"]))
        return
    logger: Any = module.ProgbarLogger
    changes.put(logger, _LOOPS, None)
    for name in (
        "on_train_begin",
        "on_train_end",
        "on_test_begin",
        "on_test_end",
        "on_predict_begin",
        "on_predict_end",
        "on_epoch_begin",
        "on_epoch_end",
        "on_train_batch_end",
        "on_test_batch_end",
        "on_predict_batch_end",
    ):
        changes.put(logger, name, _instead(name, getattr(logger, name)))


def _instead(name: str, draw: Callable[..., None]) -> Callable[..., None]:
    """A method of the logger that tells of a loop where Keras would draw."""

    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        loops = self._skyward_loops
        if loops is None and name.endswith("_begin") and is_shown():
            loops = self._skyward_loops = _Loops(self)
            # A `fit` that ends by an exception does not say so.
            weakref.finalize(self, loops.end).atexit = False
        if loops is None or self.verbose != 1:
            draw(self, *args, **kwargs)
        if loops is not None and is_shown():
            with careful("keras"):
                getattr(loops, name)(*args, **kwargs)

    return method


def _update(draw: Callable[..., None]) -> Callable[..., None]:
    """`Progbar.update`, which goes on averaging what it is given."""

    def update(self: Any, current: int, values: Any = None, finalize: bool | None = None) -> None:
        if self.verbose != 1 or not is_shown():
            draw(self, current, values, finalize)
            return
        self.verbose = 0
        try:
            draw(self, current, values, finalize)
        finally:
            self.verbose = 1
        with careful("keras"):
            _advance(self, current, finalize)

    return update


def _advance(bar: Any, current: int, finalize: bool | None) -> None:
    if (loop := bar._skyward_loops) is None:
        loop = bar._skyward_loops = Loop(bar.target, unit=words(bar.unit_name))
        weakref.finalize(bar, loop.end).atexit = False
    over = finalize or (finalize is None and bar.target is not None and current >= bar.target)
    if over or loop.is_due():
        loop.note = note_of(numbers_in(mean_values(bar)))
    loop.advance(current)
    if over:
        loop.end()


class _Loops:
    """The loops of one call: epochs, and in each of them steps, then those of its validation.

    Steps of every epoch are shown in one bar. Some backends tell of them from other threads, and
    of the last ones when the next loop has begun already.
    """

    def __init__(self, logger: Any) -> None:
        self._is_detailed = logger.verbose == 1
        self._epochs: int = logger.epochs
        self._totals: dict[str, int | None] = dict.fromkeys(
            (_STEPS, "evaluate", "predict"), logger.target
        )
        self._done: dict[str, int] = {}
        self._outer: Loop | None = None
        self._inner: Loop | None = None
        self._lock = threading.Lock()

    def end(self) -> None:
        """End all bars that are still open."""
        for loop in (self._inner, self._outer):
            if loop is not None:
                loop.end()

    # ── fit ─────────────────────────────────────────────────────────────────────────────

    def on_train_begin(self, logs: Logs = None) -> None:
        self._outer = Loop(self._epochs, "fit", unit="epoch")

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if self._outer is not None and epoch > self._outer.done:
            # It goes on from an epoch that is not the first.
            self._outer.skipped += epoch - self._outer.done
            self._outer.advance(epoch)
        self._begin(_STEPS)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._advance(_STEPS, batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        values = numbers_in(logs or {})
        self._totals[_STEPS] = self._totals[_STEPS] or self._done.get(_STEPS)
        if self._outer is not None:
            self._outer.note = note_of(values)
            self._outer.advance(epoch + 1)
        report(values, epoch)

    def on_train_end(self, logs: Logs = None) -> None:
        self.end()

    # ── evaluate, predict ───────────────────────────────────────────────────────────────

    def on_test_begin(self, logs: Logs = None) -> None:
        self._begin(self._testing)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._advance(self._testing, batch, logs)

    def on_test_end(self, logs: Logs = None) -> None:
        self._totals[_VALIDATION] = self._done.get(_VALIDATION)
        if self._outer is None:
            self._end_with(logs)

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._begin("predict")

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._advance("predict", batch, None)

    def on_predict_end(self, logs: Logs = None) -> None:
        self._end_with(None)

    # ── steps ───────────────────────────────────────────────────────────────────────────

    @property
    def _testing(self) -> str:
        return "evaluate" if self._outer is None else _VALIDATION

    def _begin(self, kind: str) -> None:
        if not self._is_detailed:
            return
        with self._lock:
            self._done[kind] = 0
            total = self._totals.get(kind)
            if self._inner is None:
                self._inner = Loop(total, kind, unit="step", keeping=self._outer is None)
            else:
                self._inner.restart(total, kind)

    def _advance(self, kind: str, batch: int, logs: Logs) -> None:
        with self._lock:
            done = self._done[kind] = max(self._done.get(kind, 0), batch + 1)
            loop = self._inner
            if loop is None or loop.text != kind:
                return
            if logs and loop.is_due():
                loop.note = note_of(numbers_in(logs))
            loop.advance(done)

    def _end_with(self, logs: Logs) -> None:
        if self._inner is not None:
            self._inner.note = note_of(numbers_in(logs or {}))
        self.end()
