"""`RunHandle`: a run that goes on in the background, for any cell to ask.

What a cell has shown of a handle says how the run is: until its end with the time at which it was so, then for good.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from IPython.core.getipython import get_ipython
from IPython.display import display

from skyward_nb.words.errors import RunGoesOn
from skyward_nb.words.units import read_seconds


class BackgroundRun(Protocol):
    """What a handle needs of a run."""

    value: object
    error: BaseException | None
    is_over: bool
    has_ended: Callable[[], None]
    """Called when it is over, and again for front ends that miss what is shown between cells."""

    def look(self) -> None:
        """Take what has come."""
        ...

    def wait(self, seconds: float | None) -> bool:
        """Wait for its end, for so long at most; whether it has ended."""
        ...

    def cancel(self) -> None:
        """Interrupt it."""
        ...


class RunHandle:
    """A run in the background; its `name` is pool and number, such as `default-1a2b3c/7`."""

    def __init__(self, name: str, where: str, work: BackgroundRun) -> None:
        self.name = name
        self._where = where
        self._work = work
        self._shown: list[Any] = []

    @property
    def status(self) -> str:
        """`running`, `finished`, `interrupted` or `failed`."""
        self._work.look()
        return _status(self._work)

    def wait(self, timeout: float | str | None = None) -> bool:
        """Wait until the run has ended, for `timeout` (seconds, or as in `"10m"`) at most; whether it has.

        An interrupt ends the waiting, and not the run.
        """
        return self._work.wait(read_seconds("timeout", timeout))

    def result(self, timeout: float | str | None = None) -> object:
        """The run's value, once it has ended; raises what the run raised.

        Raises `RunGoesOn`, which is a TimeoutError, when it has not ended after `timeout`: seconds, or as in `"10m"`.
        """
        seconds = read_seconds("timeout", timeout)
        if not self._work.wait(seconds):
            raise RunGoesOn(self.name, seconds or 0)
        if self._work.error is not None:
            raise self._work.error
        return self._work.value

    def cancel(self) -> None:
        """Interrupt the run as the square button does; a second time kills what does not stop."""
        self._work.cancel()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run's handle works only in its notebook: send h.result() instead")

    def __repr__(self) -> str:
        return _spell(self.name, self._where, self.status)

    def _ipython_display_(self) -> None:
        """Show a run that goes on so that the words can change; another one is shown as any value is."""
        if self.status != "running" or not hasattr(get_ipython(), "kernel"):
            raise NotImplementedError
        renew = self._work.has_ended = _renewal(self.name, self._where, self._work, self._shown)
        self._shown.append(display(_bundle(repr(self)), raw=True, display_id=True))
        if self._work.is_over:  # another thread has ended it meanwhile
            renew()


_WAYS = {
    "running": "h.status, h.wait(), h.result(), h.cancel()",
    "finished": "h.result() is its value",
    "failed": "h.result() raises what it raised",
    "interrupted": "h.result() raises KeyboardInterrupt",
}


def _status(work: BackgroundRun) -> str:
    if not work.is_over:
        return "running"
    if work.error is None:
        return "finished"
    return "interrupted" if isinstance(work.error, KeyboardInterrupt) else "failed"


def _spell(name: str, where: str, status: str) -> str:
    at = f" at {time.strftime('%H:%M:%S')}" if status == "running" else ""
    return f"<run {name} on {where}: {status}{at}; {_WAYS[status]}>"


def _bundle(words: str) -> dict[str, str]:
    return {"text/plain": words}


def _renewal(name: str, where: str, work: BackgroundRun, shown: list[Any]) -> Callable[[], None]:
    """What says the end wherever the handle was shown; it holds neither handle nor value."""
    find_work = weakref.ref(work)

    def renew() -> None:
        if (ended := find_work()) is not None:
            for each in shown:
                each.update(_bundle(_spell(name, where, _status(ended))), raw=True)

    return renew
