"""ipywidgets' private name: how a front end displays a widget.

Where it is missing, AttributeError: nothing is shown live.

Seen with ipywidgets 8.1.0 and 8.1.9.
"""

from __future__ import annotations

from typing import Any


def bundle_of(widget: Any) -> dict[str, Any]:
    """The MIME types by which a front end shows a widget."""
    return widget._repr_mimebundle_() or {}
