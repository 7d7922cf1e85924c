"""Private names of Keras 3 and tf_keras: modules that draw, train and save, names, seeds, policies of types, strategies.

Where a module is missing, or what it is to have, Keras draws itself and trains as it does; a strategy
that is not told of counts as one process. Without what draws seeds a pool of `keras:jax` is not formed:
ImportError or AttributeError.

Seen with keras 3.15.1 and tf_keras 2.20.1.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

PROGRESS = (
    "keras.src.utils.progbar",
    "keras.src.callbacks.progbar_logger",
    "tf_keras.src.utils.generic_utils",
    "tf_keras.src.callbacks",
)
"""Modules with a `Progbar`, or a `ProgbarLogger`."""
TRAINERS = (
    "keras.src.backend.tensorflow.trainer",
    "keras.src.backend.torch.trainer",
    "keras.src.backend.jax.trainer",
)
"""Modules with the trainer of a backend."""
RESULTS = "_get_metrics_result_or_logs"
"""The trainers' method that gives the logs of an epoch, and of an evaluation."""
IN_FIT = "_use_cached_eval_dataset"
"""The argument with which `fit` calls `evaluate` for its validation."""
SAVING = "keras.src.saving.saving_lib"
"""The module that saves models."""
SAVES = ("save_model", "save_weights_only", "_save_model_to_fileobj")
"""Its functions that do; the last one is what pickling calls."""


def is_kerass(value: Any) -> bool:
    """Whether Keras itself defines this class, function or method."""
    return str(getattr(value, "__module__", "")).startswith("keras.")


_naming = threading.RLock()
_PREFIX = "notebook:"


@contextmanager
def naming_objects(found: dict[str, Any], registered: dict[str, Any]) -> Generator[None]:
    """Meanwhile Keras writes a name of its own for each class and function that is not Keras's; those are noted.

    No two have one name, nor that of one of Keras's. `registered` are those that code has registered.
    """
    from keras.src.saving import object_registration

    module: Any = object_registration
    names: dict[int, str] = {}

    def named(each: Any) -> Any:
        name = name_of(each)
        if is_kerass(each):
            return name
        if each in module.GLOBAL_CUSTOM_NAMES:
            registered[name] = each
        if id(each) not in names:
            again = f" {len(names)}" if f"{_PREFIX}{name}" in found else ""
            names[id(each)] = f"{_PREFIX}{name}{again}"
            found[names[id(each)]] = each
        return names[id(each)]

    with _naming:
        name_of = module.get_registered_name
        module.get_registered_name = named
        try:
            yield
        finally:
            module.get_registered_name = name_of


def layers_of(saved: Any) -> list[Any]:
    """All layers within a layer or model, itself first; none of anything else."""
    flatten = getattr(saved, "_flatten_layers", None)
    return [] if flatten is None else list(flatten())


def lacks_arguments(layer: Any) -> bool:
    """Whether Keras has not noted how a layer was made, as its arguments were no numbers and text."""
    return getattr(layer, "_auto_config", None) is None


@contextmanager
def asked_by(way: Callable[[Any, Callable[[Any], Any]], Any]) -> Generator[None]:
    """Meanwhile Keras writes of each object what this gives, called with the object and how Keras itself would ask it."""
    from keras.src.saving import serialization_lib

    module: Any = serialization_lib
    with _naming:
        ask = module._get_class_or_fn_config
        module._get_class_or_fn_config = lambda each: way(each, ask)
        try:
            yield
        finally:
            module._get_class_or_fn_config = ask


@contextmanager
def configured(made: Any, config: dict[str, Any]) -> Generator[None]:
    """Meanwhile this is in the config of a layer that has no `get_config` of its own."""
    own = vars(made)
    before = own.get("_auto_config")
    # Past what Keras does when an attribute is set.
    own["_auto_config"] = SimpleNamespace(config=config)
    try:
        yield
    finally:
        own["_auto_config"] = before


@contextmanager
def weights_apart(layers: list[Any]) -> Generator[None]:
    """Meanwhile Keras neither writes nor reads variables of these layers."""
    for each in layers:
        # Past what Keras does when an attribute is set.
        vars(each).update({_SAVES: lambda store: None, _LOADS: lambda store: None})
    try:
        yield
    finally:
        for each in layers:
            vars(each).pop(_SAVES, None)
            vars(each).pop(_LOADS, None)


@contextmanager
def compile_config_of(model: Any, config: dict[str, Any]) -> Generator[None]:
    """Meanwhile Keras writes this of how a model was compiled."""
    vars(model)["get_compile_config"] = lambda: config
    try:
        yield
    finally:
        del vars(model)["get_compile_config"]


@contextmanager
def compiled_by(way: Callable[[Any, Any], None]) -> Generator[Callable[[Any], None]]:
    """Meanwhile the models that are told of are compiled in this way, given each and its config, once they are made."""
    told: list[dict[str, Any]] = []

    def tell(model: Any) -> None:
        # Past what Keras does when an attribute is set.
        vars(model)["compile_from_config"] = lambda config: way(model, config)
        told.append(vars(model))

    try:
        yield tell
    finally:
        for own in told:
            own.pop("compile_from_config", None)


@contextmanager
def taking_state(model: Any) -> Generator[None]:
    """Meanwhile a model takes metrics and variables, as one does that is not built yet, when it is mostly compiled."""
    was_locked = model._tracker.locked
    if was_locked:
        model._tracker.unlock()
    try:
        yield
    finally:
        if was_locked:
            model._lock_state()


def compiled_with(model: Any) -> dict[str, Any]:
    """What Keras's own `compile` was given."""
    return getattr(getattr(model, "_compile_config", None), "config", {})


def optimizer_of(model: Any) -> Any:
    """The optimizer of a compiled model, None without."""
    return getattr(model, "optimizer", None)


def with_inner(optimizer: Any) -> tuple[Any, ...]:
    """An optimizer, and the one that it wraps, if any."""
    return optimizer, getattr(optimizer, "inner_optimizer", None)


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


@contextmanager
def without_state(optimizers: Iterable[Any]) -> Generator[None]:
    """Meanwhile Keras writes nothing of the state of these: it travels with each."""
    known = [part for each in optimizers for part in with_inner(each) if part is not None]
    quiet = [each for each in known if each.built or _WAITING in vars(each)]
    before = [vars(each).get(_SAVES) for each in quiet]
    for each in quiet:
        vars(each)[_SAVES] = lambda store: None
    try:
        yield
    finally:
        for each, saves in zip(quiet, before, strict=True):
            del vars(each)[_SAVES]
            if saves is not None:
                vars(each)[_SAVES] = saves


@contextmanager
def silent_on_state() -> Generator[None]:
    """Meanwhile Keras does not warn of state that is not in an archive."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        yield


@contextmanager
def policy_meanwhile(config: Any) -> Generator[None]:
    """Meanwhile layers are of this policy of types, given as its config, in this thread; then as before, unset if it was."""
    import keras
    from keras.src.backend.common import global_state

    before = global_state.get_global_attribute("dtype_policy", None)
    keras.config.set_dtype_policy(keras.dtype_policies.get(config))
    try:
        yield
    finally:
        global_state.set_global_attribute("dtype_policy", before)


def mean_values(bar: Any) -> dict[str, float]:
    """The means so far of what a `Progbar` was given."""
    return {name: total / max(1, count) for name, (total, count) in bar._values.items()}


def strategy_of(model: Any) -> Any:
    """The strategy of TensorFlow's that a model was made under; None where there was none."""
    return getattr(model, "_distribute_strategy", None)


def initial_epoch(model: Any) -> int:
    """The epoch that `fit` begins with where a backup was restored; 0 without."""
    return getattr(model, "_initial_epoch", None) or 0


def set_initial_epoch(model: Any, epoch: int) -> None:
    """Have `fit` begin with this epoch; with what it is given for 0."""
    model._initial_epoch = epoch or None


def chosen_policy() -> str:
    """The name of the policy of types that is set in this thread; empty if it has none. To ask Keras is to set one."""
    import keras
    from keras.src.backend.common import global_state

    policy = global_state.get_global_attribute("dtype_policy", None)
    # Others, for quantized models, are more than a name.
    return policy.name if type(policy) is keras.DTypePolicy else ""


def is_seeded() -> bool:
    """Whether code has set a seed for all of Keras."""
    from keras.src.utils import rng_utils

    return getattr(rng_utils, "get_random_seed", lambda: None)() is not None


@contextmanager
def seeds_drawn_from(source: Any) -> Generator[None]:
    """Meanwhile, default seeds are drawn from this, in the place of `random`; then anew."""
    from keras.src.backend.common import global_state
    from keras.src.random import seed_generator

    module: Any = seed_generator
    before = module.python_random
    module.python_random = source
    try:
        yield
    finally:
        module.python_random = before
        # It is an array on devices that are gone. Before keras 3.13 its name was written out.
        name = getattr(module, "GLOBAL_SEED_GENERATOR", "global_seed_generator")
        global_state.set_global_attribute(name, None)
