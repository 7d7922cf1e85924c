"""The kernel's debug channel: requests of a front end's debugger pass the bridge to ranks first."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import skyward_nb
from skyward_nb.compat import debugpy_private
from skyward_nb.reports import present_debugger

if TYPE_CHECKING:
    from skyward_nb.reports.debug_bridge import Dap, DebugBridge


def open_for(kernel: Any) -> None:
    """Let the debugger of this kernel's front end see ranks, too; nothing where there is none.

    What that needs is imported once it is turned on.
    """
    own = getattr(kernel, "debugger", None)
    if own is None or "do_debug_request" in vars(kernel):
        return
    kernels = kernel.do_debug_request
    bridge = _bridge_to(own) if own.is_started else None

    async def do_debug_request(msg: Dap) -> Dap:
        nonlocal bridge
        if bridge is None and msg.get("command") == "initialize":
            bridge = _bridge_to(own)
        return await (kernels(msg) if bridge is None else bridge.answer(msg, kernels))

    kernel.do_debug_request = do_debug_request


def _bridge_to(own: Any) -> DebugBridge:
    debugpy: Any = importlib.import_module("debugpy")

    # Else agents would be started under debuggers, and wait for a front end.
    debugpy.configure(subProcess=False)
    debugpy_private.leave_programs_alone()
    # Where the kernel's main thread stands, nobody hears ranks.
    debugpy_private.stop_at_no_exception_of(str(Path(skyward_nb.__file__).parent))
    from skyward_nb.reports.debug_bridge import DebugBridge

    bridge = DebugBridge(own)
    present_debugger.connect(bridge)
    return bridge


def close(kernel: Any) -> None:
    """As it was before."""
    if kernel is not None and vars(kernel).pop("do_debug_request", None) is not None:
        present_debugger.connect(None)
