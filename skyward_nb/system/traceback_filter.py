"""Tracebacks without some of their frames. Pure."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, TracebackType


def without_frames(
    trace: TracebackType | None, is_left_out: Callable[[CodeType], bool]
) -> TracebackType | None:
    """A copy of a traceback without the frames of such code; None if no frame is left."""
    frames: list[TracebackType] = []
    while trace is not None:
        if not is_left_out(trace.tb_frame.f_code):
            frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for each in reversed(frames):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept
