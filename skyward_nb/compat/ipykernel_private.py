"""ipykernel's private name: that a kernel was told to end.

Where it is missing, a kernel that is restarted is one that ends: its pools end with it.

Seen with ipykernel 6.29.5, 7.0.0 and 7.4.0.
"""

from __future__ import annotations

from typing import Any


def shutdown_reply(kernel: object) -> dict[str, Any] | None:
    """The kernel's answer to the request to end, which says whether it restarts; None before that."""
    return getattr(kernel, "_shutdown_message", None)
