"""Work that goes to its end, whoever stops waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(work: asyncio.Future[T], cancelled: Callable[[], object] = lambda: None) -> T:
    """The result of work that ends in any case; to cancel this calls `cancelled`, once, and raises only then.

    Raises what the work raises, or CancelledError.
    """
    was_cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            if not was_cancelled:
                cancelled()
            was_cancelled = True
    result = work.result()
    if was_cancelled:
        raise asyncio.CancelledError
    return result
