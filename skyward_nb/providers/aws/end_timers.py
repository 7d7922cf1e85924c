"""Timers that end stopped machines although nothing runs: one-time schedules of EventBridge Scheduler.

Each machine of a pool has its own, as TerminateInstances ends none where one id is unknown, as that of a machine is
that ended an hour ago. They are made before the first machine, switched off, so that a missing role, or right to make
them, is known before money is spent; whether the role may end machines, nobody checks. They are switched on before
machines are stopped, and off once they run again for a pool. The role is made once in an account, by somebody who may:
docs/howto/aws.md.

Sources: https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-targets-universal.html and
https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Sequence

from skyward_nb.providers.aws.api_errors import NO_TIMER, AWSError
from skyward_nb.providers.aws.client import Arguments, AWSClient
from skyward_nb.providers.aws.rental_records import CreatedResource, RentalFolder, RentalRecord
from skyward_nb.providers.aws.tags import spell_time

ROLE = "skyward-nb-warm"
_SERVICE = "scheduler"
_TARGET = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
_NEVER = "2099-01-01T00:00:00Z"
_THERE = "ConflictException"
_GONE = "ResourceNotFoundException"
_REFUSED = ("ValidationException", "AccessDeniedException")
_RETRIES = {"MaximumRetryAttempts": 185, "MaximumEventAgeInSeconds": 86_400}
"""EventBridge tries again for a day; these are its own defaults, said here as machines cost money until then."""


async def make(cloud: AWSClient, entry: RentalFolder, region: str, count: int) -> None:
    """Make the timers of a pool with so many machines, switched off; raises `AWSError`."""
    names = (_name(entry.record.pool_id, number) for number in range(count))
    timers = (CreatedResource("timer", region, name) for name in names)
    lacking = [each for each in timers if each not in entry.record.made]
    await side_by_side(*[_make(cloud, entry, each) for each in lacking])


async def _make(cloud: AWSClient, entry: RentalFolder, timer: CreatedResource) -> None:
    entry.make(timer)
    words = _words(entry.record, timer, (), _NEVER)
    try:
        await cloud.ask("CreateSchedule", timer.region, service=_SERVICE, **words)
    except AWSError as fault:
        if fault.code == _THERE:  # an answer was lost
            return
        if fault.code in _REFUSED:
            # Certainly not made: who may not make it may not remove it either, and would try for ever.
            entry.gone(timer)
            why = f"warm= needs a timer that ends stopped machines, which AWS refuses: {fault.message}"
            raise AWSError(NO_TIMER, why, "CreateSchedule") from fault
        raise


async def switch_on(
    cloud: AWSClient, record: RentalRecord, instances: Sequence[str], until: float
) -> None:
    """End these machines of a pool at this time, in seconds since 1970; raises `AWSError`."""
    timers = _of(record)
    if len(timers) < len(instances):
        why = f"the pool has {len(timers)} timers for {len(instances)} machines"
        raise AWSError(NO_TIMER, why, "UpdateSchedule")
    pairs = zip(timers, instances, strict=False)
    await side_by_side(
        *[_set(cloud, record, each, (name,), spell_time(until)) for each, name in pairs]
    )


async def switch_off(cloud: AWSClient, record: RentalRecord) -> None:
    """End no machines of a pool by its timers; raises `AWSError`, also if one has gone off."""
    timers = _of(record)[: len(record.machines)]
    await side_by_side(*[_set(cloud, record, each, (), _NEVER) for each in timers])


async def _set(
    cloud: AWSClient,
    record: RentalRecord,
    timer: CreatedResource,
    instances: Sequence[str],
    at: str,
) -> None:
    words = _words(record, timer, instances, at)
    await cloud.ask("UpdateSchedule", timer.region, service=_SERVICE, **words)


async def side_by_side(*work: Awaitable[None]) -> None:
    """Do these side by side; raises the first error when all are over."""
    for each in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(each, BaseException):
            raise each


async def remove(cloud: AWSClient, timer: CreatedResource) -> None:
    """Remove a timer that may have gone off already, which removes it; raises `AWSError`."""
    try:
        await cloud.ask("DeleteSchedule", timer.region, service=_SERVICE, Name=timer.name)
    except AWSError as fault:
        if fault.code != _GONE:
            raise


def _of(record: RentalRecord) -> list[CreatedResource]:
    """The timers in the region of a pool's machines."""
    region = record.machines[0].region
    return [each for each in record.made if each.kind == "timer" and each.region == region]


def _name(pool_id: str, number: int) -> str:
    """A schedule's name; at most 64 characters that AWS takes."""
    name = f"sky-{pool_id}-{number}"
    if not re.fullmatch(r"[0-9a-zA-Z_.-]{1,64}", name):
        name = f"sky-{pool_id.encode().hex()[-48:]}-{number}"
    return name


def _words(
    record: RentalRecord, timer: CreatedResource, instances: Sequence[str], at: str
) -> Arguments:
    partition = next(
        (own for start, own in _PARTITIONS.items() if timer.region.startswith(start)), "aws"
    )
    return {
        "Name": timer.name,
        "Description": f"Ends stopped machines of pool {record.pool_id} of {record.owner}"[:512],
        "ScheduleExpression": f"at({at.removesuffix('Z')})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "State": "ENABLED" if instances else "DISABLED",
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": _TARGET.replace(":aws:", f":{partition}:"),
            "RoleArn": f"arn:{partition}:iam::{record.account}:role/{ROLE}",
            "Input": json.dumps({"InstanceIds": list(instances)}),
            "RetryPolicy": _RETRIES,
        },
    }


_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
