"""What `sky.plugins.keras` and `sky.integrations.keras` say of training beside the backend: seed, and averaging."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager

AVERAGE, SEED = "SKYWARD_KERAS_AVERAGE", "SKYWARD_KERAS_SEED"
"""Variables: with `no`, `fit` trains a model on each rank by itself; the seed that all ranks begin with."""
_NO = ("no", "0", "false")


def variables(seed: int | None, *, average: bool) -> dict[str, str]:
    """What ranks are to be told of these."""
    found = {} if seed is None else {SEED: str(seed)}
    return found if average else found | {AVERAGE: "no"}


def averages() -> bool:
    """Whether ranks that train together train one model."""
    return os.environ.get(AVERAGE, "").lower() not in _NO


def set_seed(env: Mapping[str, str] = os.environ) -> None:
    """Seed Python, NumPy and Keras's backend, if a seed is asked for; raises ValueError for what is none."""
    if seed := env.get(SEED):
        import keras

        keras.utils.set_random_seed(int(seed))


@contextmanager
def during(seed: int | None, average: bool) -> Generator[None]:
    """Meanwhile, train as is asked for; the seed is set once, here."""
    set_seed(variables(seed, average=average))
    before = os.environ.get(AVERAGE)
    if not average:
        os.environ[AVERAGE] = "no"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(AVERAGE, None)
        else:
            os.environ[AVERAGE] = before
