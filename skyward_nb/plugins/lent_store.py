"""A store of torch that is lent while connections are made: the backend that they are for keeps no hold of it.

Gloo keeps the store that it met at for good, and a group keeps all backends that it ever had: with the head's
store its server would stay, too, with a thread and eight descriptors.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any


@contextmanager
def lent(store: Any) -> Generator[Any]:
    """Meanwhile, a store that passes all on to this one; afterwards one that answers nothing."""
    import torch.distributed as dist

    kind: Any = dist.Store  # pyright: ignore[reportPrivateImportUsage]

    class LentStore(kind):
        def __init__(self) -> None:
            super().__init__()
            self.store: Any = store

        def set(self, key: str, value: bytes) -> None:
            self.store.set(key, value)

        def get(self, key: str) -> bytes:
            return self.store.get(key)

        def add(self, key: str, amount: int) -> int:
            return self.store.add(key, amount)

        def check(self, keys: list[str]) -> bool:
            return self.store.check(keys)

        def wait(self, keys: list[str], *timeout: timedelta) -> None:
            self.store.wait(keys, *timeout)

    made = LentStore()
    try:
        yield made
    finally:
        made.store = None
