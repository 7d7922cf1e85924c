"""`RunHandle`: a run that goes on in the background, for any cell to ask."""

from __future__ import annotations

from typing import NoReturn, Protocol

from skyward_nb.words.errors import RunGoesOn


class BackgroundRun(Protocol):
    """What a handle needs of a run."""

    value: object
    error: BaseException | None
    is_over: bool

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

    @property
    def status(self) -> str:
        """`running`, `finished`, `interrupted` or `failed`."""
        self._work.look()
        if not self._work.is_over:
            return "running"
        error = self._work.error
        if error is None:
            return "finished"
        return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended, for `timeout` seconds at most; whether it has.

        An interrupt ends the waiting, and not the run.
        """
        return self._work.wait(timeout)

    def result(self, timeout: float | None = None) -> object:
        """The run's value, once it has ended; raises what the run raised.

        Raises `RunGoesOn`, which is a TimeoutError, when it has not ended after `timeout` seconds.
        """
        if not self._work.wait(timeout):
            raise RunGoesOn(self.name, timeout or 0)
        if self._work.error is not None:
            raise self._work.error
        return self._work.value

    def cancel(self) -> None:
        """Interrupt the run as the square button does; a second time kills what does not stop."""
        self._work.cancel()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run's handle works only in its notebook: send h.result() instead")

    def __repr__(self) -> str:
        ways = {
            "running": "h.status, h.wait(), h.result(), h.cancel()",
            "finished": "h.result() is its value",
            "failed": "h.result() raises what it raised",
            "interrupted": "h.result() raises KeyboardInterrupt",
        }
        status = self.status
        return f"<run {self.name} on {self._where}: {status}; {ways[status]}>"
