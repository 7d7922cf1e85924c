"""The canvas for this process: widgets, bundles or log lines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from skyward_nb.picture.text import as_text
from skyward_nb.show.canvas import BundleCanvas, Canvas, WidgetCanvas, bundle
from skyward_nb.show.cell_outputs import CellOutputs
from skyward_nb.show.kernel_status import BusyStatus
from skyward_nb.show.lab_cell import LabCell
from skyward_nb.show.log import LogCanvas
from skyward_nb.view.run_view import RunView

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def canvas_of(shell: InteractiveShell | None) -> Canvas:
    """The canvas of the running cell or script; widgets only where a person may be looking.

    Programs that execute notebooks take no input: they get bundles. `SKYWARD_DISPLAY=html` or `widgets`
    overrides that.
    """
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None:
        return LogCanvas()
    request = kernel.get_parent()
    looks = request.get("content", {}).get("allow_stdin", False)
    wanted = os.environ.get("SKYWARD_DISPLAY") or ("widgets" if looks else "html")
    if wanted != "widgets":
        return BundleCanvas()
    status = BusyStatus(shell)
    outputs = CellOutputs.in_lab(kernel)
    return WidgetCanvas(status, LabCell(outputs, request, status) if outputs else None)


def draw_once(shell: InteractiveShell, what: RunView | dict[str, Any]) -> None:
    """Show a view, or a bundle, that does not change any more; where there is no notebook, as text.

    Of a view that is all of its output, of a bundle the last that it has as text.
    """
    if getattr(shell, "kernel", None) is None:
        print(as_text(what) if isinstance(what, RunView) else what["text/plain"])
        return
    from IPython.display import display

    data = bundle(what) if isinstance(what, RunView) else what
    # Of the tabs of one name in a page, only one would be chosen.
    own = data["text/html"].replace('name="sky-', f'name="sky-{os.urandom(4).hex()}-')
    display({**data, "text/html": own}, raw=True)
