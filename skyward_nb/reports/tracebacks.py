"""Tracebacks as a person wants them: their own frames, also those on a rank, and few of this package."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, ParamSpec, TypeVar

import tblib

from skyward_nb.protocol.message_parts import CodeFrame
from skyward_nb.system.traceback_filter import without_frames
from skyward_nb.words.errors import RemoteError, SkyError

P = ParamSpec("P")
R = TypeVar("R")
_LAST_LINE = (1 << 31) - 1
_HERE = str(Path(__file__).parent.parent)


def traceback_of(frames: Sequence[CodeFrame]) -> TracebackType | None:
    """A traceback of frames that were another process's."""
    made: dict[str, Any] | None = None
    for frame in reversed(frames):
        code = {"co_filename": frame.file, "co_name": frame.function}
        line = min(max(frame.line, 1), _LAST_LINE)
        place = {"f_code": code, "f_lineno": line, "f_globals": {}, "f_locals": {}}
        made = {"tb_frame": place, "tb_lineno": line, "tb_next": made}
    return None if made is None else tblib.Traceback.from_dict(made).as_traceback()


def shortened(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose errors have no frames of this package but its own."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            # Which says all there is to say, but for a rank's own.
            if isinstance(error, SkyError) and not isinstance(error, RemoteError):
                error.__cause__, error.__suppress_context__ = None, True
            error.__traceback__ = without_frames(error.__traceback__, _is_ours)
            raise

    return call


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_HERE)
