"""accelerate's private names: what it knows of processes, for as long as a process lives.

Where one is missing, AttributeError: the pool's generation is not entered or left.

Seen with accelerate 1.15.0.
"""

from __future__ import annotations

from typing import Any


def knows_a_group() -> bool:
    """Whether it knows of processes that a group joins."""
    from accelerate.state import PartialState

    return PartialState._shared_state.get("backend") is not None


def known() -> dict[str, Any]:
    """Accelerate's state of its processes, by its own names."""
    from accelerate.state import AcceleratorState

    return AcceleratorState._shared_state


def forget() -> None:
    """Have it know nothing of processes, as at the start of one."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def forget_processes(state: object) -> None:
    """Have it know nothing of processes, which this PartialState is to find out."""
    kind: Any = type(state)
    kind._reset_state()


def leave_loops() -> None:
    """Have it be in no loop over data: one that was interrupted, another would take itself to be in."""
    from accelerate.state import GradientState

    if GradientState._shared_state:
        gradients = GradientState()
        gradients.dataloader_references = [None]
        gradients.sync_gradients = True
