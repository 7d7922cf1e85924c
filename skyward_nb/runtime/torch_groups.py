"""A `DistributedDataParallel` that lets go of its process group last.

Its reducer, when it is the last to hold a group that was destroyed, ends that group's threads while
it holds the interpreter's lock, which such a thread may just want: it then frees what it kept of a
backward pass. Scripts that end with `destroy_process_group()` hang there now and then (seen with
torch 2.13: pt_gloo_runloop in `~AsyncWork`, the main thread in `~Reducer`; pytorch/pytorch#56297).
The group's own Python object ends it without the lock. So that shall go last: attributes go in the
order in which they were set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from skyward_nb.runtime.hooks import Changes

IF_NOT = "a script that destroys its process group may hang then"
"""What may be where the class cannot be patched."""
_GROUP = "process_group"


def patch(module: ModuleType, changes: Changes) -> None:
    """Patch `DistributedDataParallel`, for groups of the pool and for those that a script forms by itself."""
    model: Any = module.DistributedDataParallel
    changes.put(model, "__init__", _with_its_group_last(model.__init__))


def _with_its_group_last(make: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - what it is
        make(self, *args, **kwargs)
        if _GROUP in self.__dict__:
            self.__dict__[_GROUP] = self.__dict__.pop(_GROUP)

    return __init__
