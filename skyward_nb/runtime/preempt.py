"""`sky.on_preempt`: what a rank still does when its machine is about to be taken back."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

from skyward_nb.protocol.commands import POD_ENDS, TIME_LIMIT, MachineReclaimed

F = TypeVar("F", bound=Callable[[], object])
_lock = threading.Lock()
_hooks: list[Callable[[], object]] = []
_notice: MachineReclaimed | None = None


def on_preempt(function: F) -> F:
    """Register `function` to be called on this rank when its machine is about to be taken back.

    EC2 does that with spot machines, Slurm with jobs whose time limit is near, Kubernetes with pods that it evicts. The machine then has up to two minutes, a pod 20 seconds. The function is called once, in a thread beside the cell:
    it should save what is needed to go on elsewhere. A function that is registered after the notice is called at once.
    As a decorator it returns the function.
    """
    with _lock:
        _hooks.append(function)
        is_late = _notice is not None
    if is_late:
        _call(function)
    return function


def taken_back(notice: MachineReclaimed) -> None:
    """Say so, and call what is registered, on a thread of its own."""
    global _notice
    with _lock:
        if _notice is not None:
            return
        _notice, hooks = notice, list(_hooks)
    threading.Thread(target=_go, args=(notice, hooks), name="skyward-preempt", daemon=True).start()


def _go(notice: MachineReclaimed, hooks: list[Callable[[], object]]) -> None:
    saves = (
        f"; {len(hooks)} function{'s' * (len(hooks) != 1)} of sky.on_preempt run" if hooks else ""
    )
    if notice.action == TIME_LIMIT:
        said = f"the time limit of this machine's job ends it at {notice.at}"
    elif notice.action == POD_ENDS:
        said = f"Kubernetes ends this pod at {notice.at}: it is evicted or deleted"
    else:
        said = f"EC2 takes this machine back at {notice.at} ({notice.action})"
    sys.stderr.write(f"{said}{saves}\n")
    sys.stderr.flush()
    for hook in hooks:
        _call(hook)


def _call(hook: Callable[[], object]) -> None:
    """Call one; what it raises is shown, and hinders no other."""
    try:
        hook()
    except Exception:  # noqa: BLE001 - it is the user's own code, and is shown
        traceback.print_exc()
