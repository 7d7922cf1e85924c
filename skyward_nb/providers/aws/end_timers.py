"""Timers that end stopped machines although nothing runs: one-time schedules of EventBridge Scheduler.

A pool's schedule is made before its first machine, switched off, so that a missing right is known before money is
spent. It is switched on before machines are stopped, and off once they run again for a pool. The role by which it
ends them is made once in an account, by somebody who may: docs/howto/aws.md.

Sources: https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-targets-universal.html and
https://docs.aws.amazon.com/scheduler/latest/APIReference/API_CreateSchedule.html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from skyward_nb.providers.aws.api_errors import NO_TIMER, AWSError
from skyward_nb.providers.aws.client import AWSClient
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


async def make(cloud: AWSClient, entry: RentalFolder, region: str) -> None:
    """Make the timer of a pool, switched off; raises `AWSError`."""
    timer = CreatedResource("timer", region, _name(entry.record.pool_id))
    if timer in entry.record.made:
        return
    entry.make(timer)
    words = _words(entry.record, timer, (), _NEVER, on=False)
    try:
        await cloud.ask("CreateSchedule", region, service=_SERVICE, **words)
    except AWSError as fault:
        if fault.code == _THERE:  # an answer was lost
            return
        if fault.code in _REFUSED:
            why = f"warm= needs a timer that ends stopped machines, which AWS refuses: {fault.message}"
            raise AWSError(NO_TIMER, why, "CreateSchedule") from fault
        raise


async def switch_on(
    cloud: AWSClient, record: RentalRecord, instances: Sequence[str], until: float
) -> None:
    """End these machines of a pool at this time, in seconds since 1970; raises `AWSError`."""
    timer = _of(record)
    words = _words(record, timer, instances, spell_time(until), on=True)
    await cloud.ask("UpdateSchedule", timer.region, service=_SERVICE, **words)


async def switch_off(cloud: AWSClient, record: RentalRecord) -> None:
    """End no machines of a pool by its timer; raises `AWSError`, also if the timer has gone off."""
    timer = _of(record)
    words = _words(record, timer, (), _NEVER, on=False)
    await cloud.ask("UpdateSchedule", timer.region, service=_SERVICE, **words)


async def remove(cloud: AWSClient, timer: CreatedResource) -> None:
    """Remove a timer that may have gone off already, which removes it; raises `AWSError`."""
    try:
        await cloud.ask("DeleteSchedule", timer.region, service=_SERVICE, Name=timer.name)
    except AWSError as fault:
        if fault.code != _GONE:
            raise


def _of(record: RentalRecord) -> CreatedResource:
    """The timer in the region of a pool's machines; raises `AWSError` if there is none."""
    region = record.machines[0].region
    for each in record.made:
        if each.kind == "timer" and each.region == region:
            return each
    raise AWSError(NO_TIMER, "the pool has no timer", "UpdateSchedule")


def _name(pool_id: str) -> str:
    """A schedule's name; at most 64 characters that AWS takes."""
    name = f"sky-{pool_id}"
    if not re.fullmatch(r"[0-9a-zA-Z_.-]{1,64}", name):
        name = f"sky-{pool_id.encode().hex()[-48:]}"
    return name


def _words(
    record: RentalRecord, timer: CreatedResource, instances: Sequence[str], at: str, *, on: bool
) -> dict[str, Any]:
    partition = next(
        (own for start, own in _PARTITIONS.items() if timer.region.startswith(start)), "aws"
    )
    return {
        "Name": timer.name,
        "Description": f"Ends stopped machines of pool {record.pool_id} of {record.owner}"[:512],
        "ScheduleExpression": f"at({at.removesuffix('Z')})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "State": "ENABLED" if on else "DISABLED",
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": _TARGET.replace(":aws:", f":{partition}:"),
            "RoleArn": f"arn:{partition}:iam::{record.account}:role/{ROLE}",
            "Input": json.dumps({"InstanceIds": list(instances)}),
            "RetryPolicy": _RETRIES,
        },
    }


_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
