"""Who presses the button while machines are brought up."""

from __future__ import annotations

import os
import signal

from skyward_nb.pool.lines import Watch
from skyward_nb.protocol.events import Event, Step


def interrupts_at(step: str) -> Watch:
    """What watches a pool, and interrupts this process once, when the first step of this name is told."""
    pressed: list[Step] = []

    def watch(event: Event | None) -> None:
        if isinstance(event, Step) and event.name == step and not pressed:
            pressed.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    return watch
