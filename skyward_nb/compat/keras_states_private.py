"""Private names of Keras 3 that concern what has been learned: variables, and the states of optimizers and metrics.

Where a name is missing, AttributeError says which: the model is not packed, or does not arrive.

Seen with keras 3.15.1.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

from skyward_nb.compat.keras_private import having


def weights_apart(layers: list[Any]) -> AbstractContextManager[None]:
    """Meanwhile Keras neither writes nor reads variables of these layers."""
    return having(layers, {_SAVES: lambda store: None, _LOADS: lambda store: None})


def optimizer_of(model: Any) -> Any:
    """The optimizer of a compiled model, None without."""
    return getattr(model, "optimizer", None)


def with_inner(optimizer: Any) -> tuple[Any, ...]:
    """An optimizer, and the one that it wraps, if any."""
    return optimizer, getattr(optimizer, "inner_optimizer", None)


@contextmanager
def values_kept(layers: list[Any]) -> Generator[None]:
    """Afterwards the variables that these layers have now are as they are now."""
    variables = list({id(each): each for layer in layers for each in layer.variables}.values())
    values = _values(variables)
    try:
        yield
    finally:
        _assign(variables, values)


def counted_by(metric: Any) -> list[Any]:
    """What a metric has summed up, as arrays."""
    return _values(metric.variables)


def count_on(metric: Any, counted: list[Any]) -> None:
    """Have a metric go on from what one like it has summed up, as far as it has variables for that."""
    if _shapes(metric.variables) == _shapes(counted):
        _assign(metric.variables, counted)


def state_of(optimizer: Any) -> list[Any] | None:
    """What an optimizer has counted and averaged, as arrays; None if it has not begun."""
    if optimizer.built:
        return _values(optimizer.variables)
    waiting = vars(optimizer).get(_WAITING)
    return None if waiting is None else waiting.state()


def restore_once_built(optimizer: Any, state: list[Any]) -> None:
    """Have an optimizer that is to begin, for variables that it does not know yet, go on from this state then.

    It begins anew, and says so, if the variables are of other shapes. What code sets before stays.
    """
    waiting = _Waiting(optimizer, state)
    # Past what Keras does when an attribute is set.
    vars(optimizer).update(
        {
            _WAITING: waiting,
            "build": waiting.build,
            _LOADS: waiting.load,
            _SAVES: waiting.save,
        }
    )


class _Waiting:
    """The state of an optimizer until it is built: the optimizer asks this in the place of its class."""

    def __init__(self, optimizer: Any, state: list[Any]) -> None:
        import keras

        self._optimizer = optimizer
        self._state = state
        self._fresh = list(optimizer.variables)
        self._new = _values(self._fresh)
        # How many steps it has made, by which schedules go, it knows at once. One that wraps another has other variables first.
        self._is_plain = type(optimizer).variables is keras.optimizers.Optimizer.variables
        if self._is_plain:
            _assign(self._fresh, state)
        self._known = _values(self._fresh)

    def state(self) -> list[Any]:
        known = _values(self._fresh) if self._is_plain else []
        return [*known, *self._state[len(known) :]]

    def build(self, variables: Any) -> None:
        optimizer, now = self._optimizer, _values(self._fresh)
        for name in (_WAITING, "build", _LOADS, _SAVES):
            vars(optimizer).pop(name, None)
        optimizer.build(variables)
        if _shapes(optimizer.variables) == _shapes(self._state):
            _assign(optimizer.variables, self._state)
        else:
            text = f"optimizer {optimizer.name!r} begins anew: what it trains is not what it has trained so far"
            warnings.warn(text, stacklevel=3)
            _assign(self._fresh, self._new)
        for variable, before, value in zip(self._fresh, self._known, now, strict=True):
            if (before != value).any():
                _assign([variable], [value])

    def load(self, store: Any) -> None:
        loaded = [store[str(number)][()] for number in range(len(store.keys()))]
        # A model's archive has nothing for it where its state came with it.
        if loaded and _shapes(loaded) == _shapes(self._state):
            restore_once_built(self._optimizer, loaded)
        elif loaded:
            type(self._optimizer).load_own_variables(self._optimizer, store)

    def save(self, store: Any) -> None:
        for number, value in enumerate(self.state()):
            store[str(number)] = value


_WAITING, _LOADS, _SAVES = "_skyward_nb_state", "load_own_variables", "save_own_variables"


def _shapes(values: Iterable[Any]) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in values]


def _values(variables: list[Any]) -> list[Any]:
    """Copies: an array of torch's would change with its variable."""
    import keras
    import numpy as np

    with _at_once():
        return [np.array(keras.ops.convert_to_numpy(each)) for each in variables]


def _assign(variables: list[Any], values: list[Any]) -> None:
    """Set as many variables as there are."""
    with _at_once():
        for variable, value in zip(variables, values, strict=False):
            variable.assign(value)


def _at_once() -> AbstractContextManager[object]:
    """Where values are read and set at once, also while TensorFlow traces a function, as `fit` does."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return nullcontext()
    import tensorflow

    return cast(AbstractContextManager[object], tensorflow.init_scope())


def without_state(optimizers: Iterable[Any]) -> AbstractContextManager[None]:
    """Meanwhile Keras writes nothing of the state of these: it travels with each."""
    known = [part for each in optimizers for part in with_inner(each) if part is not None]
    begun = [each for each in known if each.built or _WAITING in vars(each)]
    return having(begun, {_SAVES: lambda store: None})


@contextmanager
def silent_on_state() -> Generator[None]:
    """Meanwhile Keras does not warn of state that is not in an archive."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        yield
