"""Signal handlers and hooks by which a rank is stopped and inspected; put back if a cell has changed them."""

from __future__ import annotations

import faulthandler
import os
import signal
from types import FrameType

from skyward_nb.node.stack_pipe import STACK_SIGNAL

_NAMES: dict[int, str] = {
    signal.SIGINT: "SIGINT",
    signal.SIGURG: "SIGURG",
    STACK_SIGNAL: "SIGRTMIN+5",
    signal.SIGCHLD: "SIGCHLD",
}
_STOPPING = frozenset({signal.SIGINT, signal.SIGURG, STACK_SIGNAL})


class SignalGuard:
    """Signals and the user of a rank; stacks are written to the descriptor `stacks`."""

    def __init__(self, stacks: int) -> None:
        self._stacks = stacks
        self._users = os.getresuid()
        self._listen()

    def _listen(self) -> None:
        """Have `faulthandler` write stacks. Python knows of another handler: so it is seen if it is replaced."""
        signal.signal(STACK_SIGNAL, _is_not_called)
        faulthandler.unregister(STACK_SIGNAL)
        faulthandler.register(STACK_SIGNAL, self._stacks, all_threads=False, chain=False)

    def put_back(self) -> str:
        """Put back what a cell ignored or blocked, of the signals that stop a run, and SIGCHLD; in words.

        Other signals, and handlers that are functions, stay as the cell has set them.
        """
        blocked = _STOPPING & signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
        changed = {
            number
            for number in _STOPPING
            if signal.getsignal(number) in (signal.SIG_IGN, signal.SIG_DFL)
        }
        if signal.getsignal(STACK_SIGNAL) is not _is_not_called:
            self._listen()
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            # Nobody would hear how a child process ended.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            changed.add(signal.SIGCHLD)
        if names := [name for number, name in _NAMES.items() if number in changed | blocked]:
            return f"{', '.join(names)}: handled as before this cell again, since the pool needs these signals"
        return ""

    def has_lost_its_user(self) -> bool:
        """Whether a cell has given the user up for good; one that can be had back is."""
        if os.getresuid() == self._users:
            return False
        try:
            os.setresuid(*self._users)
        except PermissionError:
            return True
        return False


def _is_not_called(_number: int, _frame: FrameType | None) -> None:
    """Nothing: `faulthandler` is called in its place."""
