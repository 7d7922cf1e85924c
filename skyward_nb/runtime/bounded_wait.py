"""Work at the place of checkpoints that ends where the place does not answer: a server that hangs may do so for ever."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from skyward_nb.words.checkpoints import VARIABLE

_ANSWERS_WITHIN = 60.0
"""Seconds for each question to the place of checkpoints; writing and reading names takes as long as it takes."""
T = TypeVar("T")


class Answers:
    """When the place answered last."""

    def __init__(self) -> None:
        self.last: float = time.monotonic()

    def note(self) -> None:
        """It has answered."""
        self.last = time.monotonic()


def in_time(work: Callable[[], T], answers: Answers | None = None) -> T:
    """What this does with the place; raises TimeoutError where that takes too long, as with a server that hangs.

    With each answer that the work notes, the time begins anew.
    """
    answers = answers or Answers()
    done: list[T] = []
    raised: list[BaseException] = []

    def do() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            raised.append(error)

    thread = threading.Thread(target=do, name="skyward-checkpoint", daemon=True)
    thread.start()
    while thread.is_alive() and (left := answers.last + _ANSWERS_WITHIN - time.monotonic()) > 0:
        thread.join(left)
    if raised:
        raise raised[0]
    if not done:
        raise TimeoutError(
            f"{os.environ[VARIABLE]} has not answered for {_ANSWERS_WITHIN:g} s: the server that it is on may hang "
            "(NFS, EFS, FSx), or its port be closed. `ls` on the machine shows it"
        )
    return done[0]
