"""Machines that are stopped and started against the API alone, whose scripts all end well."""

from __future__ import annotations

import asyncio

from cloud.renter import offer

from skyward_nb.bootstrap.remote_shell import ScriptResult
from skyward_nb.providers.aws import (
    rental_records,
    stopping,
    sweep,
    waking,
)
from skyward_nb.providers.aws.rental_records import Warmth
from skyward_nb.words.provider_access import AWSAccess

WARM = AWSAccess(region="us-east-1", warm=7200)
ACCOUNT = "123456789012"


class LineThatObeys:
    """A line to a machine whose scripts all end well, or with this code."""

    def __init__(self, code: int = 0) -> None:
        self.name = "a machine"
        self.code = code
        self.ran: list[str] = []

    async def run(self, script: str, **_: object) -> ScriptResult:
        self.ran.append(script)
        return ScriptResult(self.code, b"", "it says no")

    async def close(self) -> None:
        pass


def rented(renter, pool_id="default-abc", **options):
    made = renter(pool_id, **{"aws": WARM, **options})
    made.entry.note(account=ACCOUNT, warmth=Warmth(seconds=7200, needs=waking.needs_of(made.spec)))
    made.launch()
    made.entry.note(state="up")
    return made


def stopped(renter, pool_id="default-abc", lines=None, bill=None, **options):
    made = rented(renter, pool_id, **options)
    lines = lines or [LineThatObeys(), LineThatObeys()]
    made.said = asyncio.run(stopping.stop(made.cloud, made.entry, lines, bill))
    return made


async def woken_for(made, pool_id="next-1", *offers, told=None, **options):
    spec = type(made)(f"spec-of-{pool_id}", **{"aws": WARM, **options})
    spec.entry.forget()
    tell = (told if told is not None else []).append
    return await waking.woken(spec.spec, pool_id, made.cloud, ACCOUNT, offers or (offer(),), tell)


def wake(made, *arguments, **options):
    found, made.spent = asyncio.run(woken_for(made, *arguments, **options))
    return found


def states(api):
    return sorted(api.states().values())


def all_ended(api):
    for _ in range(2):
        asyncio.run(sweep.sweep(ends_stopped=True))
    assert api.left() == {} and not rental_records.entries()
