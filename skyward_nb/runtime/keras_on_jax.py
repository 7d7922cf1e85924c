"""Keras 3 on JAX, one model over all ranks: what of it concerns one rank alone. It saves, and gets its predictions.

To tell which attributes an optimizer has of its own, Keras makes one while it saves. Under a distribution its
variables would be made on the devices of all ranks, which waits for ranks that do not save. And `predict`
would fetch the outputs of all ranks, which no rank has: each gets those of the rows that it gave.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from skyward_nb.compat.keras_private import SAVES
from skyward_nb.runtime.hooks import Changes


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch the functions that save."""
    for name in SAVES:
        if (function := vars(module).get(name)) is not None:
            changes.put(module, name, _here_alone(function))


def _here_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def save(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        distribution = sys.modules["keras"].distribution
        before = distribution.distribution()
        if before is None:
            return function(*args, **kwargs)
        distribution.set_distribution(None)
        try:
            return function(*args, **kwargs)
        finally:
            distribution.set_distribution(before)

    return save


@contextmanager
def own_predictions(model: Any) -> Generator[None]:
    """Meanwhile, `predict` of a model gets the outputs of the rows that this rank gives."""
    import jax

    model.make_predict_function()
    predict = model.predict_function

    def predict_own(state: Any, iterator: Any) -> Any:
        outputs, state = predict(state, iterator)
        return jax.tree.map(_own_rows, outputs), state

    model.predict_function = predict_own
    try:
        yield
    finally:
        model.predict_function = predict


def _own_rows(output: Any) -> Any:
    """The rows of a batch's output that lie here; collective where a row lies on several ranks."""
    import numpy as np

    if output.is_fully_addressable or output.is_fully_replicated:
        return np.asarray(output)
    parts = {
        (shard.index[0].start or 0): shard.data
        for shard in sorted(output.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    }
    if all(part.shape[1:] == output.shape[1:] for part in parts.values()):
        return np.concatenate([np.asarray(part) for part in parts.values()])
    from jax.experimental import multihost_utils

    whole = multihost_utils.process_allgather(output, tiled=True)
    rows = [range(start, start + part.shape[0]) for start, part in parts.items()]
    return np.asarray(whole)[[row for each in rows for row in each]]
