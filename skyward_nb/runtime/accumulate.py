"""`sky.accumulate`: gradients of several micro-batches added up, synchronised with the last alone."""

from __future__ import annotations

import operator
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from skyward_nb.compat.torch_private import drop_unreduced_gradients
from skyward_nb.runtime import event_sink


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


def accumulate(model: Any, every: int, total: int | None = None) -> Accumulation:
    """Exchange gradients between ranks with every `every`-th micro-batch only.

    `with sky.accumulate(model, every=4) as last:` goes around forward and backward of each
    micro-batch, made once before the loop or anew in it; `last` is true on the one that
    synchronises, after which the optimizer steps. Gradients add up: divide the loss by `every` for
    their mean. With `total`, how many there are in an epoch, the incomplete rest at its end
    synchronises as well.

    The model may be, or hold, any number of DDP and FSDP2 (`fully_shard`) modules; with neither
    there is nothing to synchronise, and `last` is true just the same. Micro-batches are counted
    per model; one that raises is not counted. A call in another cell, or with other numbers, counts
    anew, and drops what FSDP2 modules hold unreduced of the step that was not ended: `zero_grad`
    does not reach it. Every rank has to come here equally often.

    Raises ValueError for numbers below 1, TypeError for what is no number, or no torch module.
    """
    module = getattr(sys.modules.get("torch"), "nn", None)
    if module is None or not isinstance(model, module.Module):
        kind = type(model).__name__
        raise TypeError(f"sky.accumulate: {kind} is not a torch.nn.Module; give the model")
    for name, value in (("every", every), ("total", 1 if total is None else total)):
        if operator.index(value) < 1:
            raise ValueError(f"sky.accumulate: {name}={value}; give a whole number of 1 or more")
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
