"""`sky.accumulate`: gradients of several micro-batches added up, exchanged between ranks once."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, overload
from weakref import WeakKeyDictionary

from skyward_nb.compat.torch_models_private import drop_unreduced_gradients
from skyward_nb.runtime import event_sink
from skyward_nb.runtime.indexing import is_of


@dataclass
class _Count:
    """How far a model is: micro-batches since it last synchronised, and since the epoch began.

    It belongs to one run of one size, so that a cell that was interrupted, on ranks that were not
    equally far, leaves no count behind that would have them synchronise at different times.
    """

    run: int
    every: int
    total: int | None
    since: int = 0
    place: int = 0
    is_open: bool = False

    @property
    def is_last(self) -> bool:
        """Whether the next micro-batch ends a step, or the epoch."""
        return self.since + 1 == self.every or self.place + 1 == self.total

    def advance(self) -> None:
        """A micro-batch is done."""
        self.since = 0 if self.is_last else self.since + 1
        self.place = 0 if self.place + 1 == self.total else self.place + 1


_counts: WeakKeyDictionary[Any, _Count] = WeakKeyDictionary()


class Accumulation:
    """Around forward and backward of one micro-batch: `with accumulation as last:`."""

    def __init__(self, model: Any, count: _Count) -> None:
        self._model = model
        self._count = count
        self._held = ExitStack()

    def __enter__(self) -> bool:
        """Whether this micro-batch synchronises, so that the optimizer may step after it."""
        count = self._count
        if count.is_open:
            raise RuntimeError("sky.accumulate: one micro-batch is within another; leave it first")
        last = count.is_last
        with ExitStack() as held:
            if not last:
                held.enter_context(_unsynchronised(self._model))
            self._held = held.pop_all()
        count.is_open = True
        return last

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Count the micro-batch, unless it failed."""
        self._count.is_open = False
        self._held.__exit__(kind, error, trace)
        if kind is None:
            self._count.advance()


class _Module(Protocol):
    """A `torch.nn.Module`, by two of its methods."""

    def zero_grad(self, set_to_none: bool = True) -> None: ...

    def named_parameters(self) -> Any: ...


@overload
def accumulate(model: _Module, every: int, total: int | None = None) -> Accumulation: ...
@overload
def accumulate(
    model: Callable[..., Any],
    every: int,
    *,
    has_aux: bool = False,
    reduce_dtype: Any = None,
    param_dtype: Any = None,
    mesh: Any = None,
) -> Callable[..., Any]: ...
def accumulate(
    model: Any,
    every: int,
    total: int | None = None,
    *,
    has_aux: bool = False,
    reduce_dtype: Any = None,
    param_dtype: Any = None,
    mesh: Any = None,
) -> Any:
    """Exchange gradients between ranks once for `every` micro-batches.

    **torch**: `with sky.accumulate(model, every=4) as last:` goes around forward and backward of each
    micro-batch, made once before the loop or anew in it; `last` is true on the one that
    synchronises, after which the optimizer steps. Gradients add up: divide the loss by `every` for
    their mean. With `total`, how many there are in an epoch, the incomplete rest at its end
    synchronises as well.

    The model may be, or hold, any number of DDP and FSDP2 (`fully_shard`) modules; with neither
    there is nothing to synchronise, and `last` is true just the same. Micro-batches are counted
    per model; one that raises is not counted. A call in another cell, or with other numbers, counts
    anew, and drops what FSDP2 modules hold unreduced of the step that was not ended: `zero_grad`
    does not reach it. Every rank has to come here equally often.

    **JAX**: `sky.accumulate(loss, every=4)` of a function is one that takes what `loss(model, *batch)`
    does and gives what `jax.value_and_grad(loss)` would: the loss, with `has_aux` a pair, and the
    gradients. The batch is that of a whole step, arrays of all ranks with rows along their first axis;
    each device cuts its rows into `every` micro-batches, works through them one after the other, and
    the mean of their gradients is averaged over the mesh's `dp` and `fsdp` at the end. Losses and `aux` are
    means, too; so a loss is to be a mean over rows. Call it in the function that you `jit`; else
    it is compiled here, once: what `loss` reads beside its arguments stays as it was at the first call.
    A pytree's gradients are a pytree; those of a module of nnx are for `optimizer.update(model, grads)`,
    and its other state goes on from one micro-batch to the next. Each device has weights and gradients
    whole along `fsdp` meanwhile.

    `param_dtype` is what weights and batch are computed in, `reduce_dtype` what gradients are
    averaged in (`param_dtype` unless given): `"bf16"`, `jnp.bfloat16` … Weights and
    gradients keep their own types. On CPUs values are rounded so and sent as float32. `mesh` is `sky.mesh()` unless it is given.

    Raises ValueError for numbers below 1, for rows that cannot be divided, and for a batch of one rank
    alone; TypeError for what is no number, or neither a torch module nor a function.
    """
    for name, value in (("every", every), ("total", 1 if total is None else total)):
        if operator.index(value) < 1:
            raise ValueError(f"sky.accumulate: {name}={value}; give a whole number of 1 or more")
    if is_of(model, "torch.nn", "Module"):
        _refuse(
            "a torch.nn.Module",
            has_aux=has_aux,
            reduce_dtype=reduce_dtype,
            param_dtype=param_dtype,
            mesh=mesh,
        )
        return _for_module(model, every, total)
    if not callable(model) or "jax" not in sys.modules:
        kind = type(model).__name__
        raise TypeError(
            f"sky.accumulate: {kind} is not a torch.nn.Module, or a function where JAX is used; give "
            "the model, or with JAX its loss"
        )
    from skyward_nb.runtime.jax_gradients import GradientOptions, gradient_function

    _refuse("a function of JAX", total=total)
    options = GradientOptions(every, has_aux, reduce_dtype, param_dtype, mesh)
    return gradient_function(model, options)


def _refuse(what: str, **options: Any) -> None:
    for name, value in options.items():
        if value not in (None, False):
            raise TypeError(f"sky.accumulate: {name}= is not for {what}")


def _for_module(model: Any, every: int, total: int | None) -> Accumulation:
    count = _counts.get(model)
    run = event_sink.run()
    if count is None or (count.run, count.every, count.total) != (run, every, total):
        if count is not None:
            _drop_unreduced(model)
        count = _counts[model] = _Count(run, every, total)
    return Accumulation(model, count)


@contextmanager
def _unsynchronised(model: Any) -> Generator[None]:
    """Meanwhile, backward keeps gradients on this rank."""
    from torch.nn.parallel import DistributedDataParallel

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, DistributedDataParallel):
                stack.enter_context(module.no_sync())
            elif _is_fully_sharded(module):
                stack.enter_context(_fully_sharded(module))
        yield


def _is_fully_sharded(module: Any) -> bool:
    """Whether `fully_shard` was applied to this very module."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return isinstance(module, getattr(fsdp, "FSDPModule", ()))


def _drop_unreduced(model: Any) -> None:
    """Drop gradients that FSDP2 keeps on this rank until they are reduced."""
    for module in filter(_is_fully_sharded, model.modules()):
        drop_unreduced_gradients(module)


@contextmanager
def _fully_sharded(module: Any) -> Generator[None]:
    """What it was before cannot be asked: afterwards it synchronises."""
    module.set_requires_gradient_sync(False, recurse=False)
    try:
        yield
    finally:
        module.set_requires_gradient_sync(True, recurse=False)
