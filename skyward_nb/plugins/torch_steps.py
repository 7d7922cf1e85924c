"""Steps of torch's optimizers, counted for `runtime/common_step`, and where ranks meet to agree on one."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from skyward_nb.compat import torch_private
from skyward_nb.plugins import torch_models
from skyward_nb.plugins.torch_stores import RankStores
from skyward_nb.runtime.common_step import common_step
from skyward_nb.words.info import InstanceInfo


class StoreMeeting:
    """Ranks meet at the pool's store, over a connection of their own, since another thread may wait in the first."""

    def __init__(self, info: InstanceInfo, stores: RankStores) -> None:
        self._info = info
        self._stores = stores

    def __call__(self, key: str, own: bytes, seconds: float) -> list[bytes] | None:
        """Tell the others `own`; what all told by rank, or None where one of them is late."""
        info, limit = self._info, timedelta(seconds=seconds)
        keys = [f"{key}/{rank}" for rank in range(info.world_size)]
        try:
            store = self._stores.open(limit)
            store.set(keys[info.rank], own.decode())
            store.wait(keys, limit)
            return [store.get(each) for each in keys]
        except RuntimeError:
            return None


@contextmanager
def steps_counted(info: InstanceInfo, stores: RankStores) -> Generator[None]:
    """Meanwhile steps of all optimizers of this process are counted, and ranks stop together after one."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    hooks = (
        register_optimizer_step_pre_hook(_begins),
        register_optimizer_step_post_hook(_ended),
    )
    meeting = StoreMeeting(info, stores) if info.world_size > 1 else None
    common_step.connect(meeting, _watch_backward)
    try:
        yield
    finally:
        common_step.connect(None)
        for hook in hooks:
            hook.remove()


def _watch_backward(on: bool) -> None:
    torch_private.watch_backward(_backward_begins if on else None)


def _backward_begins() -> None:
    # One within another recomputes what a checkpoint has left out.
    if not torch_private.is_in_backward():
        common_step.backward_begins()


def _begins(*_: Any) -> None:
    # Those that step within a backward pass end no step of the training.
    if not torch_private.is_in_backward():
        common_step.step_begins()


def _ended(optimizer: Any, *_: Any) -> None:
    torch_models.note_step(optimizer)
    common_step.step_ended()
