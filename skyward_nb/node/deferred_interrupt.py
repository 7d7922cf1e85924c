"""Interrupts in code that must not be interrupted, deferred until it has returned.

JAX keeps its context (mesh, tracing) in variables of the thread that it sets and resets: an exception
between the two leaves them set, and later cells are computed in a wrong context. A signal during native
code is handled exactly there, after a collective. torch's `no_grad` is of the same kind. A package of which an
import was torn cannot be imported again: asyncio then lacks names for as long as the process lives.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from skyward_nb.compat.known_frames import UNTORN
from skyward_nb.words.source_code import is_library

_OF_EITHER = ("/contextlib.py", "/functools.py", "/weakref.py")
_HANDLERS = ("/node/mailbox.py", "/node/deferred_interrupt.py")
"""Handlers of signals: a signal within a handler finds these frames above the code in question."""
_IMPORTS = "<frozen importlib"
_OWN = str(Path(__file__).parents[1])
_LOOKS, _LOOKS_AT_IMPORTS = 10, 30
_BETWEEN_LOOKS = 0.05
"""Seconds; a long trace of a large model is interrupted rather than killed, and so is an import.

Looks are counted, not time: a process that was stopped has had no time to return.
"""


def user_of(frame: FrameType | None) -> FrameType | None:
    """The frame to which code that must not be torn returns; None where `frame` is not in such code."""
    untorn = False
    while frame is not None and frame.f_code.co_filename.endswith(_HANDLERS):
        frame = frame.f_back
    if (importer := _importer(frame)) is not None:
        return importer
    while frame is not None:
        file = frame.f_code.co_filename
        if any(part in file for part in UNTORN):
            untorn = True
        elif not file.endswith(_OF_EITHER):
            return frame if untorn else None
        frame = frame.f_back
    return None


def _importer(frame: FrameType | None) -> FrameType | None:
    """The frame that imports the library of which this one is being imported; None where none is.

    A module of the user's own may train as it is imported: that is code as in a cell.
    """
    found = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_IMPORTS):
            found = frame.f_back
        elif not file.startswith(_OWN) and not is_library(file):
            break
        frame = frame.f_back
    return found


class DeferredInterrupt:
    """At most one call at a time that waits for its moment; only of the main thread."""

    def __init__(self) -> None:
        self._call: Callable[[], None] | None = None
        self._late: Callable[[], None] | None = None
        """The call that has waited too long."""
        self._before: Any = None
        self._frame: FrameType | None = None
        self._is_deciding = False

    def put_off(self, frame: FrameType | None, call: Callable[[], None]) -> bool:
        """Have `call` made, and perhaps raise, when `frame`'s code has returned to the user's.

        False if the call can be made now, or has waited too long.
        """
        if self._is_deciding:
            # A signal within the handler of another one: that one is handled for both.
            return True
        self._is_deciding = True
        try:
            return self._has_put_off(frame, call)
        finally:
            self._is_deciding = False

    def _has_put_off(self, frame: FrameType | None, call: Callable[[], None]) -> bool:
        user = user_of(frame)
        if user is None:
            self.forget()
            return False
        if self._call is not None:
            if self._late is not self._call:
                return True
            self.forget()
            return False
        self._call, self._frame = call, user
        self._before = sys.gettrace()
        user.f_trace = self._at_user
        sys.settrace(self._nowhere)
        looks = _LOOKS if _importer(frame) is None else _LOOKS_AT_IMPORTS
        threading.Thread(
            target=self._see_that_it_returns,
            args=(call, looks),
            name="skyward-put-off",
            daemon=True,
        ).start()
        return True

    def forget(self) -> None:
        """Nothing waits any more."""
        if self._call is None:
            return
        self._call = self._late = None
        if self._frame is not None:
            self._frame.f_trace = None
        self._frame = None
        sys.settrace(self._before)

    def _see_that_it_returns(self, call: Callable[[], None], looks: int) -> None:
        for _ in range(looks):
            time.sleep(_BETWEEN_LOOKS)
            if self._call is not call:
                return
        self._late = call
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGURG)

    def _nowhere(self, _frame: FrameType, _event: str, _argument: object) -> None:
        """Trace no function that is called meanwhile."""

    def _at_user(self, _frame: FrameType, _event: str, _argument: object) -> Any:
        call = self._call
        self.forget()
        if call is not None:
            call()
        return None
