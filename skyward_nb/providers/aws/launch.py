"""From offers to machines that run: all of a pool in one zone, or none, and each step told."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from skyward_nb.protocol.events import Remark, Step
from skyward_nb.providers.aws import network, rental_records, termination
from skyward_nb.providers.aws.api_errors import (
    NOT_GIVEN,
    AWSError,
    NextStep,
    limit_in,
    quota_of,
    spell_fault,
    spell_quota,
    way_on,
)
from skyward_nb.providers.aws.boot_errors import POWERED_OFF, boot_failed
from skyward_nb.providers.aws.client import Answer, AWSClient
from skyward_nb.providers.aws.images import MachineImage, image_for
from skyward_nb.providers.aws.key_pairs import KeyPair
from skyward_nb.providers.aws.offer_walk import OfferWalk, ZoneAttempt, spell_way
from skyward_nb.providers.aws.rental_records import LaunchAttempt, RentalFolder
from skyward_nb.providers.aws.running_instance import RunningInstance
from skyward_nb.providers.aws.tags import of_pool, tagged
from skyward_nb.providers.aws.user_data import LeaseTerms, script_for
from skyward_nb.providers.base import Tell
from skyward_nb.words.aws_access import AWSAccess
from skyward_nb.words.errors import AccountError, LaunchError, StartError
from skyward_nb.words.offers import Offer, spell_dollars
from skyward_nb.words.spec import PoolSpec

BOOT = 1800.0
"""Seconds that a machine may take until an agent on it renews its lease for the first time."""
SLACK = 60.0
"""Seconds beyond `idle` in which an agent ends in order before its machine does."""
_UNARMED = 60.0
"""Seconds that a machine may be paid for before it counts the time until its end."""
_LEAST = 60.0
"""Seconds that are paid for in any case. Source: https://aws.amazon.com/ec2/pricing/on-demand/."""
SHORTEST = _UNARMED + _LEAST
"""Seconds that a budget has to last for machines: they may cost as much whatever is said."""
_RUN_LIMIT = 300.0
_AGAINS = 6
_PAUSE = 0.5
_MOST_PAUSE = 10.0
_QUICK = 1.5
_UNENDED = "Unended"
"""What was launched may still run."""
_ACCOUNT = {
    *NOT_GIVEN,
    "ExpiredToken",
    "ExpiredTokenException",
    "AuthFailure",
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "RequestExpired",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "NoCallerAddress",
}


def lease_for(spec: PoolSpec, price: float | None, spent: float = 0.0) -> LeaseTerms:
    """When the machines of a pool that costs `price` dollars an hour, and has cost `spent`, end by themselves."""
    ends = [spec.ttl] if spec.ttl else []
    if spec.max_cost is not None and price:
        lasts = (spec.max_cost - spent) / price * 3600
        ends.append(max(lasts - _UNARMED, _LEAST))
    return LeaseTerms(boot=BOOT, idle=spec.idle + SLACK, deadline=min(ends, default=0.0))


class Launch:
    """One pool on its way: `pair` lets in, `host` is what all machines show until the first login.

    Where its machines are to join others of the pool, `others` are those; the spec is of the new ones.
    """

    def __init__(
        self,
        spec: PoolSpec,
        cloud: AWSClient,
        entry: RentalFolder,
        pair: KeyPair,
        host: KeyPair,
        tell: Tell,
        others: Sequence[RunningInstance] = (),
    ) -> None:
        assert spec.aws is not None
        self._spec = spec
        self._access: AWSAccess = spec.aws
        self._cloud = cloud
        self._entry = entry
        self._pair = pair
        self._host = host
        self._tell = tell
        self._nodes = tuple(range(spec.nodes))
        self._others = others
        self._before = len(entry.record.attempts)
        """How many attempts there were before, which are no concern of this."""
        self._streets: dict[str, network.PoolSubnets] = {}
        self._groups: dict[str, str] = {}
        self._images: dict[tuple[str, str, bool], MachineImage] = {}
        self._callers: tuple[str, ...] | None = None
        self.user: str = ""
        self.chosen: ZoneAttempt | None = None
        """What could be had."""
        self._spent: float = 0.0
        """Dollars, at the most, for machines that ran, and ended before all did."""

    def cost(self, now: float) -> float:
        """Dollars, at the most, that what it has launched has cost until `now`, seconds since 1970."""
        rate = None if self.chosen is None else self.chosen.offer.hourly(self._spec.nodes)
        if rate is None:
            return self._spent
        began = self._entry.record.attempts[-1].at
        return self._spent + rate * max(0.0, now - began) / 3600

    async def run(self, offers: Sequence[Offer]) -> tuple[RunningInstance, ...]:
        """The machines of the first offer that can be had.

        Raises `LaunchError` with all that was tried, `AccountError`, and `StartError` of a boot that fails.
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
                if fault.code in _ACCOUNT:
                    raise AccountError(spell_fault(fault)) from fault
                way, is_clean = way_on(fault), is_clean and fault.code != _UNENDED
                why = await self._why(fault, way, now)
                # A call that nobody answers is answered nowhere else.
                walk.refuse(NextStep.STOP if way is NextStep.AGAIN else way, why)
                continue
            self._step(f"{len(found)} × {now}", done=True)
            for each in steps:  # where there is none in the end, the error tells them all
                self._tell(Remark(each))
            self.chosen = now
            return found
        tried = [(str(each), why) for each, why in walk.refused]
        # Nothing else is of use where a person has to do something first.
        more = "" if way in (NextStep.STOP, NextStep.AGAIN) else _other_ways(self._spec)
        raise LaunchError(self._spec.name, tried, more, is_clean=is_clean)

    async def _have(self, now: ZoneAttempt, way_here: str) -> tuple[RunningInstance, ...]:
        """The machines of one try, which run; raises `AWSError`, with none of them left.

        `way_here` says how it differs from the one before.
        """
        self._step(f"asking for {self._spec.nodes} × {now}{way_here}, {self._costs(now)}")
        if self._spec.max_cost is not None and self._spent >= self._spec.max_cost:
            why = f"max_cost={self._spec.max_cost:g} is spent on machines that ended before all ran"
            raise AWSError("BudgetSpent", why, "Launch")
        words = await self._words(now)
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
            await self._send(attempt, words)
            return await self._running(now, way_here)
        except BaseException as fault:
            self._spent += self._cost(now, attempt)
            if not isinstance(fault, AWSError):
                raise
            region, since = now.offer.region, self._before
            if await termination.end_machines(self._cloud, self._entry, region, since=since):
                # What it has launched must be gone before others are paid for.
                why = f"{spell_fault(fault)}, and not all of {now} is known to end"
                raise AWSError(_UNENDED, why, "Launch") from fault
            raise

    def _costs(self, now: ZoneAttempt) -> str:
        """What the machines of a try cost an hour, in words."""
        rate = now.offer.hourly(self._spec.nodes)
        return "at a price that is not known" if rate is None else f"{spell_dollars(rate)} / h"

    def _cost(self, now: ZoneAttempt, attempt: LaunchAttempt) -> float:
        """Dollars, at the most, that a try has cost that came to nothing."""
        launched = {each.token: len(each.instances) for each in self._entry.record.attempts}
        rate = now.offer.hourly(launched[attempt.token])
        return (rate or 0.0) * max(time.time() - attempt.at, _LEAST) / 3600

    async def _send(self, attempt: LaunchAttempt, words: dict[str, Any]) -> None:
        """Ask for machines until that is answered; the same token makes it one call. Raises `AWSError`."""
        pause, may_be = _PAUSE, False
        for left in reversed(range(_AGAINS)):
            try:
                await self._cloud.ask(
                    "RunInstances",
                    attempt.region,
                    once=True,
                    heard=lambda answer: self._heard(attempt, answer),
                    ClientToken=attempt.token,
                    **words,
                )
            except AWSError as fault:
                may_be |= fault.is_unknown
                is_last = not left or way_on(fault) is not NextStep.AGAIN
                # Where an answer was lost, the token brings it again, but not to whoever may not ask.
                if is_last and not (may_be and (not left or fault.code in _ACCOUNT)):
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
        """Note what was launched, at once: also where nobody waits for the answer any more."""
        names = tuple(str(each["InstanceId"]) for each in said["Instances"])
        with rental_records.as_far_as_it_can():
            self._entry.attempt(replace(attempt, instances=names))

    async def _running(self, now: ZoneAttempt, way_here: str) -> tuple[RunningInstance, ...]:
        """Wait until all machines run and have addresses.

        Raises `AWSError` where one ends, and `StartError` where it has ended itself.
        """
        region, pool_id = now.offer.region, self._entry.record.pool_id
        (names,) = [each.instances for each in self._entry.record.attempts[-1:]]
        until, pause = time.monotonic() + _RUN_LIMIT, _PAUSE
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
                    # It has run, and others would do as it did.
                    name, machine = self._spec.name, str(each["InstanceId"])
                    raise await boot_failed(self._cloud, name, region, machine, self.user)
                raise _ended(each)
            there = [each for each in mine if each["State"]["Name"] == "running"]
            if len(there) == len(names) and all(self._address(each, region) for each in there):
                return tuple(self._launched(each, now) for each in there)
            if time.monotonic() > until:
                why = f"{len(there)} of {len(names)} machines run after {_RUN_LIMIT:g} s"
                raise AWSError("UnfulfillableCapacity", why, "DescribeInstances")
            self._step(f"{now}{way_here}, {self._costs(now)}: {len(there)} of {len(names)} run")
            await asyncio.sleep(pause)
            pause = min(_QUICK * pause, _MOST_PAUSE)

    def _address(self, instance: dict[str, Any], region: str) -> str | None:
        """Where a machine can be reached, once it can."""
        is_public = self._streets[region].is_public
        return instance.get("PublicIpAddress" if is_public else "PrivateIpAddress")

    def _launched(self, instance: dict[str, Any], now: ZoneAttempt) -> RunningInstance:
        price = now.offer.price
        return RunningInstance(
            instance=str(instance["InstanceId"]),
            region=now.offer.region,
            zone=str(instance["Placement"]["AvailabilityZone"]),
            type=now.offer.type.name,
            spot=now.offer.spot,
            price=None if price is None else price.dollars,
            public=instance.get("PublicIpAddress") or None,
            private=str(instance["PrivateIpAddress"]),
            host_key=self._host.public,
        )

    # ── what the call says ──────────────────────────────────────────────────────────────

    async def _words(self, now: ZoneAttempt) -> dict[str, Any]:
        """The arguments of RunInstances for a try; makes what they name. Raises `AWSError`."""
        spec, kind, region = self._spec, now.offer.type, now.offer.region
        if region not in self._streets:
            self._streets[region] = await network.street_in(self._cloud, self._access, region)
        street = self._streets[region]
        zone = now.zone or next(iter(street.subnets))
        if zone not in street.subnets:
            why = f"the VPC has no default subnet in {zone}"
            if self._access.subnet:
                why = f"subnet={self._access.subnet} is in {', '.join(street.subnets)}"
            raise AWSError("InvalidAvailabilityZone", why, "DescribeSubnets")
        # Both to their end: what is made beside the error of the other is in the record then.
        image, group = await asyncio.gather(
            self._image(now), self._group(region, street), return_exceptions=True
        )
        if isinstance(image, BaseException):
            raise image
        if isinstance(group, BaseException):
            raise group
        several = spec.nodes + len(self._others) > 1 and self._access.placement != "no"
        words: dict[str, Any] = {
            "ImageId": image.ami,
            "InstanceType": kind.name,
            "MinCount": spec.nodes,
            "MaxCount": spec.nodes,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 1,
            },
            "BlockDeviceMappings": [
                {
                    "DeviceName": image.root,
                    "Ebs": {
                        "VolumeType": "gp3",
                        "VolumeSize": max(self._access.disk, image.size),
                        "Encrypted": True,
                        "DeleteOnTermination": True,
                    },
                },
                # An image may say that a disk of its own stays.
                *(
                    {
                        "DeviceName": name,
                        "Ebs": {"VolumeSize": size, "Encrypted": True, "DeleteOnTermination": True},
                    }
                    for name, size in image.others
                ),
            ],
            "NetworkInterfaces": network.cards_for(
                kind,
                street.subnets[zone],
                group,
                efa=several and kind.efa,
                is_public=street.is_public,
            ),
            "Placement": {"AvailabilityZone": zone},
            "UserData": self._script(now, image),
            "TagSpecifications": tagged(
                ["instance", "volume", "network-interface"], self._entry.record
            ),
        }
        # A group is of one zone.
        is_beside = all(each.zone == zone for each in self._others)
        if several and is_beside and network.fits_side_by_side(kind):
            name = await network.placement_in(self._cloud, self._entry, region, zone)
            words["Placement"]["GroupName"] = name
        if now.offer.spot:
            words["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                },
            }
        self.user = image.user
        return words

    def _script(self, now: ZoneAttempt, image: MachineImage) -> str:
        lease = lease_for(self._spec, now.offer.hourly(self._spec.nodes), self._spent)
        if lease.deadline:
            deadline = time.time() + lease.deadline + BOOT
            self._entry.note(deadline=max(deadline, self._entry.record.deadline or 0.0))
        return script_for(
            image.user,
            lease,
            authorized=self._pair.public,
            private=self._host.private,
            public=self._host.public,
        )

    async def _image(self, now: ZoneAttempt) -> MachineImage:
        kind, region = now.offer.type, now.offer.region
        key = region, kind.arch, kind.gpus > 0
        if key not in self._images:
            self._images[key] = await image_for(self._cloud, self._access, kind, region)
        return self._images[key]

    async def _group(self, region: str, street: network.PoolSubnets) -> str:
        if self._access.security_group:
            return self._access.security_group
        if region not in self._groups:
            if self._callers is None:
                self._callers = await network.caller_networks()
            self._groups[region] = await network.group_in(
                self._cloud, self._entry, region, street.vpc, self._callers
            )
        return self._groups[region]

    # ── what is said ────────────────────────────────────────────────────────────────────

    async def _why(self, fault: AWSError, way: NextStep, now: ZoneAttempt) -> str:
        """Why a try came to nothing, in words; of a quota, which, and what it is now."""
        kind, region = now.offer.type, now.offer.region
        if way is not NextStep.QUOTA:
            return spell_fault(fault)
        quota = quota_of(kind.name, spot=now.offer.spot)
        limit: float | None = limit_in(fault.message)
        if limit is None:
            try:
                said = await self._cloud.ask(
                    "GetServiceQuota",
                    region,
                    service="service-quotas",
                    ServiceCode="ec2",
                    QuotaCode=quota.code,
                )
                limit = float(said["Quota"]["Value"])
            except AWSError:
                limit = None  # who may not ask is told the code, at least
        return spell_quota(quota, region, limit, kind.cpus * self._spec.nodes)

    def _step(self, text: str, *, done: bool = False) -> None:
        self._tell(Step(self._nodes, "launch", text, done=done))


def _other_ways(spec: PoolSpec) -> str:
    """What may be had where this was not."""
    assert spec.aws is not None
    ways = ["another accelerator= or instance_type=", "fewer nodes="]
    if not spec.aws.regions:
        ways.append("other regions beside it, region=us-east-1,us-west-2")
    if spec.aws.zones:
        ways.append("more zones=")
    if spec.spot == "yes":
        ways.append("spot=auto, which takes machines on demand where there are no others")
    return f"Other ways: {', '.join(ways)}."


def _ended(instance: dict[str, Any]) -> AWSError:
    """Why a machine ended before it could be used, as the refusal that this comes to."""
    reason = instance.get("StateReason", {})
    code = str(reason.get("Code", "Ended")).rpartition(".")[2]
    message = f"{instance['InstanceId']} ended: {reason.get('Message', 'nobody says why')}"
    return AWSError(code, message, "RunInstances")
