"""The bridge to this kernel's front end, for each run to ask: it is imported once a debugger is turned on.

The extension's import includes this module, which therefore imports messages and words where it uses them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skyward_nb.pool.pool import Pool
    from skyward_nb.reports.debug_bridge import DebugBridge

_DISCONNECT = json.dumps({"type": "request", "seq": 0, "command": "disconnect", "arguments": {}})

_bridge: DebugBridge | None = None


def present() -> DebugBridge | None:
    """The bridge of this kernel; None where no front end can debug."""
    return _bridge


def connect(bridge: DebugBridge | None) -> None:
    """From now on runs ask this bridge."""
    global _bridge
    _bridge = bridge


@contextmanager
def unfollowed() -> Generator[None]:
    """While inside, this kernel's own debugger does not follow this thread.

    To follow the first calls of what runs a cell on ranks takes a second. Of the notebook's code that calls what packs
    values, such as a `__reduce__`: nothing stops there.
    """
    bridge = _bridge
    if bridge is None or not bridge.is_on:
        yield
        return
    debugpy = sys.modules["debugpy"]
    debugpy.trace_this_thread(False)
    try:
        yield
    finally:
        if bridge.is_on:
            debugpy.trace_this_thread(True)


def stand(ranks: Iterable[int]) -> str:
    """What a picture says of ranks that stand."""
    from skyward_nb.words.ranks import spell_ranks

    there = sorted(ranks)
    verb = "stands" if len(there) == 1 else "stand"
    plural = "s" * (len(there) != 1)
    return f"rank{plural} {spell_ranks(there)} {verb} at a breakpoint: go on in the debugger"


def let_go(pool: Pool, run: int, ranks: tuple[int, ...]) -> None:
    """Have ranks go on, and stop no more in this run: it is to end, or nobody has their debuggers."""
    from skyward_nb.protocol.commands import DebugRequest

    pool.lines.send(DebugRequest(run, ranks, _DISCONNECT))
