"""Keras 3 with several ranks, where it trains a model of its own on each: said when `fit` is called.

On JAX it trains one model over all ranks once a distribution is set, which `framework=keras:jax` does. On
torch and TensorFlow it distributes nothing; under `MultiWorkerMirroredStrategy` it fails deep inside (keras
issue 20585).
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from skyward_nb.compat.keras_private import strategy_of
from skyward_nb.compat.tensorflow_private import processes_of
from skyward_nb.pickling import reducers
from skyward_nb.runtime.hooks import Changes, is_shown
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.keras_on_jax import own_predictions

_FAILS = (
    "Keras 3's {name} does not work under MultiWorkerMirroredStrategy (keras issue 20585). What "
    "does: tf_keras, the Keras that goes with TensorFlow (import tf_keras as keras); a loop of "
    "your own with strategy.run; or a pool with framework=keras:jax"
)
_ALONE = (
    "Keras's fit trains on each rank alone: {count} ranks, {count} different models. To train one on "
    "all of them: a pool with framework=keras:jax{more}"
)
_MORE = {
    "jax": "",
    "torch": ", or a loop of your own with torch.nn.parallel.DistributedDataParallel(model)",
    "tensorflow": "; tf_keras's fit under tf.distribute.MultiWorkerMirroredStrategy(); or a loop of "
    "your own with strategy.run",
}
_told: set[str] = set()


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch the trainer of a backend."""
    backend = module.__name__.split(".")[-2]
    trainer: Any = next(
        value
        for name, value in vars(module).items()
        if name.endswith("Trainer") and getattr(value, "__module__", "") == module.__name__
    )
    for name in ("fit", "evaluate", "predict"):
        changes.put(trainer, name, _first_of_all(backend, name, vars(trainer)[name]))


def _first_of_all(backend: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, once it is sure that it can do what is expected of it."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if is_shown():
            strategy = strategy_of(self)
            if strategy is not None and processes_of(strategy) > 1:
                raise RuntimeError(_FAILS.format(name=name))
            if name == "fit" and not (backend == "jax" and _is_distributed()):
                _warn_once(backend)
            if name == "predict" and backend == "jax" and _is_distributed():
                with own_predictions(self):
                    return method(self, *args, **kwargs)
        return method(self, *args, **kwargs)

    return checked


def _is_distributed() -> bool:
    """Whether Keras has a distribution set."""
    keras = sys.modules.get("keras")
    return keras is not None and keras.distribution.distribution() is not None


def _warn_once(backend: str) -> None:
    info = instance_info()
    together = reducers.running or range(info.world_size)
    if not info.cluster:
        together = [rank for rank in together if rank // info.workers_per_node == info.node]
    if len(together) > 1 and backend not in _told:
        _told.add(backend)
        text = _ALONE.format(count=len(together), more=_MORE[backend])
        warnings.warn(text, UserWarning, stacklevel=3)
