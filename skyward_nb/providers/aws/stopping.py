"""Stops a pool's machines at its end, for a later pool: prepared first, then their timer, then EC2.

Whatever fails, they are ended instead: no machine is stopped before a timer that ends it is on.

EC2 keeps the disks of a stopped machine, and charges them; it takes back the public address and the disks within the
machine: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Stop_Start.html.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.providers.aws import end_timers, termination
from skyward_nb.providers.aws.api_errors import AWSError, spell_fault
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.rental_records import (
    RentalFolder,
    RunningInstance,
    Warmth,
)
from skyward_nb.providers.aws.tags import spell_time
from skyward_nb.providers.aws.user_data import LEASE, STATE
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.words.offers import Bill, spell_dollars
from skyward_nb.words.provider_access import LEAST_WARM

WAKING = 900.0
"""Seconds from a later boot to the first renewal of the lease."""
_IDLE = 300.0
_LIMIT = 60.0
_LOOKS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
STOPPED = ("stopping", "stopped")
"""The states of a machine that is stopped, or soon will be."""
RUNNING = ("pending", "running")
AS_ROOT = 'if [ "$(id -u)" = 0 ]; then p=; else p="sudo -n"; fi; $p /bin/sh -ec '
_PREPARE = f"""{AS_ROOT}'
[ -d /run/systemd/system ] || {{ echo "it has no systemd, which would start its timer again" >&2; exit 1; }}
printf "%s\n" "{WAKING:g} {_IDLE:g} 0" > {STATE}/terms.new
mv {STATE}/terms.new {STATE}/terms
touch {LEASE}
rm -f {STATE}/boot
sync
'"""
"""The next boot counts as the first one, with little time for a pool to come."""


class NotStopped(Exception):
    """Why machines are to be ended instead of stopped."""


def terms_script(boot: float, idle: float, deadline: float) -> str:
    """The script that has the dead-man of a machine go by these times from now on."""
    return f"""{AS_ROOT}'
printf "%s\n" "{boot:.0f} {idle:.0f} {deadline:.0f}" > {STATE}/terms.new
mv {STATE}/terms.new {STATE}/terms
rm -f {STATE}/boot
systemctl restart skyward-deadman.service
'"""


async def stop(
    cloud: AWSClient,
    entry: RentalFolder,
    lines: Sequence[Line],
    bill: Bill | None,
    agents: Sequence[Callable[[], Awaitable[None]]] = (),
) -> str:
    """Stop the machines of a pool, once these end their agents; says until when, and what that costs.

    A notebook that ends has seconds for it: what can be done side by side is. Raises `NotStopped`: they are to be ended.
    """
    warmth, machines = entry.record.warmth, entry.record.machines
    assert warmth is not None
    names = [each.instance for each in machines]
    try:
        if not entry.claim_end():
            raise NotStopped("another process has begun to end them")
        await end_timers.side_by_side(
            _see_that_all_run(cloud, entry, names), *(end() for end in agents)
        )
        warmth = _terms(warmth, bill)
        entry.note(warmth=warmth)
        await end_timers.side_by_side(
            end_timers.switch_on(cloud, entry.record, names, warmth.until or 0.0),
            *(run_on(line, _PREPARE) for line in lines),
        )
        await _stop(cloud, entry, names)
        if not entry.claim(state="stopped", used_by=""):
            raise NotStopped("another process has begun to end them")
    except NotStopped:
        raise
    except AWSError as fault:
        raise NotStopped(spell_fault(fault)) from fault
    except TimeoutError as error:
        raise NotStopped("a machine did not answer in time") from error
    except Exception as error:
        raise NotStopped(str(error) or type(error).__name__) from error
    return spell_stopped(machines, warmth)


def spell_stopped(machines: Sequence[RunningInstance], warmth: Warmth) -> str:
    """Machines that are stopped, until when, and what they cost."""
    count = f"{len(machines)} machine{'s' * (len(machines) != 1)}"
    cost = "a price that AWS did not tell"
    if warmth.price is not None:
        cost = f"{spell_small(warmth.price)} / h"
    until = spell_time(warmth.until or 0.0)
    names = ", ".join(each.instance for each in machines)
    return f"{count} stopped until {until} at {cost} for {warmth.gigabytes} GB of disks ({names})"


def spell_small(dollars: float) -> str:
    """Dollars, of small sums two digits that say something."""
    return spell_dollars(dollars) if dollars >= 0.1 else f"${dollars:.2g}"


async def run_on(line: Line, script: str) -> None:
    """Run a script on a machine; raises `ShellGone` with its last words if it fails."""
    ran = await line.run(script, limit=_LIMIT)
    if ran.code:
        raise ShellGone(f"{line.name}: {ran.err.strip()[-500:]}")


async def _see_that_all_run(cloud: AWSClient, entry: RentalFolder, names: Sequence[str]) -> None:
    """Raise `NotStopped` unless all machines run; others that the pool had are ended. Raises `AWSError`."""
    record = entry.record
    if await termination.other_account(cloud, record):
        raise NotStopped("the credentials here belong to another account")
    regions = {each.region for each in record.machines}
    if len(regions) != 1:
        raise NotStopped("its machines are in several regions")
    for region in record.regions:
        states = await termination.states_of(cloud, region, record.pool_id)
        if region in regions and (gone := [n for n in names if states.get(n) != "running"]):
            raise NotStopped(f"{', '.join(gone)} does not run any more")
        others = [n for n, each in states.items() if n not in names and termination.is_alive(each)]
        if others and await termination.end_some(cloud, entry, region, others):
            raise NotStopped(f"{', '.join(others)} of earlier attempts did not end")


def _terms(warmth: Warmth, bill: Bill | None) -> Warmth:
    """When machines end, within the budget; raises `NotStopped`."""
    now, seconds = time.time(), warmth.seconds
    if bill is not None and bill.max_cost is not None:
        spent = bill.spent(now)
        if warmth.price is None or spent is None:
            raise NotStopped("a price is not known, so max_cost= could not be kept to")
        seconds = min(seconds, 3600 * (bill.max_cost - spent) / warmth.price)
        if seconds < LEAST_WARM:
            raise NotStopped(f"max_cost={bill.max_cost:g} leaves too little for their disks")
    return replace(warmth, until=now + seconds)


async def _stop(cloud: AWSClient, entry: RentalFolder, names: Sequence[str]) -> None:
    """Stop machines until EC2 says that they do; raises `AWSError`, `NotStopped`."""
    region, left = entry.record.machines[0].region, list(names)
    for pause in _LOOKS:
        await cloud.ask("StopInstances", region, InstanceIds=left)
        states = await termination.states_of(cloud, region, entry.record.pool_id)
        left = [each for each in names if states.get(each) not in STOPPED]
        if not left:
            return
        await asyncio.sleep(pause)
    raise NotStopped(f"{', '.join(left)} did not stop")
