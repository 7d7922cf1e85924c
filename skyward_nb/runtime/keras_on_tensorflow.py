"""Keras 3 on TensorFlow with several ranks: what its `fit` does not do, said when it is called.

Under `MultiWorkerMirroredStrategy` it fails deep inside (keras issue 20585); without one each rank
trains a model of its own.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from skyward_nb.runtime.here import instance_info
from skyward_nb.runtime.hooks import Changes, is_shown
from skyward_nb.wire import foreign

_FAILS = (
    "Keras 3's {name} does not work under MultiWorkerMirroredStrategy (keras issue 20585). What "
    "does: tf_keras, the Keras that goes with TensorFlow (import tf_keras as keras); a loop of "
    "your own with strategy.run; or a pool with framework=keras:jax"
)
_ALONE = (
    "on TensorFlow Keras 3's fit trains on each rank alone: {count} ranks, {count} different models. "
    "To train one on all of them: a pool with framework=keras:jax; tf_keras's fit under "
    "tf.distribute.MultiWorkerMirroredStrategy(); or a loop of your own with strategy.run"
)
_told: set[str] = set()


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch the `Model` of this backend."""
    trainer: Any = module.TensorFlowTrainer
    for name in ("fit", "evaluate", "predict"):
        changes.put(trainer, name, _first_of_all(name, vars(trainer)[name]))


def _first_of_all(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, once it is sure that it can do what is expected of it."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if is_shown():
            strategy = getattr(self, "_distribute_strategy", None)
            if strategy is not None and _workers(strategy) > 1:
                raise RuntimeError(_FAILS.format(name=name))
            if name == "fit":
                _warn_once()
        return method(self, *args, **kwargs)

    return checked


def _workers(strategy: Any) -> int:
    """How many processes a strategy joins."""
    return int(getattr(strategy.extended, "_num_workers", 1))


def _warn_once() -> None:
    count = instance_info().world_size
    together = foreign.running or range(count)
    if len(together) > 1 and _ALONE not in _told:
        _told.add(_ALONE)
        warnings.warn(_ALONE.format(count=len(together)), UserWarning, stacklevel=3)
