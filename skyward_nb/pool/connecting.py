"""Connections to agents: all opened at once, or one opened again after a cut."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from skyward_nb.providers.base import Machine, MachineEnded
from skyward_nb.providers.loop_thread import LoopTask

T = TypeVar("T")


async def opened_or_ended(machine: Machine) -> socket.socket | MachineEnded:
    """A connection to a machine's agent, or the end of the machine."""
    try:
        return await machine.connect()
    except MachineEnded as ended:
        return ended


async def all_or_none(connects: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all of these, at once; if one fails, no connection is left open."""
    tasks = [asyncio.ensure_future(each) for each in connects]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, socket.socket):
                found.close()
        raise


class CutLine:
    """A line that is cut: the reason, the time, and the time of the next attempt."""

    def __init__(self, why: str, since: float, due: float) -> None:
        self.why = why
        self.since = since
        self.due = due
        self.opening: LoopTask[socket.socket] | None = None
        """The present attempt."""

    def give_up(self) -> None:
        """Stop the attempt."""
        if self.opening is not None:
            self.opening.give_up()
            with contextlib.suppress(BaseException):
                self.opening.future.result(timeout=0).close()
            self.opening = None
