"""Which `DistributedDataParallel` models were made, for the time after a cut."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from skyward_nb.plugins import torch_models


@contextmanager
def models_remembered() -> Generator[None]:
    """Meanwhile, what is made of this class is known to `torch_models`."""
    from torch.nn.parallel import DistributedDataParallel

    made = DistributedDataParallel.__init__
    DistributedDataParallel.__init__ = _remembered(made)
    try:
        yield
    finally:
        DistributedDataParallel.__init__ = made


def _remembered(make: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - what it is
        make(self, *args, **kwargs)
        torch_models.remember(self)

    return __init__
