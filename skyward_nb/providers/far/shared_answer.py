"""One answer for all who ask at the same time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """What `ask` returns or raises, for all callers: called once, or again when `seconds` have passed since its call.

    A caller that is cancelled leaves the call to the others. A call that is that old and still goes on is waited for,
    or with `overtakes` begun again beside it: it may never come back, as after a change of networks.
    """

    def __init__(
        self,
        ask: Callable[[], Coroutine[Any, Any, T]],
        seconds: float = math.inf,
        *,
        overtakes: bool = False,
    ) -> None:
        self._overtakes = overtakes
        self._ask = ask
        self._seconds = seconds
        self._asked = 0.0
        self._answer: asyncio.Task[T] | None = None

    async def get(self, *, anew: bool = False) -> T:
        """The answer; with `anew`, a finished one is too old."""
        now = time.monotonic()
        is_old = anew or now - self._asked > self._seconds
        if self._answer is None or (is_old and (self._overtakes or self._answer.done())):
            self._asked = now
            self._answer = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._answer)
