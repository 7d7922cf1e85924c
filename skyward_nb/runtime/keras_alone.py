"""Keras 3 with several ranks: which trainers train one model over all of them; where none does, `fit` says so.

On JAX it is one model once a distribution is set, which `framework=keras:jax` does. On torch and TensorFlow
Keras distributes nothing; where that framework joins the ranks, `keras_together` averages gradients in `fit`.
Under `MultiWorkerMirroredStrategy` Keras 3 fails deep inside (keras issue 20585).
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

from skyward_nb.compat.keras_private import RESULTS, strategy_of
from skyward_nb.compat.tensorflow_private import processes_of
from skyward_nb.pickling import reducers
from skyward_nb.runtime import keras_fit
from skyward_nb.runtime.hooks import Changes, is_shown
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.keras_on_jax import own_predictions
from skyward_nb.runtime.keras_settings import averages
from skyward_nb.runtime.keras_together import JointFit
from skyward_nb.runtime.process_group import SummingGroup, entered

_FAILS = (
    "Keras 3's {name} does not work under MultiWorkerMirroredStrategy (keras issue 20585). What "
    "does: fit of a model made without a strategy, which trains one model over all ranks by itself; tf_keras, "
    "the Keras that goes with TensorFlow (import tf_keras as keras); or a loop of your own with strategy.run"
)
_ALONE = (
    "Keras's {name} trains on each rank alone: {count} ranks, {count} different models. To train one on "
    "all of them: {more}"
)
_FIT = "fit in a pool with framework=keras:{backend}"
_told: set[str] = set()


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch the trainer of a backend."""
    backend = module.__name__.split(".")[-2]
    trainer: Any = next(
        value
        for name, value in vars(module).items()
        if name.endswith("Trainer") and getattr(value, "__module__", "") == module.__name__
    )
    for name in ("fit", "evaluate", "predict", "train_on_batch"):
        method = vars(trainer)[name]
        if name == "evaluate":
            method = keras_fit.of_evaluation(method)
        changes.put(trainer, name, _first_of_all(backend, name, method))
    if backend != "jax":
        changes.put(trainer, RESULTS, keras_fit.of_epoch(getattr(trainer, RESULTS)))


def _first_of_all(backend: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, once it is sure that it can do what is expected of it."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not is_shown():
            return method(self, *args, **kwargs)
        strategy = strategy_of(self)
        if strategy is not None and processes_of(strategy) > 1:
            raise RuntimeError(_FAILS.format(name=name))
        if backend == "jax" and _is_distributed():
            if name != "predict":
                return method(self, *args, **kwargs)
            with own_predictions(self):
                return method(self, *args, **kwargs)
        if name in ("fit", "train_on_batch"):
            ranks = _together()
            group = entered.get(backend)
            is_one = name == "fit" and len(ranks) > 1 and isinstance(group, SummingGroup)
            if backend == "tensorflow":
                keras_fit.renew(self, ranks if is_one else ())
            if is_one:
                rank = instance_info().rank
                session = JointFit(self, cast("SummingGroup", group), ranks, rank)
                return keras_fit.fit(method, session, args, kwargs)
            if len(ranks) > 1:
                _warn_once(backend, name, len(ranks))
        return method(self, *args, **kwargs)

    return checked


def _is_distributed() -> bool:
    """Whether Keras has a distribution set."""
    keras = sys.modules.get("keras")
    return keras is not None and keras.distribution.distribution() is not None


def _together() -> tuple[int, ...]:
    """The ranks that train together, this one among them; none where each is to train by itself."""
    if not averages():
        return ()
    info = instance_info()
    together = sorted(reducers.running or range(info.world_size))
    if not info.cluster:
        together = [rank for rank in together if rank // info.workers_per_node == info.node]
    return tuple(together)


def _warn_once(backend: str, name: str, count: int) -> None:
    if backend not in _told:
        _told.add(backend)
        more = _FIT.format(backend=backend)
        warnings.warn(_ALONE.format(name=name, count=count, more=more), UserWarning, stacklevel=3)
