"""What is used of ipykernel's own debugger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from skyward_nb.reports.rank_threads import Dap


class KernelDebugger(Protocol):
    """What is used of ipykernel's own debugger."""

    is_started: bool
    breakpoint_list: dict[str, list[Dap]]
    stopped_threads: set[int]
    just_my_code: bool
    event_callback: Callable[[Dap], None]

    def accept_variable(self, variable_name: str) -> bool:
        """Whether a variable is a person's."""
        ...
