"""Logs in to machines that have started, by a host key from the launch, which is then changed.

Every process of a machine may read the data of its launch, that host key included, so the machine makes
a new one first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Container, Mapping, Sequence

from msgspec.structs import replace

from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.protocol.events import Remark, Step
from skyward_nb.providers.aws import key_pairs, silence, termination
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.providers.aws.offer_walk import is_large
from skyward_nb.providers.aws.rental_records import RentalFolder, RunningInstance
from skyward_nb.providers.aws.user_data import BOOT, HOST_KEY, LEASE
from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.words.errors import HostError, StartError

POWERED_OFF = "Client.InstanceInitiatedShutdown"
"""The reason of the state of a machine that ended itself.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html.
"""
_LIMIT = 600.0
_LARGE_LIMIT = 1500.0
"""Less than `BOOT`, by which a machine must have had its first renewal: see `first_renewal`."""
_PAUSE = 0.25
_MOST_PAUSE = 5.0
_LOOK = 15.0
_LAST_WORDS = 2000
_RENEWED_AFTER = BOOT / 2
_RENEWAL_MARGIN = 120.0
"""Seconds by which the first renewal comes before a machine would end."""
_RENEWED_EVERY = 20.0
"""Seconds; a machine waits at least a minute after a renewal of its lease."""
_ROOT = 'root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }; set -e; '
_NEW = (
    f"{_ROOT}root rm -f {HOST_KEY}.next {HOST_KEY}.next.pub; "
    f"root ssh-keygen -q -t ed25519 -N '' -C '' -f {HOST_KEY}.next; root cat {HOST_KEY}.next.pub"
)
_TAKE = (
    f"{_ROOT}root mv -f {HOST_KEY}.next {HOST_KEY}; root mv -f {HOST_KEY}.next.pub {HOST_KEY}.pub; "
    "root systemctl reload ssh 2> /dev/null || root systemctl reload sshd"
)


class EndedByEC2(Exception):
    """EC2 took machines back, or could not run them on, before their first login."""


async def log_in(
    cloud: AWSClient,
    entry: RentalFolder,
    launched: Sequence[RunningInstance],
    tell: Tell,
    others: Sequence[RunningInstance] = (),
) -> tuple[list[HostLine], tuple[RunningInstance, ...]]:
    """Lines to all machines, in order, and the machines with their new host keys.

    Raises `StartError`, and `EndedByEC2` if it is EC2 that ended one.

    `others` are machines that the pool has already.
    """
    dialer = Dialer(key_pairs.access_to(entry.folder, entry.record, (*others, *launched)))
    lines = [HostLine(host, dialer) for host in key_pairs.access_of(entry.folder, launched).hosts]
    try:
        await _reach(cloud, entry, lines, tell, launched)
        changed = await _change_keys(cloud, entry, lines, launched, others)
    except BaseException:
        await asyncio.gather(*(line.close() for line in lines))
        raise
    return lines, changed


async def log_in_again(
    cloud: AWSClient, entry: RentalFolder, machines: Sequence[RunningInstance], tell: Tell
) -> list[HostLine]:
    """Lines to machines that were stopped, by the host keys that they had; raises `StartError`, `EndedByEC2`."""
    key_pairs.access_to(entry.folder, entry.record, machines)
    lines = lines_to(entry, machines)
    try:
        await _reach(cloud, entry, lines, tell, machines)
    except BaseException:
        await asyncio.gather(*(line.close() for line in lines))
        raise
    return lines


def lines_to(entry: RentalFolder, machines: Sequence[RunningInstance] = ()) -> list[HostLine]:
    """Lines to these machines, or else to those of the record."""
    access = key_pairs.access_of(entry.folder, machines or entry.record.machines)
    dialer = Dialer(access)
    return [HostLine(host, dialer) for host in access.hosts]


@contextlib.asynccontextmanager
async def kept(entry: RentalFolder, machines: Sequence[RunningInstance]) -> AsyncGenerator[None]:
    """Within this context, the leases of machines are renewed: their setup may take long."""
    # By separate lines, as a line runs one script at a time.
    lines = lines_to(entry, machines)
    elapsed = time.time() - _began(entry, machines)
    renewing = asyncio.ensure_future(_renew(lines, first_renewal(elapsed)))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await asyncio.gather(*(line.close() for line in lines))


def _began(entry: RentalFolder, machines: Sequence[RunningInstance]) -> float:
    """When the first of these machines was asked for, which is before its boot; 0 where the record has no such attempt."""
    names = {each.instance for each in machines}
    return min((each.at for each in entry.record.attempts if names & {*each.instances}), default=0)


def first_renewal(elapsed: float) -> float:
    """Seconds until leases are first renewed, of machines that were launched `elapsed` seconds ago."""
    return max(0.0, min(_RENEWED_AFTER, BOOT - _RENEWAL_MARGIN - elapsed))


async def _renew(lines: Sequence[HostLine], pause: float) -> None:
    while True:
        await asyncio.sleep(pause)
        await asyncio.gather(*(_touch(line) for line in lines))
        pause = _RENEWED_EVERY


async def _touch(line: HostLine) -> None:
    with contextlib.suppress(ShellGone, TimeoutError):
        async with asyncio.timeout(_RENEWED_EVERY):
            await line.run(f"touch {LEASE}")


async def _reach(
    cloud: AWSClient,
    entry: RentalFolder,
    lines: list[HostLine],
    tell: Tell,
    machines: Sequence[RunningInstance],
) -> None:
    """Log in to all as they boot; gives up when one ends, or after the time limit, or that of silence."""
    faults: dict[str, Unreachable] = {}
    answered: set[str] = set()
    began, is_told = time.monotonic(), False
    nodes = tuple(range(len(lines)))
    until = began + (_LARGE_LIMIT if is_large(machines[0].type) else _LIMIT)
    waiting = {asyncio.ensure_future(_reach_one(line, until, faults, answered)) for line in lines}
    try:
        while waiting:
            there = len(lines) - len(waiting)
            tell(Step(nodes, "boot", f"{there} of {len(lines)} machines can be logged in to"))
            done, waiting = await asyncio.wait(
                waiting, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
            if not done:
                await _see_that_they_run(cloud, entry, lines)
            silent = _silent_among(machines, faults, answered)
            if silent and not is_told and time.monotonic() - began > silence.TOLD_AFTER:
                is_told = True
                tell(Remark(silence.spell_silence(entry.record, silent)))
            if silent and time.monotonic() - began > silence.most_for(silent[0].type):
                break
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    if faults:
        await _see_that_they_run(cloud, entry, lines)
        whys = {name: fault.why for name, fault in faults.items()}
        silent = _silent_among(machines, faults, answered)
        if silent:
            whys[silent[0].instance] += f"\n{silence.spell_silence(entry.record, silent)}"
        raise HostError(entry.record.name, whys, len(lines), len(lines))
    tell(Step(nodes, "boot", ", ".join(line.name for line in lines), done=True))


def _silent_among(
    machines: Sequence[RunningInstance],
    faults: Mapping[str, Unreachable],
    answered: Container[str],
) -> list[RunningInstance]:
    """The machines that have not answered in any way yet."""
    silent = {name for name, fault in faults.items() if fault.silent and name not in answered}
    return [each for each in machines if each.instance in silent]


async def _reach_one(
    line: HostLine, until: float, faults: dict[str, Unreachable], answered: set[str]
) -> None:
    """Try to log in until the time limit; `faults` has the last reason, `answered` those that were not silent."""
    pause = _PAUSE
    while True:
        try:
            await line.connect()
        except Unreachable as fault:
            # Until its boot script has run, it may refuse, or show another key.
            faults[line.name] = fault
            if not fault.silent:
                answered.add(line.name)
        else:
            faults.pop(line.name, None)
            return
        if time.monotonic() > until:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)


async def _see_that_they_run(cloud: AWSClient, entry: RentalFolder, lines: list[HostLine]) -> None:
    """Raise `StartError` with its console output if a machine has ended, or `EndedByEC2`, as AWS says."""
    record = entry.record
    region = record.machines[0].region
    ends: dict[str, termination.MachineEnd] = {}
    with contextlib.suppress(AWSError):
        ends = await termination.ends_of(cloud, region, record.pool_id)
    for line in lines:
        end = ends.get(line.name)
        if end is not None and end.is_by_ec2:
            raise EndedByEC2(f"{line.name}: {end.why}")
        if end is not None and end.code == POWERED_OFF:
            raise await boot_failed(cloud, record.name, region, line.name, record.user)
        if end is not None:
            why = f"{line.name} ended before it could be logged in to: {end.why}"
            raise StartError(record.name, why)


async def _change_keys(
    cloud: AWSClient,
    entry: RentalFolder,
    lines: list[HostLine],
    launched: Sequence[RunningInstance],
    others: Sequence[RunningInstance],
) -> tuple[RunningInstance, ...]:
    """Give each machine its own host key, from the next login on."""
    pool = entry.record.name
    known = {each.instance: (each.host_key,) for each in others}
    try:
        new = await asyncio.gather(*(_run(line, _NEW) for line in lines))
        old = [each.host_key for each in launched]
        names = [each.instance for each in launched]
        # If this process is killed meanwhile, one of the two keys is right.
        both = zip(names, zip(old, new, strict=True), strict=True)
        key_pairs.know(entry.folder, {**known, **dict(both)})
        await asyncio.gather(*(_run(line, _TAKE) for line in lines))
    except (ShellGone, TimeoutError) as error:
        raise StartError(
            pool, f"a machine could not be given a host key of its own: {error}"
        ) from error
    changed = dict(zip(names, new, strict=True))
    key_pairs.know(entry.folder, known | {name: (key,) for name, key in changed.items()})
    for line in lines:
        line.drop()
    await _reach(cloud, entry, lines, lambda _: None, launched)
    return tuple(replace(each, host_key=changed[each.instance]) for each in launched)


async def _run(line: HostLine, script: str) -> str:
    ran = await line.run(script)
    if ran.code:
        raise ShellGone(f"{line.name}: {ran.err.strip()[-_LAST_WORDS:]}")
    return ran.out.decode().strip()


async def boot_failed(
    cloud: AWSClient, pool: str, region: str, instance: str, user: str
) -> StartError:
    """The error that a machine of a `pool` ended before the first login as `user`."""
    why = (
        f"{instance} ended before it could be logged in to: its boot script failed. If its ami= has "
        f"no user {user!r}, name the user it has with user="
    )
    return StartError(pool, why, await _console(cloud, region, instance))


async def _console(cloud: AWSClient, region: str, instance: str) -> str:
    """The end of a machine's console output; "" if AWS does not give it."""
    try:
        said = await cloud.ask("GetConsoleOutput", region, InstanceId=instance)
    except AWSError:
        return ""
    return str(said.get("Output") or "")[-_LAST_WORDS:].strip()
