"""Which canvas there is where this runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from skyward_nb.show.canvas import BundleCanvas, Canvas, WidgetCanvas
from skyward_nb.show.log import LogCanvas

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def canvas_of(shell: InteractiveShell | None) -> Canvas:
    """Where the running cell can draw, or a script; widgets only where somebody may be looking.

    Front ends that run notebooks by themselves take no input, and say so.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return LogCanvas()
    looks = kernel.get_parent().get("content", {}).get("allow_stdin", False)
    wanted = os.environ.get("SKYWARD_DISPLAY") or ("widgets" if looks else "html")
    return WidgetCanvas() if wanted == "widgets" else BundleCanvas()
