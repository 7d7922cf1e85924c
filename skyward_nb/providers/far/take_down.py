"""What an engine was asked for, taken down: tried again, kept on record where it is not sure, and swept.

The four engines share it; each says how it takes one down.
"""

from __future__ import annotations

import asyncio
import shlex
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from skyward_nb.protocol.events import Phase, Remark
from skyward_nb.providers.far.engine_record import EngineRecord
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.words.errors import SkyError

R = TypeVar("R", bound=EngineRecord)
TRIES = 3
PAUSE = 2.0
"""How often an engine is asked to take down, and seconds between."""
AT_MOST = 120.0
"""Seconds after which it is not asked again: some wait for minutes for one answer."""
BESIDE = 10.0
"""Seconds for which a start waits for a sweep; what takes longer goes on beside it."""


class EngineFault(Exception):
    """An engine did not answer, or refused; the text has its words."""


_FAULTS = (EngineFault, SkyError, OSError)
"""Why an end is not sure: also where this machine cannot ask, as its program for that cannot be started."""


async def taken_down(
    record: EngineRecord, what: str, attempt: Callable[[], Awaitable[str]], until_then: str = ""
) -> str:
    """Take down what a record is of; what of it may still be there, in words.

    `attempt` gives the same, or raises `EngineFault`, OSError or a `SkyError`, and is tried again. The record stays, for the next pool, unless
    all is gone; a warning says what is not sure, and `until_then` what happens to it by itself.
    """
    try:
        left = await _tried(attempt)
    except _FAULTS as fault:
        left = what
        warnings.warn(
            f"{record.title} did not confirm the end of {what}: {fault}. {until_then}The next pool, or `%sky sweep`, "
            "ends it again.",
            stacklevel=2,
        )
    _settle(record, left)
    return left


async def _tried(attempt: Callable[[], Awaitable[str]]) -> str:
    until = time.monotonic() + AT_MOST
    for _ in range(TRIES - 1):
        try:
            return await attempt()
        except _FAULTS:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(PAUSE)
    return await attempt()


def _as_left(record: R) -> R:
    """A record whose maker was killed: without an answer in it, what was asked for may still appear."""
    if record.is_left or record.is_answered:
        return record
    return replace(record, lost=max(record.lost, record.written))


def _settle(record: EngineRecord, left: str) -> None:
    """Remove a record, or note in it that somebody has still to look."""
    if left or record.may_appear(time.time()):
        replace(record, is_left=True).write()
    else:
        record.remove()


# ── what earlier pools left ─────────────────────────────────────────────────────────────


@dataclass
class EngineSweep:
    """What a sweep has ended, what it left, in words, with the reasons, and what is of pools made elsewhere."""

    ended: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        said = [f"ended leftovers: {', '.join(self.ended)}"] if self.ended else []
        if self.left:
            said.append(f"not confirmed to be gone: {', '.join(self.left)}")
        return "; ".join(said) or "nothing was left"


_being_ended: set[tuple[str, str]] = set()
"""Records that a sweep of this process is at: another one leaves them alone."""


async def end_orphans(
    records: Iterable[R], name_of: Callable[[R], str], end: Callable[[R], Awaitable[bool]]
) -> EngineSweep:
    """End, side by side, what is left of pools that nobody can find, or whose end was not confirmed.

    `end` is true where there was anything to end, and raises the same where that is not sure: what an earlier pool left
    keeps no new one from its start.
    """
    found = EngineSweep()

    async def end_one(record: R) -> None:
        key = record.engine, record.pool_id
        if key in _being_ended:
            return
        _being_ended.add(key)
        name = f"{name_of(record)} (pool {record.pool_id})"
        try:
            if await end(record):
                found.ended.append(name)
                record.remove()
            else:
                _settle(_as_left(record), "")
        except _FAULTS as fault:
            forget = f"rm {shlex.quote(str(record.path))}"
            found.left.append(
                f"{name}: {fault} (if that cluster is gone for good, `{forget}` forgets it)"
            )
        finally:
            _being_ended.discard(key)

    every = list(records)
    await asyncio.gather(*(end_one(record) for record in every if record.is_orphan))
    found.foreign += [
        f"{name_of(record)} (pool {record.pool_id}), made on host {record.maker.host}"
        for record in every
        if record.is_foreign
    ]
    return found


_sweeping: set[asyncio.Task[EngineSweep]] = set()


async def swept_first(sweep: Coroutine[Any, Any, EngineSweep], tell: Tell) -> None:
    """Sweep before a start, and tell what was ended or left; one that takes long goes on beside the start."""
    task = asyncio.create_task(sweep)
    _sweeping.add(task)
    task.add_done_callback(_sweeping.discard)
    await asyncio.wait([task], timeout=0.2)
    if not task.done():
        tell(Phase("ending leftovers of earlier pools"))
        await asyncio.wait([task], timeout=BESIDE)
    if not task.done():
        tell(Remark("leftovers of earlier pools are being ended while this pool starts"))
        return
    found = task.result()
    if found.ended:
        tell(Remark(f"an earlier pool had left {', '.join(found.ended)}: it is ended"))
    if found.left:
        tell(Remark(f"not confirmed to be gone: {'; '.join(found.left)}"))
