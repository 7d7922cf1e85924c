"""Keras 3: `fit`, `evaluate` and `predict` as bars, an epoch's logs as metrics at that epoch.

Keras's own callback that draws is patched, so that whoever turned it off (`verbose=0`) is heeded.
With `verbose=2` Keras's line per epoch stays, and the bar counts epochs alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from skyward_nb.runtime.hooks import Changes, careful, is_shown
from skyward_nb.runtime.loops import Loop, note_of, numbers_in, report

_LOOPS = "_skyward_loops"
_STEPS, _VALIDATION = "step", "validation"

Logs = Mapping[str, Any] | None


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch `ProgbarLogger`."""
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
        if loops is not None:
            with careful("keras"):
                getattr(loops, name)(*args, **kwargs)

    return method


class _Loops:
    """The loops of one call: epochs, and in each of them steps, then those of its validation."""

    def __init__(self, logger: Any) -> None:
        self._verbose: int = logger.verbose
        self._epochs: int = logger.epochs
        self._steps: int | None = logger.target
        self._validation: int | None = None
        self._outer: Loop | None = None
        self._inner: Loop | None = None

    def end(self) -> None:
        """Whatever goes on does so no more."""
        for loop in (self._inner, self._outer):
            if loop is not None:
                loop.end()

    # ── fit ─────────────────────────────────────────────────────────────────────────────

    def on_train_begin(self, logs: Logs = None) -> None:
        self._outer = Loop(self._epochs, "fit", unit="epoch")

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if self._outer is not None and epoch > self._outer.done:
            self._outer.advance(epoch)  # it goes on from an epoch that is not the first
        self._begin(self._steps, _STEPS)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._advance(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        values = numbers_in(logs or {})
        if self._inner is not None and self._inner.text == _STEPS:
            self._steps = self._steps or int(self._inner.done)
        if self._outer is not None:
            self._outer.note = note_of(values)
            self._outer.advance(epoch + 1)
        report(values, epoch)

    def on_train_end(self, logs: Logs = None) -> None:
        self.end()

    # ── evaluate, predict ───────────────────────────────────────────────────────────────

    def on_test_begin(self, logs: Logs = None) -> None:
        if self._outer is None:
            self._begin(self._steps, "evaluate")
            return
        if self._inner is not None:
            self._steps = self._steps or int(self._inner.done)
        self._begin(self._validation, _VALIDATION)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._advance(batch, logs)

    def on_test_end(self, logs: Logs = None) -> None:
        if self._outer is None:
            self._end_with(logs)
        elif self._inner is not None:
            self._validation = int(self._inner.done)

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._begin(self._steps, "predict")

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._advance(batch, None)

    def on_predict_end(self, logs: Logs = None) -> None:
        self._end_with(None)

    # ── steps ───────────────────────────────────────────────────────────────────────────

    def _begin(self, total: int | None, text: str) -> None:
        """Steps begin, in the one bar that shows those of every epoch."""
        if self._verbose != 1:
            return
        if self._inner is None:
            self._inner = Loop(total, text, unit="step", keeping=self._outer is None)
        else:
            self._inner.restart(total, text)

    def _advance(self, batch: int, logs: Logs) -> None:
        if (loop := self._inner) is None:
            return
        # Some backends tell of steps from several threads.
        done = max(loop.done, batch + 1)
        if logs and loop.is_due():
            loop.note = note_of(numbers_in(logs))
        loop.advance(done)

    def _end_with(self, logs: Logs) -> None:
        if self._inner is not None:
            self._inner.note = note_of(numbers_in(logs or {}))
        self.end()
