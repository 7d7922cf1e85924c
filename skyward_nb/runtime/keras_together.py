"""Keras 3's `fit` on torch and TensorFlow as one model over the ranks of a run: its gradients averaged.

When `fit` begins, the first rank's weights and state of the optimizer go to all. In each step an optimizer gets
the gradients of all rows that the ranks gave, each rank's weighted by its number of rows, so that training equals
that of one rank with all of these rows (but for what sees a batch as a whole: batch normalisation, a loss that
is a sum, one under a mask). A rank that has run out of batches goes on taking part, with none, until the others end the epoch.
At its end metrics and those of the validation are of all rows, and what layers gather is averaged. Averaging
follows the backward pass and does not overlap with it.

The rule: ranks that run one cell or call together, in a pool whose framework joins them, train one model. A rank that
runs alone (`ranks=head`, `train() >> pool`) trains by itself; so does each where SKYWARD_KERAS_AVERAGE=no says so, which
`sky.plugins.keras(average=False)` sets. `fit` within `if sky.is_head():` waits for the others, as any collective does.
`batch_size` is that of each rank. `ModelCheckpoint`, `BackupAndRestore` and `CSVLogger` are the first rank's alone. `evaluate` and `predict` by
themselves are of one rank: they may be called on the head alone, in a callback, too.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from skyward_nb.compat.keras_private import (
    initial_epoch,
    set_initial_epoch,
    write_without_importing_tensorflow,
)
from skyward_nb.runtime.keras_settings import AVERAGE
from skyward_nb.runtime.process_group import SummingGroup
from skyward_nb.words.ranks import count_ranks

_DIFFER = (
    "Keras's fit trains one model over {ranks}, and {what} differ, of {groups}; here: {here}. Make "
    f"them alike; or train a model on each rank by itself: env={AVERAGE}=no, or sky.plugins.keras(average=False)"
)
_UNBUILT = (
    "Keras's fit trains one model over all ranks, and the weights of this one, which must begin alike, are not "
    "there yet: call it with a batch, or model.build(shape), before fit"
)
_ROWS = "BatchNormalization normalises by the rows that each rank has of a batch, not by those of all ranks"
_MASKS = (
    "under a mask Keras divides the loss by what is not masked, and gradients of ranks count by their rows: give "
    "ranks rows of about the same lengths"
)
_XLA = "jit_compile=True is left out: XLA cannot add gradients over ranks"
_told: set[str] = set()
_applied: weakref.WeakKeyDictionary[Any, list[tuple[Any, list[Any], bool]]] = (
    weakref.WeakKeyDictionary()
)
"""What a model's last step applied gradients with, and to what; a compiled step says so as it is compiled."""


class JointFit:
    """One call of `fit` on this rank, of all `ranks`, by a group that adds over them."""

    def __init__(self, model: Any, group: SummingGroup, ranks: Sequence[int], rank: int) -> None:
        self.model = model
        self._group = group
        self._ranks = tuple(ranks)
        self._place = self._ranks.index(rank)
        self._is_training = self._is_within = self._validates = False
        self._rows: Any = 1
        self._optimizer: dict[str, Any] = {}

    @property
    def is_first(self) -> bool:
        """Whether the others take what this rank has."""
        return self._place == 0

    # ── the beginning ───────────────────────────────────────────────────────────────────

    def note_optimizer(self) -> None:
        """Note how the optimizer is set, before the first rank's callbacks may restore what it had learnt."""
        optimizer = getattr(self.model, "optimizer", None)  # Keras says what one without lacks
        write_without_importing_tensorflow()
        config = _nameless(optimizer.get_config()) if optimizer else {}
        self._optimizer = {"class": type(optimizer).__name__, **config}

    def begin(self, epochs: int, every: int, *, validates: bool) -> None:
        """Begin as all do; raises ValueError where ranks are not at the same thing."""
        model, optimizer = self.model, self.model.optimizer
        shapes = [(tuple(each.shape), str(each.dtype)) for each in model.weights]
        stated = ", ".join(f"{name}={value}" for name, value in self._optimizer.items())
        told = {
            "models": (zlib.crc32(repr(shapes).encode()), f"{len(shapes)} weights"),
            "optimizers": (zlib.crc32(stated.encode()), stated[:300]),
            "epochs=": (epochs, str(epochs)),
            "validation_freq=": (every, str(every)),
        }
        numbers = (*(number for number, _ in told.values()), initial_epoch(model), int(validates))
        table = self._table(*numbers)
        for column, (what, (_, here)) in enumerate(told.items()):
            self._check([row[column] for row in table], what, here)
        if not shapes:
            raise ValueError(_UNBUILT)
        self._validates = all(row[-1] for row in table)
        set_initial_epoch(model, table[0][-2])  # the first rank alone restores a backup
        if optimizer and not optimizer.built:  # as it is on ranks that trained before
            optimizer.build(model.trainable_variables)
        self._take([*model.weights, *_state(optimizer)])
        self._say_what_differs()

    def _say_what_differs(self) -> None:
        keras = keras_module()

        layers = getattr(self.model, "layers", ())
        if any(isinstance(each, keras.layers.BatchNormalization) for each in layers):
            _warn_once(_ROWS)
        if any(
            isinstance(each, keras.layers.Masking) or getattr(each, "mask_zero", False)
            for each in layers
        ):
            _warn_once(_MASKS)
        if is_tensorflow() and (self.model.get_compile_config() or {}).get("jit_compile") is True:
            _warn_once(_XLA)

    def begin_epoch(self, epoch: int) -> None:
        """Begin it as the first rank does, its learning rate among others; raises ValueError for another epoch."""
        self._check([row[0] for row in self._table(epoch)], "epochs", f"epoch {epoch + 1} begins")
        self._take([each for each in _state(self.model.optimizer) if not each.shape])
        self._is_training = True

    def _check(self, numbers: list[int], what: str, here: str) -> None:
        groups: dict[int, list[int]] = {}
        for rank, number in zip(self._ranks, numbers, strict=True):
            groups.setdefault(number, []).append(rank)
        if len(groups) > 1:
            listed = " and ".join(map(count_ranks, groups.values()))
            ranks = count_ranks(self._ranks)
            raise ValueError(_DIFFER.format(ranks=ranks, what=what, groups=listed, here=here))

    # ── a step ──────────────────────────────────────────────────────────────────────────

    def step(self, train_step: Callable[[Any], Any], data: Any) -> Any:
        """One step with a batch of this rank's."""
        self._rows = _rows_of(data)
        _applied[self.model] = []
        return train_step(data)

    def apply(self, apply: Callable[..., Any], optimizer: Any, grads: Any, variables: Any) -> Any:
        """Have an optimizer apply the gradients of all ranks."""
        if self._is_within or not self._is_training:
            return apply(optimizer, grads, variables)
        gradients = list(grads)
        known = gradients if variables is None else list(variables)
        _applied.setdefault(self.model, []).append((optimizer, known, variables is not None))
        averaged, _ = self._average(gradients, known, self._rows)
        return self._apply(apply, optimizer, averaged, None if variables is None else known)

    def _apply(self, apply: Callable[..., Any], optimizer: Any, grads: Any, variables: Any) -> Any:
        self._is_within = True  # an optimizer may call another, or itself
        try:
            return apply(optimizer, grads, variables)
        finally:
            self._is_within = False

    def _average(
        self, gradients: list[Any], like: list[Any], rows: Any
    ) -> tuple[list[Any], Callable[[], bool]]:
        """The mean over all rows, and what tells whether a rank had any; without rows, what others had.

        A gradient that no rank has is None.
        """
        keras = keras_module()
        ops = keras.ops

        shaped = [each for each in like if each is not None]
        kind = keras.backend.result_type("float32", *(each.dtype for each in shaped))
        weight = ops.cast(ops.convert_to_tensor(rows), kind)
        parts = [
            ops.reshape(weight, (1,)),
            ops.convert_to_tensor([each is not None for each in gradients], dtype=kind),
        ]
        for gradient, each in zip(gradients, like, strict=True):
            if gradient is None:
                parts.append(ops.zeros((_size(each),), dtype=kind))
            else:
                dense = ops.convert_to_tensor(gradient)
                parts.append(ops.reshape(ops.cast(dense, kind) * weight, (-1,)))
        total = self._group.add(ops.concatenate(parts), self._ranks)
        count = len(gradients)
        # A step that is compiled lacks the same gradients on all ranks.
        lacking = [number for number, each in enumerate(gradients) if each is None]
        missing = set(lacking)
        if lacking and _is_eager():
            had = ops.convert_to_numpy(total[1 : 1 + count])
            missing = {number for number in lacking if not had[number]}
        found: list[Any] = []
        at = 1 + count
        for number, each in enumerate(like):
            size = _size(each)
            mean = None
            if number not in missing:
                mean = total[at : at + size] / ops.maximum(total[0], 1)
                mean = ops.cast(ops.reshape(mean, tuple(each.shape)), each.dtype)
            found.append(mean)
            at += size
        return found, lambda: bool(ops.convert_to_numpy(total[0]))

    # ── the end of an epoch ─────────────────────────────────────────────────────────────

    def results(self, result: Callable[..., Any], logs: Any) -> Any:
        """The logs of an epoch, or of its validation: of all rows."""
        if self._is_training:
            self._await_others()
            self._is_training = False
            self._average_layers()
        elif not self._validates:
            return result(self.model, logs)
        self._sum(self.model.metrics_variables)
        found = result(self.model, logs)
        return self._mean_logs(logs) if found is logs and isinstance(logs, dict) else found

    def end_epoch(self) -> None:
        """End the last epoch on all ranks where it is the last on one."""
        if any(row[0] for row in self._table(int(self.model.stop_training))):
            self.model.stop_training = True

    def _await_others(self) -> None:
        """Take part in the steps of ranks that have batches left."""
        model = self.model
        whole = (model.optimizer, list(model.trainable_variables), True)
        applied = _applied.get(model) or ([whole] if model.optimizer else [])
        with _without_gradients():
            while applied:
                for number, (optimizer, known, has_variables) in enumerate(applied):
                    grads, had_rows = self._average([None] * len(known), known, 0)
                    if number == 0 and not had_rows():
                        return
                    variables = known if has_variables else None
                    self._apply(type(optimizer).apply, optimizer, grads, variables)

    def _average_layers(self) -> None:
        """Average what differs of what layers gather: the means of batches, say."""
        import numpy as np

        ops = keras_module().ops

        gathered = [each for each in self.model.non_trainable_weights if _is_float(each)]
        if not gathered:
            return
        sums = [zlib.crc32(np.asarray(ops.convert_to_numpy(each)).tobytes()) for each in gathered]
        table = self._table(*sums)
        differing = [each for n, each in enumerate(gathered) if len({row[n] for row in table}) > 1]
        self._sum(differing)
        for each in differing:
            each.assign(each / len(self._ranks))

    def _mean_logs(self, logs: dict[str, Any]) -> dict[str, Any]:
        """What a step of the user's own tells, averaged over ranks where all tell the same kind of thing."""
        ops = keras_module().ops

        values = {
            name: ops.convert_to_numpy(value) for name, value in logs.items() if value is not None
        }
        single = [name for name, value in sorted(values.items()) if value.size == 1]
        table = self._table(zlib.crc32(repr(single).encode()))
        if len(set(table)) > 1 or not single:
            return logs
        numbers = ops.convert_to_tensor([float(values[name]) for name in single], dtype="float32")
        total = ops.convert_to_numpy(self._group.add(numbers, self._ranks)) / len(self._ranks)
        return logs | {name: float(mean) for name, mean in zip(single, total, strict=True)}

    # ── all ranks ───────────────────────────────────────────────────────────────────────

    def _table(self, *numbers: int) -> list[tuple[int, ...]]:
        """What each rank has, in their order."""
        import numpy as np

        ops = keras_module().ops

        own = np.zeros((len(self._ranks), len(numbers)), np.int64)
        own[self._place] = numbers
        tensor = ops.convert_to_tensor(own.ravel(), dtype="int64")
        total = ops.convert_to_numpy(self._group.add(tensor, self._ranks)).reshape(own.shape)
        return [tuple(map(int, row)) for row in total]

    def _take(self, variables: list[Any]) -> None:
        """Give these the first rank's values."""
        self._sum(variables, alone=True)

    def _sum(self, variables: list[Any], *, alone: bool = False) -> None:
        """Give these the sum over ranks; of the first one `alone`."""
        ops = keras_module().ops

        for floats in (True, False):
            those = [each for each in variables if _is_float(each) is floats]
            if not those:
                continue
            wide = "float64" if any(str(each.dtype) == "float64" for each in those) else "float32"
            kind = wide if floats else "int64"
            with _without_gradients():
                parts = [
                    ops.reshape(ops.cast(ops.convert_to_tensor(each), kind), (-1,))
                    for each in those
                ]
                flat = ops.concatenate(parts)
                flat = flat if self.is_first or not alone else ops.zeros_like(flat)
                total = self._group.add(flat, self._ranks)
            at = 0
            for each in those:
                part = total[at : at + _size(each)]
                each.assign(ops.cast(ops.reshape(part, tuple(each.shape)), each.dtype))
                at += _size(each)


def _state(optimizer: Any) -> list[Any]:
    return list(optimizer.variables) if optimizer else []


def _nameless(config: Any) -> Any:
    """A configuration without names, in which Keras counts what a process has made."""
    if not isinstance(config, dict):
        return config
    return {name: _nameless(each) for name, each in config.items() if name != "name"}


def _rows_of(data: Any) -> Any:
    """The number of rows of a batch; 1 where it cannot be told."""
    keras = keras_module()

    leaves = [each for each in keras.tree.flatten(data) if each is not None]
    shape = getattr(leaves[0], "shape", ()) if leaves else ()
    return keras.ops.shape(leaves[0])[0] if len(shape) else 1


def _size(each: Any) -> int:
    size = 1
    for length in () if each is None else each.shape:
        size *= int(length)
    return size if each is not None else 0


def _is_float(variable: Any) -> bool:
    return "float" in str(variable.dtype)


def keras_module() -> Any:
    """Keras, which is imported where a model is."""
    return sys.modules["keras"]


def is_tensorflow() -> bool:
    """Whether Keras runs on TensorFlow, else on torch."""
    return keras_module().config.backend() == "tensorflow"


def _is_eager() -> bool:
    return not is_tensorflow() or sys.modules["tensorflow"].executing_eagerly()


def _without_gradients() -> Any:
    return contextlib.nullcontext() if is_tensorflow() else sys.modules["torch"].no_grad()


def _warn_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        warnings.warn(text, UserWarning, stacklevel=2)
