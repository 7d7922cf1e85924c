"""Everything that may happen to a call of AWS while a pool comes up, is used and goes down.

Each case is a call and what becomes of it: whoever makes it is killed before it was sent, when it was
carried out, or when it was answered; its answer is lost; it fails, once or from there on; it fails
although it was carried out. Which calls there are was found by recording them: a test compares.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SEED = 9
POOLS = {
    "one": {"nodes": 1},
    "two": {"nodes": 2},
    "placed": {"nodes": 2, "kind": "c5n.18xlarge"},
    "spot": {"nodes": 1, "spot": True},
}
CALLS = {
    "DescribeInstanceTypes": ("ec2", 1),
    "DescribeInstanceTypeOfferings": ("ec2", 1),
    "DescribeSpotPriceHistory": ("ec2", 1),
    "GetProducts": ("pricing", 1),
    "GetCallerIdentity": ("sts", 1),
    "DescribeSubnets": ("ec2", 1),
    "GetParameter": ("ssm", 1),
    "DescribeImages": ("ec2", 1),
    "DescribeSecurityGroups": ("ec2", 2),
    "CreateSecurityGroup": ("ec2", 1),
    "AuthorizeSecurityGroupIngress": ("ec2", 1),
    "AuthorizeSecurityGroupEgress": ("ec2", 1),
    "CreatePlacementGroup": ("ec2", 1),
    "RunInstances": ("ec2", 1),
    "DescribeInstances": ("ec2", 3),
    "TerminateInstances": ("ec2", 1),
    "DeleteSecurityGroup": ("ec2", 1),
    "DeletePlacementGroup": ("ec2", 1),
}
"""By action: its service, and how often it is made at least, by those pools that make it."""

ORDERS = ("leases first", "sweep first")
_ONLY = {
    "DescribeInstanceTypes": "placed",  # all others are in the table that ships
    "DescribeSpotPriceHistory": "spot",
    "CreatePlacementGroup": "placed",
    "DeletePlacementGroup": "placed",
}
"""Calls that pools of one kind alone make."""
_CHANGES = {each for each in CALLS if not each.startswith(("Describe", "Get"))}
_KILLS = ("before", "sent", "answered")
# docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, and CommonErrors of the others.
_COMMON = {
    "ec2": ("RequestLimitExceeded", "InternalError", "UnauthorizedOperation", "RequestExpired"),
    "ssm": (
        "ThrottlingException",
        "InternalServerError",
        "AccessDeniedException",
        "ExpiredTokenException",
    ),
    "pricing": (
        "ThrottlingException",
        "InternalErrorException",
        "AccessDeniedException",
        "ExpiredTokenException",
    ),
    "sts": ("Throttling", "InternalFailure", "AccessDenied", "ExpiredToken"),
}
_OWN = {
    "GetCallerIdentity": ("InvalidClientTokenId", "SignatureDoesNotMatch"),
    "GetParameter": ("ParameterNotFound",),
    "DescribeImages": ("InvalidAMIID.NotFound",),
    "DescribeSubnets": ("InvalidSubnetID.NotFound",),
    "CreateSecurityGroup": ("SecurityGroupLimitExceeded", "InvalidGroup.Duplicate"),
    "AuthorizeSecurityGroupIngress": (
        "InvalidPermission.Duplicate",
        "InvalidGroup.NotFound",
        "RulesPerSecurityGroupLimitExceeded",
    ),
    "AuthorizeSecurityGroupEgress": ("InvalidPermission.Duplicate",),
    "CreatePlacementGroup": ("InvalidPlacementGroup.Duplicate", "PlacementGroupLimitExceeded"),
    "RunInstances": (
        "InsufficientInstanceCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
        "Unsupported",
        "UnsupportedOperation",
        "InvalidParameterValue",
        "InvalidGroup.NotFound",
        "IdempotentParameterMismatch",
        "OptInRequired",
        "PendingVerification",
    ),
    "DescribeInstances": ("InvalidInstanceID.NotFound",),
    "TerminateInstances": ("OperationNotPermitted", "IncorrectInstanceState"),
    "DeleteSecurityGroup": ("DependencyViolation", "InvalidGroup.InUse", "InvalidGroup.NotFound"),
    "DeletePlacementGroup": ("InvalidPlacementGroup.InUse", "InvalidPlacementGroup.Unknown"),
}
_OF_SPOT = ("MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow", "InsufficientInstanceCapacity")


@dataclass(frozen=True)
class Case:
    """The call of this action that is made after `skip` others of it, and what becomes of it."""

    pool: str
    action: str
    skip: int
    how: str
    order: str
    lasting: bool = False
    """All calls of any action fail from there on, until the process has ended."""
    after: bool = False
    """It is carried out all the same."""
    delay: float = 0.0
    """Seconds from the answer to the kill."""

    def __str__(self) -> str:
        what = f"{self.action}{self.skip + 1 if CALLS[self.action][1] > 1 else ''}"
        more = " from there on" * self.lasting + " all the same" * self.after
        return f"{self.pool}: {what} {self.how}{more}, {self.order}"

    @property
    def is_kill(self) -> bool:
        return self.how in _KILLS


def calls_of(pool: str) -> set[str]:
    """The actions that a pool of this kind makes."""
    return {each for each in CALLS if _ONLY.get(each, pool) == pool}


def is_common(case: Case) -> bool:
    """Whether its error is one that any call of its service may get."""
    return case.how in _COMMON[CALLS[case.action][0]]


def all_cases() -> list[Case]:
    """All of them, always the same and in the same order."""
    chance = random.Random(SEED)
    made: list[Case] = []

    def add(action: str, skip: int, how: str, order: str = "", pool: str = "", **more) -> None:
        own = _ONLY.get(action) or chance.choice(("one", "two"))
        order = order or chance.choice(ORDERS)
        delay = round(chance.random() * 0.3, 2) if how == "answered" else 0.0
        made.append(Case(pool or own, action, skip, how, order, delay=delay, **more))

    for action, (service, times) in CALLS.items():
        for skip in range(times):
            for how in _KILLS:
                for order in ORDERS if action in _CHANGES else ("",):
                    add(action, skip, how, order)
            add(action, skip, "lost")
            for code in _COMMON[service]:
                add(action, skip, code)
            add(action, skip, _COMMON[service][3], lasting=True)
            for code in _OWN.get(action, ()) if not skip else ():
                add(action, skip, code)
        if action in _CHANGES:
            add(action, 0, "InternalError", after=True)
    for code in _OF_SPOT:
        add("RunInstances", 0, code, pool="spot")
    return made


def sample(count: int = 8) -> list[Case]:
    """A few of them: each way in which a call can come to grief, and the launch among them."""
    cases = all_cases()
    chosen = [
        each
        for each in cases
        if each.action == "RunInstances" and each.is_kill and each.order == "leases first"
    ]
    chance = random.Random(SEED)
    others = [each for each in cases if each not in chosen]
    wanted = [
        lambda each: each.how == "lost" and each.action == "RunInstances",
        lambda each: each.lasting and each.action == "TerminateInstances",
        lambda each: each.is_kill and each.action == "TerminateInstances",
        lambda each: each.after and each.action == "RunInstances",
        lambda each: each.pool == "placed" and each.is_kill,
    ]
    for fits in wanted:
        chosen.append(chance.choice([each for each in others if fits(each)]))
    return chosen[:count]
