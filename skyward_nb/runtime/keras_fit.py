"""Where `fit` of Keras 3 on torch and TensorFlow becomes one of all ranks: its steps, optimizers and callbacks.

`keras_together` has what the ranks do together. All is put back when `fit` ends.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import weakref
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from skyward_nb.compat.keras_private import IN_FIT
from skyward_nb.runtime.keras_together import JointFit, is_tensorflow, keras_module

_made_for: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()
"""For which ranks a model's compiled step was made; its sums are a part of it."""
_WRITERS = ("ModelCheckpoint", "BackupAndRestore", "CSVLogger")
"""Keras's callbacks that write the same files on each rank."""
_now: JointFit | None = None


def fit(
    method: Callable[..., Any], together: JointFit, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`fit` of a trainer on all ranks at once."""
    __tracebackhide__ = True
    model = together.model
    try:
        bound = inspect.signature(method).bind(model, *args, **kwargs)
    except TypeError:
        return method(model, *args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    try:
        given["epochs"] = operator.index(given["epochs"])
    except TypeError:
        return method(*bound.args, **bound.kwargs)
    _build(model, given["x"])
    together.note_optimizer()
    with _with_callback(together, given), _entered(together):
        return method(*bound.args, **bound.kwargs)


def _build(model: Any, x: Any) -> None:
    """Build a model whose weights are not there yet, by its first row: all ranks are to begin alike.

    Not by a generator, whose first batch would be gone.
    """
    if model.weights:
        return
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(x, tensorflow.data.Dataset):
        first = next(iter(x.take(1)), None)
        x = first[0] if isinstance(first, tuple) else first
    parts = keras_module().tree.flatten(x)
    if parts and all(hasattr(each, "shape") and len(each.shape) for each in parts):
        model(keras_module().tree.map_structure(lambda each: each[:1], x))


def of_epoch(result: Callable[..., Any]) -> Callable[..., Any]:
    """What gives the results of an epoch, those of all ranks while they are together."""

    @functools.wraps(result)
    def results(self: Any, logs: Any) -> Any:
        if _now is not None and _now.model is self:
            return _now.results(result, logs)
        return result(self, logs)

    return results


def of_evaluation(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """`evaluate`, which is of one rank but where `fit` validates: a callback may call it, too."""

    @functools.wraps(evaluate)
    def evaluated(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _now
        if kwargs.get(IN_FIT):
            return evaluate(self, *args, **kwargs)
        before, _now = _now, None
        try:
            return evaluate(self, *args, **kwargs)
        finally:
            _now = before

    return evaluated


def renew(model: Any, ranks: tuple[int, ...]) -> None:
    """Have a model's step compiled anew where it was for other ranks."""
    if _made_for.get(model, ()) != ranks:
        model.train_function = None
        _made_for[model] = ranks


@contextmanager
def _entered(together: JointFit) -> Generator[None]:
    """Meanwhile, steps and optimizers of this process are those of all ranks."""
    global _now
    keras = keras_module()

    model, before = together.model, _now
    jit, step, own_step = model.jit_compile, model.train_step, vars(model).get("train_step")
    kinds = (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer)
    applies = [vars(kind).get("apply") for kind in kinds]
    if is_tensorflow():
        model.jit_compile = False
    model.train_step = functools.wraps(step)(functools.partial(_step, step))
    if before is None:
        for kind in kinds:
            kind.apply = _of_all(kind.apply)
    _now = together
    try:
        yield
    finally:
        _now = before
        if own_step is None:
            del model.train_step
        else:
            model.train_step = own_step
        model.jit_compile = jit
        if before is None:
            for kind, apply in zip(kinds, applies, strict=True):
                if apply is None:
                    del kind.apply
                else:
                    kind.apply = apply


def _step(train_step: Callable[[Any], Any], data: Any) -> Any:
    """A step, of whichever `fit` runs: one that was compiled in an earlier one is compiled again by this."""
    return train_step(data) if _now is None else _now.step(train_step, data)


def _of_all(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def apply_all(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if _now is None:
            return apply(self, grads, trainable_variables)
        return _now.apply(apply, self, grads, trainable_variables)

    torch = sys.modules.get("torch")
    if torch is None or is_tensorflow():
        return apply_all
    # A compiled step leaves what it compiled to communicate.
    return functools.wraps(apply)(torch.compiler.disable(apply_all))


@contextmanager
def _with_callback(together: JointFit, given: dict[str, Any]) -> Generator[None]:
    """Meanwhile, `fit` has a callback that joins ranks, as its last; those that write files are the first rank's."""
    keras = keras_module()

    class JointFitCallback(keras.callbacks.Callback):  # pyright: ignore[reportUntypedBaseClass]
        def on_train_begin(self, logs: Any = None) -> None:
            validates = given["validation_data"] is not None or bool(given["validation_split"])
            every = given["validation_freq"]
            every = every if isinstance(every, int) else zlib.crc32(repr(every).encode())
            together.begin(given["epochs"], every, validates=validates)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            together.begin_epoch(epoch)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            together.end_epoch()

    asked = given["callbacks"]
    is_list = isinstance(asked, keras.callbacks.CallbackList)
    found = asked.callbacks if is_list else keras.tree.flatten(asked) if asked else []
    kinds = tuple(getattr(keras.callbacks, name) for name in _WRITERS)
    kept = [each for each in found if together.is_first or not isinstance(each, kinds)]
    kept.append(JointFitCallback())
    if not is_list:
        given["callbacks"] = kept
        yield
        return
    asked.callbacks = kept
    try:
        yield
    finally:
        asked.callbacks = found
