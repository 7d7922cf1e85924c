"""Launches the machines of a pool by its offers, all in one zone or none, and reports each step."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from skyward_nb.protocol.events import Remark, Step
from skyward_nb.providers.aws import disk_keys, rental_records, termination
from skyward_nb.providers.aws.api_errors import (
    OF_ACCOUNT,
    SERVER_FAILED,
    WRONG_KEY,
    AWSError,
    NextStep,
    limit_in,
    quota_of,
    spell_fault,
    spell_quota,
    way_on,
)
from skyward_nb.providers.aws.boot import POWERED_OFF, boot_failed
from skyward_nb.providers.aws.client import Answer, Arguments
from skyward_nb.providers.aws.disk_keys import OF_KEYS
from skyward_nb.providers.aws.elastic_addresses import release_spare
from skyward_nb.providers.aws.launch_request import LaunchRequest
from skyward_nb.providers.aws.offer_walk import OfferWalk, ZoneAttempt, run_limit, spell_way
from skyward_nb.providers.aws.quotas import limit_of
from skyward_nb.providers.aws.rental_records import LaunchAttempt, RunningInstance
from skyward_nb.providers.aws.tags import of_pool
from skyward_nb.providers.aws.user_data import LEAST, SHORTEST
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.words.errors import AccountError, LaunchError, StartError
from skyward_nb.words.offers import Offer, spell_dollars
from skyward_nb.words.spec import PoolSpec

_AGAINS = 6
_PAUSE = 0.5
_MOST_PAUSE = 10.0
_QUICK = 1.5
_UNENDED = "Unended"
"""The code of a launch whose machines may still run."""


class Launch:
    """The launch of one pool's machines by a `request`, after `spent` dollars for others that ended."""

    def __init__(self, request: LaunchRequest, tell: Tell, spent: float = 0.0) -> None:
        self.request = request
        self._spec, self._cloud, self._entry = request.spec, request.cloud, request.entry
        self._tell = tell
        self._nodes = tuple(range(self._spec.nodes))
        self._before = len(self._entry.record.attempts)
        """The number of attempts of earlier launches."""
        self.chosen: ZoneAttempt | None = None
        """The attempt that succeeded."""
        self._spent: float = spent
        """The most dollars spent on machines that ended before all ran."""

    def cost(self, now: float) -> float:
        """The most dollars that its machines have cost until `now`, in seconds since 1970."""
        rate = None if self.chosen is None else self.chosen.offer.hourly(self._spec.nodes)
        if rate is None:
            return self._spent
        began = self._entry.record.attempts[-1].at
        return self._spent + rate * max(0.0, now - began) / 3600

    def gave_up(self) -> None:
        """Its machines were taken back, and have ended: what they cost is spent."""
        self._spent, self.chosen = self.cost(time.time()), None

    async def run(self, offers: Sequence[Offer]) -> tuple[RunningInstance, ...]:
        """The machines of the first offer that succeeds.

        Raises `LaunchError` with all attempts, `AccountError`, and `StartError` if a machine fails to boot.
        """
        walk = OfferWalk(offers)
        before: ZoneAttempt | None = None
        steps: list[str] = []
        way, is_clean = NextStep.STOP, True
        while (now := walk.next) is not None:
            way_here = ""
            if before is not None:
                _, why = walk.refused[-1]
                way_here = f" ({spell_way(before, now)})"
                steps.append(f"{spell_way(before, now)}: {now} (not {before}: {why})")
            before = now
            try:
                found = await self._have(now, way_here)
            except StartError as error:
                for each in steps:
                    error.add_note(each)
                raise
            except AWSError as fault:
                if fault.code in OF_ACCOUNT:
                    raise AccountError(spell_fault(fault)) from fault
                way, is_clean = way_on(fault), is_clean and fault.code != _UNENDED
                why = await self._why(fault, way, now)
                # A call without an answer has none elsewhere.
                walk.refuse(NextStep.STOP if way is NextStep.AGAIN else way, why)
                continue
            self._step(f"{len(found)} × {now}", done=True)
            for each in steps:  # a LaunchError has them all
                self._tell(Remark(each))
            if self.request.fewer_cards:
                self._tell(Remark(self.request.fewer_cards))
            self.chosen = now
            await release_spare(self._cloud, self._entry)
            return found
        tried = [(str(each), why) for each, why in walk.refused]
        # Other options help only if no person has to do something first.
        more = "" if way in (NextStep.STOP, NextStep.AGAIN) else _other_ways(self._spec)
        raise LaunchError(self._spec.name, tried, more, is_clean=is_clean)

    async def _have(self, now: ZoneAttempt, way_here: str) -> tuple[RunningInstance, ...]:
        """The running machines of one attempt; raises `AWSError`, with none of them left.

        `way_here` says how it differs from the attempt before.
        """
        self._step(f"asking for {self._spec.nodes} × {now}{way_here}, {self._costs(now)}")
        if self._spec.max_cost is not None and self._spent:
            rest = self._spec.max_cost - self._spent
            lasts = now.offer.lasts(rest, self._spec.nodes)
            if rest <= 0 or (lasts is not None and lasts < SHORTEST):
                why = (
                    f"{spell_dollars(self._spent)} of max_cost={self._spec.max_cost:g} is spent on machines that ended "
                    "before all ran: the rest is too little for these"
                )
                raise AWSError("BudgetSpent", why, "Launch")
        arguments = await self.request.arguments(now, self._spent)
        record = self._entry.record
        attempt = LaunchAttempt(
            token=rental_records.token_of(record.pool_id, len(record.attempts)),
            region=now.offer.region,
            zone=now.zone,
            type=now.offer.type.name,
            spot=now.offer.spot,
            count=self._spec.nodes,
            at=time.time(),
        )
        self._entry.attempt(attempt)
        try:
            await self._send(attempt, arguments)
            return await self._running(now, way_here)
        except BaseException as fault:
            self._spent += self._cost(now, attempt)
            if not isinstance(fault, AWSError):
                raise
            region, since, unsure = now.offer.region, self._before, ""
            try:
                left = await termination.end_machines(self._cloud, self._entry, region, since=since)
            except AWSError as error:
                if all(each.over for each in self._entry.record.attempts[since:]):
                    raise fault from error  # there are none to end
                left, unsure = [str(now)], f" ({spell_fault(error)})"
            if left:
                # Its machines must be gone before others are paid for.
                why = f"{spell_fault(fault)}, and not all of {now} is known to end{unsure}"
                raise AWSError(_UNENDED, why, "Launch") from fault
            raise

    def _costs(self, now: ZoneAttempt) -> str:
        """The price of an attempt's machines for an hour, in words."""
        rate = now.offer.hourly(self._spec.nodes)
        return "at a price that is not known" if rate is None else f"{spell_dollars(rate)} / h"

    def _cost(self, now: ZoneAttempt, attempt: LaunchAttempt) -> float:
        """The most dollars that a failed attempt has cost."""
        launched = {each.token: len(each.instances) for each in self._entry.record.attempts}
        rate = now.offer.hourly(launched[attempt.token])
        return (rate or 0.0) * max(time.time() - attempt.at, LEAST) / 3600

    async def _send(self, attempt: LaunchAttempt, arguments: Arguments) -> None:
        """Ask for machines until EC2 answers; the token makes repetitions one call. Raises `AWSError`."""
        pause, may_be = _PAUSE, False
        for left in reversed(range(_AGAINS)):
            if may_be:  # an answer was lost: machines of this call may appear later still
                attempt = replace(attempt, repeated=time.time())
                self._entry.attempt(attempt)
            try:
                await self._cloud.ask(
                    "RunInstances",
                    attempt.region,
                    once=True,
                    heard=partial(self._heard, attempt),
                    ClientToken=attempt.token,
                    **arguments,
                )
            except AWSError as fault:
                may_be |= fault.is_unknown
                is_last = not left or way_on(fault) is not NextStep.AGAIN
                # If an answer was lost, and no later one says otherwise, its machines may run.
                if is_last and not (may_be and (not left or fault.code in OF_ACCOUNT)):
                    with rental_records.as_far_as_it_can():
                        self._entry.attempt(replace(attempt, over=True))
                if is_last:
                    raise
                rest = pause * (0.5 + random.random())  # noqa: S311 - spreads, hides nothing
                self._step(f"{fault.code}: asking again in {rest:.1f} s")
            else:
                return
            await asyncio.sleep(rest)
            pause = min(2 * pause, _MOST_PAUSE)

    def _heard(self, attempt: LaunchAttempt, said: Answer) -> None:
        """Note the launched machines at once, even if the launch was cancelled."""
        names = tuple(str(each["InstanceId"]) for each in said["Instances"])
        with rental_records.as_far_as_it_can():
            self._entry.attempt(replace(attempt, instances=names))

    async def _running(self, now: ZoneAttempt, way_here: str) -> tuple[RunningInstance, ...]:
        """Wait until all machines run and have addresses.

        Raises `AWSError` if one ends, and `StartError` if it has ended itself.
        """
        region, pool_id = now.offer.region, self._entry.record.pool_id
        (names,) = [each.instances for each in self._entry.record.attempts[-1:]]
        limit = run_limit(now.offer.type.name)
        until, pause = time.monotonic() + limit, _PAUSE
        while True:
            said = await self._cloud.ask_all(
                "DescribeInstances", region, Filters=[of_pool(pool_id)]
            )
            found = {str(each["InstanceId"]): each for each in termination.instances_in(said)}
            mine = [found[name] for name in names if name in found]
            for each in mine:
                if termination.is_alive(str(each["State"]["Name"])):
                    continue
                if each.get("StateReason", {}).get("Code") == POWERED_OFF:
                    # It has run, and others would end likewise.
                    name, machine = self._spec.name, str(each["InstanceId"])
                    raise await boot_failed(self._cloud, name, region, machine, self.request.user)
                raise _ended(each)
            there = [each for each in mine if each["State"]["Name"] == "running"]
            if len(there) == len(names):
                await self.request.has_addresses(there)
            if len(there) == len(names) and all(
                self.request.address(each, region) for each in there
            ):
                return tuple(self.request.running(each, now) for each in there)
            if time.monotonic() > until:
                why = f"{len(there)} of {len(names)} machines run after {limit:g} s"
                raise AWSError("UnfulfillableCapacity", why, "DescribeInstances")
            self._step(f"{now}{way_here}, {self._costs(now)}: {len(there)} of {len(names)} run")
            await asyncio.sleep(pause)
            pause = min(_QUICK * pause, _MOST_PAUSE)

    # ── what is said ────────────────────────────────────────────────────────────────────

    async def _why(self, fault: AWSError, way: NextStep, now: ZoneAttempt) -> str:
        """Why an attempt failed, in words; for a quota, its name and value."""
        kind, region = now.offer.type, now.offer.region
        if fault.code in OF_KEYS:
            return await disk_keys.why(self._cloud, now.offer, self._entry.record.account, fault)
        if way is not NextStep.QUOTA:
            return spell_fault(fault)
        quota = quota_of(kind.name, spot=now.offer.spot)
        limit: float | None = limit_in(fault.message)
        if limit is None:  # without the permission, only the quota's code is shown
            limit = await limit_of(self._cloud, region, quota)
        return spell_quota(quota, region, limit, kind.cpus * self._spec.nodes)

    def _step(self, text: str, *, done: bool = False) -> None:
        self._tell(Step(self._nodes, "launch", text, done=done))


def _other_ways(spec: PoolSpec) -> str:
    """Options that may succeed instead."""
    assert spec.aws is not None
    ways = ["another accelerator= or instance_type=", "fewer nodes="]
    if not spec.aws.regions:
        ways.append("other regions beside it, region=us-east-1,us-west-2")
    if spec.aws.zones:
        ways.append("more zones=")
    if spec.spot == "yes":
        ways.append("spot=auto, which takes machines on demand where there are no others")
    return f"Other ways: {', '.join(ways)}."


def _ended(instance: Answer) -> AWSError:
    """Why a machine ended before it could be used, as a refusal."""
    reason = instance.get("StateReason", {})
    code = str(reason.get("Code", "Ended"))
    if code.startswith(WRONG_KEY):
        code = WRONG_KEY
    if code not in (SERVER_FAILED, *OF_KEYS):
        code = code.rpartition(".")[2]
    message = f"{instance['InstanceId']} ended: {reason.get('Message', 'no reason is given')}"
    return AWSError(code, message, "RunInstances")
