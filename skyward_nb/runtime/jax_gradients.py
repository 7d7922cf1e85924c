"""Gradients of JAX over micro-batches, averaged between devices once: what `sky.accumulate` does there.

Along `dp` and `fsdp` every device works by itself on its rows (`shard_map`), else the compiler would average
the gradients of each micro-batch. Along `tp` it splits the work as the arrays lie.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from skyward_nb.runtime import jax_arrays
from skyward_nb.runtime.process_group import entered
from skyward_nb.runtime.sync import mesh as pool_mesh
from skyward_nb.words.mesh import dtype_name, other_axes

_ROWS = ("dp", "fsdp")
"""The axes along which devices have different rows."""


@dataclass(frozen=True)
class GradientOptions:
    """How gradients are made: of how many micro-batches, with what besides the loss, in which types."""

    every: int
    has_aux: bool
    reduce_dtype: Any
    param_dtype: Any
    mesh: Any


def gradient_function(loss: Callable[..., Any], options: GradientOptions) -> Callable[..., Any]:
    """A function of what `loss` takes, that gives what `jax.value_and_grad(loss)` does."""
    makers: dict[Any, _Gradients] = {}
    compute = _dtype(options.param_dtype)
    options = replace(
        options, param_dtype=compute, reduce_dtype=_dtype(options.reduce_dtype) or compute
    )

    @functools.wraps(loss)
    def value_and_grad(model: Any, /, *batch: Any) -> Any:
        mesh = options.mesh
        if mesh is None and "jax" in entered:
            mesh = pool_mesh("jax")
        if mesh is not None and (why := other_axes(mesh.axis_names)):
            raise ValueError(f"sky.accumulate {why}")
        if mesh not in makers:
            makers[mesh] = _Gradients(loss, options, mesh)
        return makers[mesh].of(model, batch)

    return value_and_grad


class _Gradients:
    def __init__(self, loss: Callable[..., Any], options: GradientOptions, mesh: Any) -> None:
        self.loss, self.options, self.mesh = loss, options, mesh
        shape: dict[str, int] = dict(mesh.shape) if mesh is not None else {}
        self.axes = tuple(axis for axis in _ROWS if shape.get(axis, 1) > 1)
        self.devices = math.prod(shape[axis] for axis in self.axes)
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def of(self, model: Any, batch: tuple[Any, ...]) -> Any:
        """Loss and gradients for a model, whose other state is changed in place as the loss changes it."""
        self._check(batch)
        if not jax_arrays.is_module(model):
            told, gradients, _ = self._function(None)(model, (), self._indexes(), batch)
            return told if self.options.has_aux else told[0], gradients
        from flax import nnx

        graph, weights, rest = nnx.split(model, nnx.Param, ...)
        told, gradients, rest = self._function(graph)(weights, rest, self._indexes(), batch)
        nnx.update(model, rest)
        return told if self.options.has_aux else told[0], gradients

    def _check(self, batch: tuple[Any, ...]) -> None:
        """Raise ValueError where a batch is of one rank alone, or has rows that cannot be dealt out."""
        import jax
        from jax.core import Tracer

        parts = self.devices * self.options.every
        for array in jax.tree.leaves(batch):
            if not getattr(array, "shape", ()):
                raise ValueError(
                    "sky.accumulate: a part of the batch has no rows; bind it to the loss"
                )
            if array.shape[0] % parts:
                raise ValueError(
                    f"sky.accumulate: {array.shape[0]} rows cannot be divided into every="
                    f"{self.options.every} micro-batches on each of {self.devices} parts of the data"
                )
            is_own = not isinstance(array, jax.Array) or (
                not isinstance(array, Tracer) and array.is_fully_addressable
            )
            if is_own and self.axes and jax.process_count() > 1:
                raise ValueError(
                    "sky.accumulate: a part of the batch is this rank's alone; make one of all ranks: "
                    "jax.make_array_from_process_local_data(NamedSharding(sky.mesh(), "
                    f"P({self.axes})), part)"
                )

    def _indexes(self) -> Any:
        """A number for each part of the data."""
        import numpy as np

        return np.arange(self.devices)

    def _function(self, graph: Any) -> Callable[..., Any]:
        """What is compiled once for modules of a graph, or for pytrees."""
        import jax

        if graph not in self.compiled:
            loss = _Plain(self.loss) if graph is None else _OfModule(self.loss, graph)
            self.compiled[graph] = jax.jit(
                self._over_devices(functools.partial(self._accumulated, loss))
            )
        return self.compiled[graph]

    def _over_devices(self, run: Callable[..., Any]) -> Callable[..., Any]:
        import jax

        def on_device(weights: Any, *given: Any) -> Any:
            told, gradients, rest = run(weights, *given)
            if self.axes:
                told, gradients, rest = self._averaged(told, gradients, rest)
            gradients = jax.tree.map(lambda a, like: a.astype(like.dtype), gradients, weights)
            return told, gradients, rest

        if not self.axes:
            return on_device
        whole, rows = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(self.axes)
        return jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(whole, whole, rows, rows),
            out_specs=whole,
            axis_names=set(self.axes),
            check_vma=False,
        )

    def _accumulated(
        self, loss: Any, weights: Any, rest: Any, index: Any, batch: tuple[Any, ...]
    ) -> Any:
        """Means over the micro-batches of this device: of what the loss tells, and of the gradients."""
        import jax
        import jax.numpy as jnp

        every = self.options.every
        parts = jax.tree.map(lambda a: a.reshape(every, -1, *a.shape[1:]), self._cast(batch))
        makes = jax.value_and_grad(
            lambda given, *more: self._told(loss(self._cast(given), *more)), has_aux=True
        )
        started = _own_keys(rest, index)

        def add(carry: Any, part: Any) -> tuple[Any, None]:
            total, before = carry
            (value, (aux, after)), gradients = makes(weights, before, part)
            total = jax.tree.map(lambda a, b: a + b / every, total, ((value, aux), gradients))
            return (total, after), None

        first = jax.tree.map(lambda a: a[0], parts)
        (value, (aux, _)), gradients = jax.eval_shape(makes, weights, started, first)
        zeros = jax.tree.map(
            lambda a: jnp.zeros(a.shape, jnp.result_type(a.dtype, jnp.float32)),
            ((value, aux), gradients),
        )
        ((told, gradients), after), _ = jax.lax.scan(add, (zeros, started), parts)
        return told, gradients, _with_keys_of(after, rest)

    def _told(self, given: Any) -> Any:
        """The loss in float32 at least, and (aux, state)."""
        import jax.numpy as jnp

        said, after = given
        value, aux = said if self.options.has_aux else (said, ())
        return value.astype(jnp.result_type(value.dtype, jnp.float32)), (aux, after)

    def _averaged(self, told: Any, gradients: Any, rest: Any) -> Any:
        import jax

        def average(array: Any) -> Any:
            wide = array.astype(jax.numpy.result_type(array.dtype, jax.numpy.float32))
            return jax.lax.pmean(wide, self.axes).astype(array.dtype)

        told = jax.tree.map(average, told)
        rest = jax.tree.map(lambda a: average(a) if jax_arrays.is_float(a) else a, rest)
        return told, jax.tree.map(self._reduced, gradients), rest

    def _reduced(self, gradient: Any) -> Any:
        """The mean over devices, in the type for that."""
        import jax
        import jax.numpy as jnp

        kind = self.options.reduce_dtype
        if kind is None or kind == gradient.dtype:
            return jax.lax.pmean(gradient, self.axes)
        if self.mesh.devices.flat[0].platform != "cpu":
            return jax.lax.pmean(gradient.astype(kind), self.axes).astype(gradient.dtype)
        # XLA adds up in float32 on CPUs, and ends the process where it is to make that of bfloat16 itself.
        bits = jnp.finfo(kind)
        rounded = functools.partial(
            jax.lax.reduce_precision, exponent_bits=bits.nexp, mantissa_bits=bits.nmant
        )
        return rounded(jax.lax.pmean(rounded(gradient), self.axes))

    def _cast(self, tree: Any) -> Any:
        import jax

        kind = self.options.param_dtype
        if kind is None:
            return tree
        return jax.tree.map(lambda a: a.astype(kind) if jax_arrays.is_float(a) else a, tree)


class _Plain:
    """A loss of a pytree, as a function of weights, other state and a part of the batch."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        self._loss = loss

    def __call__(self, weights: Any, rest: Any, part: tuple[Any, ...]) -> Any:
        """What the loss says, and the state as it was."""
        return self._loss(weights, *part), rest


class _OfModule:
    """A loss of a module of nnx, as such a function."""

    def __init__(self, loss: Callable[..., Any], graph: Any) -> None:
        self._loss, self._graph = loss, graph

    def __call__(self, weights: Any, rest: Any, part: tuple[Any, ...]) -> Any:
        """What the loss says, and the module's other state after it."""
        from flax import nnx

        model = nnx.merge(self._graph, weights, rest, copy=True)
        said = self._loss(model, *part)
        return said, nnx.split(model, nnx.Param, ...)[2]


def _own_keys(rest: Any, index: Any) -> Any:
    """The state with random keys of this device's own, so that dropout differs where rows do."""
    import jax

    place = jax.numpy.ravel(index)[0]
    fold = jax.numpy.vectorize(lambda key: jax.random.fold_in(key, place))
    return jax.tree.map(lambda a: fold(a) if jax_arrays.is_key(a) else a, rest)


def _with_keys_of(after: Any, before: Any) -> Any:
    """The state after, with the random keys of all devices again."""
    import jax

    return jax.tree.map(lambda a, b: b if jax_arrays.is_key(b) else a, after, before)


def _dtype(wanted: Any) -> Any:
    if wanted is None:
        return None
    import jax.numpy as jnp

    return jnp.dtype(dtype_name("sky.accumulate", wanted) if isinstance(wanted, str) else wanted)
