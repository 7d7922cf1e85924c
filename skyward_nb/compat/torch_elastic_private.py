"""torch's elastic agent: the private way in which it starts a worker.

Where the name is missing, AttributeError says which, and no worker is started.

Seen with torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def starting_workers(start: Callable[..., Any]) -> Generator[None]:
    """Meanwhile an agent starts a worker by `start(args, env, stdout, stderr)`, and by itself where that gives None."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    handler: Any = SubprocessHandler
    by_itself = handler._popen

    def popen(self: Any, args: Any, env: Any) -> Any:
        found = start(args, env, self._stdout, self._stderr)
        return by_itself(self, args, env) if found is None else found

    handler._popen = popen
    try:
        yield
    finally:
        handler._popen = by_itself
