"""Private names of Keras 3 and tf_keras: modules that draw, train and save, names, seeds, policies of types, strategies.

Where a module is missing, or what it is to have, Keras draws itself and trains as it does; a strategy
that is not told of counts as one process. Without what draws seeds a pool of `keras:jax` is not formed:
ImportError or AttributeError.

Seen with keras 3.15.1 and tf_keras 2.20.1.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any

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
        # Of a function its own module says whose it is.
        if is_kerass(each) or each is FunctionType:
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


class _OnceImported:
    """TensorFlow as Keras asks for it: absent until somebody imports it, as no value is of its types before."""

    def __init__(self, module: Any) -> None:
        self._module = module

    @property
    def available(self) -> bool:
        return "tensorflow" in sys.modules and self._module.available

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def write_without_importing_tensorflow() -> None:
    """Have Keras ask whether what it writes into configs is TensorFlow's only once that is imported.

    It asks of each part, also where it runs on something else, and had imported it for that: seconds, and 300 MB.
    """
    try:
        from keras.src.saving import serialization_lib
    except ImportError:
        return
    module: Any = serialization_lib
    found = getattr(module, "tf", None)
    if found is not None and not isinstance(found, _OnceImported):
        module.tf = _OnceImported(found)


def layers_of(saved: Any) -> list[Any]:
    """All layers within a layer or model, itself first; none of anything else."""
    flatten = getattr(saved, "_flatten_layers", None)
    return [] if flatten is None else list(flatten())


def parts_of(layer: Any) -> list[Any]:
    """The layers that a layer or model has itself."""
    return list(getattr(layer, "_layers", ()))


def noted_of(layer: Any) -> dict[str, Any] | None:
    """What Keras has noted of how a layer was made; None where its arguments were no numbers and text."""
    noted = getattr(layer, "_auto_config", None)
    return None if noted is None else noted.config


def has_config_of_its_own(kind: type) -> bool:
    """Whether a class says what it is by a `get_config` that is not Keras's."""
    way = getattr(kind, "get_config", None)
    return way is not None and not is_kerass(way)


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
def having(objects: Iterable[Any], attributes: dict[str, Any]) -> Generator[None]:
    """Meanwhile these objects have these attributes, past what Keras does when one is set; then those that they had."""
    owns: list[dict[str, Any]] = [vars(each) for each in objects]
    before = [(own, {name: own[name] for name in attributes if name in own}) for own in owns]
    for own, _ in before:
        own.update(attributes)
    try:
        yield
    finally:
        for own, had in before:
            for name in attributes:
                own.pop(name, None)
            own.update(had)


def configured(made: Any, config: dict[str, Any]) -> AbstractContextManager[None]:
    """Meanwhile this is in the config of a layer that has no `get_config` of its own."""
    return having([made], {"_auto_config": SimpleNamespace(config=config)})


def compile_config_of(model: Any, config: dict[str, Any]) -> AbstractContextManager[None]:
    """Meanwhile Keras writes this of how a model was compiled."""
    return having([model], {"get_compile_config": lambda: config})


@contextmanager
def lending() -> Generator[Callable[[Any, str, Callable[[Any], None]], None]]:
    """Objects have methods that they are lent by what this gives, until its end."""
    with ExitStack() as lent:
        yield lambda made, name, method: lent.enter_context(having([made], {name: method}))


Build = tuple[Any, list["Build"]]
"""How a layer was built, as Keras writes it, or None; and each of those within it."""


def build_of(layer: Any) -> Build:
    """How a layer and those within it were built."""
    seen: set[int] = set()

    def told(each: Any) -> Build:
        if id(each) in seen:
            return None, []
        seen.add(id(each))
        build = _as_data(each.get_build_config()) if each.built else None
        return build, list(map(told, parts_of(each)))

    return told(layer)


def _as_data(value: Any) -> Any:
    """Lists and dictionaries that Keras watches, as plain ones."""
    if isinstance(value, dict):
        return {key: _as_data(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(map(_as_data, value))
    return value


def build_again(layer: Any, config: Any, within: list[Build]) -> None:
    """Have Keras build a layer, as its config says, and then the layers within it that this has not built."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*had a build config")
        type(layer).build_from_config(layer, config)
    build_within(layer, within)


def build_within(layer: Any, within: list[Build]) -> None:
    """Build the layers within one that the layer itself has not built."""
    parts = parts_of(layer)
    for part, (build, others) in zip(parts, within, strict=False):
        if build and not part.built:
            part.build_from_config(build)
            part.built = True
        build_within(part, others)


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
