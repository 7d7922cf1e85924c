"""A rank's own limit of memory while code of the user runs.

RLIMIT_DATA, as an allocation that goes beyond it fails with an error that the cell raises, and the rank and
its names live on. It counts private memory that is reserved, touched or not, so the limit is set anew for each
cell: what is reserved now, and what the rank may still take. RLIMIT_AS would count code and address space,
too: under 1 GB of that, JAX aborts as it starts, where it holds 0.1 GB. A control group would kill the rank,
and notebooks seldom may make one. What this limit does not see, processes that a rank starts, is watched
by the agent (`node/memory_watch`): one that is forked has no limit of its own; a program that a cell starts
keeps what was left to the cell.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Generator

from skyward_nb.system.memory import own_memory, reserved_data
from skyward_nb.words.errors import spell_size
from skyward_nb.words.rank_limits import spell_memory

_LEAST = 16_000_000
"""Bytes that each cell may take beyond what it has: one that has used up the limit can still `del`."""
_STEP = 250_000_000
"""Bytes of which an advised limit is a multiple."""


class MemoryLimit:
    """Limits what the main thread's present cell takes; without a limit, it does nothing."""

    def __init__(self, limit: int | None, pid: int) -> None:
        self._limit = limit
        self._pid = pid
        if limit is not None:
            os.register_at_fork(after_in_child=_lift_in_child)

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Let allocations beyond the limit fail in this block."""
        if self._limit is None:
            yield
            return
        before, most = resource.getrlimit(resource.RLIMIT_DATA)
        allowed = reserved_data() + max(_LEAST, self._limit - own_memory(self._pid))
        if most != resource.RLIM_INFINITY:
            allowed = min(allowed, most)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, most))
        try:
            yield
        finally:
            self._lift(allowed, before)

    def _lift(self, allowed: int, before: int) -> None:
        """End the limit, unless code of the user has set one of its own."""
        now, most = resource.getrlimit(resource.RLIMIT_DATA)
        if now == allowed:
            is_above = most != resource.RLIM_INFINITY and not 0 <= before <= most
            resource.setrlimit(resource.RLIMIT_DATA, (most if is_above else before, most))

    def why_too_small(self) -> str:
        """Why no cell can run within the limit, or ""."""
        held = own_memory(self._pid)
        if self._limit is None or held + _LEAST <= self._limit:
            return ""
        enough = spell_memory(-(-2 * held // _STEP) * _STEP)
        return (
            f"{spell_memory(self._limit)} is too small: a rank holds {spell_size(held)} before its first cell. "
            f"Write {enough}, or leave it out"
        )


def _lift_in_child() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
