"""Tracebacks without some of their frames. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from traceback import walk_tb
from types import CodeType, TracebackType

_A_FRAME = re.compile(r"(\x1b\[[\d;]*m)*(Cell |File )")
_REPEATS = 3
"""As many frames of a line Python shows before it counts them."""


def without_frames(
    trace: TracebackType | None, is_left_out: Callable[[CodeType], bool]
) -> TracebackType | None:
    """A copy of a traceback without the frames of such code; None if no frame is left."""
    frames: list[TracebackType] = []
    while trace is not None:
        if not is_left_out(trace.tb_frame.f_code):
            frames.append(trace)
        trace = trace.tb_next
    return _joined(frames)


def without_repeats(
    trace: TracebackType | None, most: int
) -> tuple[TracebackType | None, dict[int, str]]:
    """A copy of a traceback with three frames of each line that repeats, and with `most` frames at most.

    And what is left out, in Python's words, by the number of frames that are kept before it.
    """
    kept: list[TracebackType] = []
    again: list[int] = []
    run = 0
    while trace is not None:
        run = run + 1 if kept and _line_of(trace) == _line_of(kept[-1]) else 1
        if run <= _REPEATS:
            kept.append(trace)
            again.append(0)
        else:
            again[-1] += 1
        trace = trace.tb_next
    if len(kept) <= most:
        return _joined(kept), _repeated(again)
    half = most // 2
    between = sum(1 + count for count in again[half:-half])
    said = _repeated(again[:half])
    before = [said[half]] if half in said else []
    said[half] = "\n".join([*before, f"[{between} more frame{'s' * (between > 1)}]"])
    said |= {half + at: words for at, words in _repeated(again[-half:]).items()}
    return _joined([*kept[:half], *kept[-half:]]), said


def _repeated(again: Sequence[int]) -> dict[int, str]:
    return {
        at: f"[Previous line repeated {count} more time{'s' * (count > 1)}]"
        for at, count in enumerate(again, 1)
        if count
    }


def with_words(
    lines: list[str], trace: TracebackType | None, left_out: Mapping[int, str]
) -> list[str]:
    """The lines of a traceback as IPython shows it, with words on what is left out behind so many of its frames."""
    if not left_out:
        return lines
    count = sum(1 for _ in walk_tb(trace))
    # Exceptions that it came from stand before it.
    frames = [at for at, line in enumerate(lines) if _A_FRAME.match(line)][-count:]
    whole = list(lines)
    for kept, words in sorted(left_out.items(), reverse=True):
        # IPython leaves out frames, too, as hidden ones: then all words stand behind the last.
        at = frames[kept - 1] if len(frames) == count else frames[-1] if frames else -2
        whole.insert(at + 1, f"{words}\n")
    return whole


def _line_of(trace: TracebackType) -> tuple[CodeType, int]:
    return trace.tb_frame.f_code, trace.tb_lineno


def _joined(frames: Sequence[TracebackType]) -> TracebackType | None:
    joined: TracebackType | None = None
    for each in reversed(frames):
        joined = TracebackType(joined, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return joined
