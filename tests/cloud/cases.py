"""Everything that may happen to a call of AWS while a pool comes up, is used, mended, goes down, or is swept.

Each case is a call and what becomes of it: whoever makes it is killed before it was sent, when it was
carried out, or when it was answered; its answer is lost; it fails, once or from there on; it fails
although it was carried out. Which calls there are was found by recording them: a test compares.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SEED = 9
POOLS = {
    "one": {"nodes": 1},
    "two": {"nodes": 2},
    "placed": {"nodes": 2, "kind": "c5n.18xlarge"},
    "spot": {"nodes": 1, "spot": True},
    "cards": {"nodes": 2, "kind": "c6in.32xlarge"},
}
POOL = {
    "DescribeInstanceTypes": 1,
    "DescribeInstanceTypeOfferings": 1,
    "DescribeSpotPriceHistory": 1,
    "GetProducts": 1,
    "GetCallerIdentity": 1,
    "DescribeSubnets": 1,
    "GetParameter": 1,
    "DescribeImages": 1,
    "DescribeSecurityGroups": 2,
    "CreateSecurityGroup": 1,
    "AuthorizeSecurityGroupIngress": 1,
    "AuthorizeSecurityGroupEgress": 1,
    "CreatePlacementGroup": 1,
    "DescribeAddresses": 3,
    "AllocateAddress": 2,
    "RunInstances": 1,
    "AssociateAddress": 2,
    "DescribeInstances": 3,
    "TerminateInstances": 1,
    "DisassociateAddress": 2,
    "ReleaseAddress": 2,
    "DeleteSecurityGroup": 1,
    "DeletePlacementGroup": 1,
}
_ONLY = {
    "DescribeInstanceTypes": "placed",  # all others are in the table that ships
    "DescribeSpotPriceHistory": "spot",
    "CreatePlacementGroup": "placed",
    "DeletePlacementGroup": "placed",
    "DescribeAddresses": "cards",
    "AllocateAddress": "cards",
    "AssociateAddress": "cards",
    "DisassociateAddress": "cards",
    "ReleaseAddress": "cards",
}
"""Calls of pools that are played with those of one kind alone."""
_LIKE = {"cards": "placed"}
"""Kinds of pools that also make the calls of another."""
POOL_OF = {
    name: {
        each: times
        for each, times in POOL.items()
        if _ONLY.get(each, name) in (name, _LIKE.get(name))
    }
    for name in POOLS
}
"""What each kind of pool calls."""
REPLACEMENT = {
    "DescribeInstances": 5,
    "GetCallerIdentity": 1,
    "DescribeSubnets": 1,
    "GetParameter": 1,
    "DescribeImages": 1,
    "DescribeSecurityGroups": 2,
    "AuthorizeSecurityGroupIngress": 1,
    "AuthorizeSecurityGroupEgress": 1,
    "RunInstances": 1,
    "TerminateInstances": 1,
    "DeleteSecurityGroup": 1,
}
SWEEP = {
    "GetCallerIdentity": 1,
    "DescribeInstances": 4,
    "TerminateInstances": 1,
    "DescribeSecurityGroups": 2,
    "DeleteSecurityGroup": 1,
    "DeletePlacementGroup": 1,
    "DescribePlacementGroups": 1,
    "DescribeAddresses": 2,
    "DisassociateAddress": 2,
    "ReleaseAddress": 2,
}
UNRECORDED = {
    "DescribeInstances": 1,
    "TerminateInstances": 1,
    "DescribeSecurityGroups": 2,
    "DeleteSecurityGroup": 1,
    "DescribePlacementGroups": 1,
    "DeletePlacementGroup": 1,
    "DescribeAddresses": 2,
    "DisassociateAddress": 2,
    "ReleaseAddress": 2,
}
STOPPED = {
    **dict.fromkeys(
        [each for each in POOL_OF["one"] if each not in ("TerminateInstances", "DeleteSecurityGroup")], 0
    ),
    "CreateSchedule": 1,
    "GetProducts": 2,
    "DescribeInstances": 3,
    "UpdateSchedule": 1,
    "StopInstances": 1,
}  # fmt: skip
STARTED = {
    "GetCallerIdentity": 1,
    "AuthorizeSecurityGroupIngress": 1,
    "DescribeSecurityGroups": 1,
    "DescribePlacementGroups": 1,
    "DescribeInstances": 5,
    "StartInstances": 1,
    "UpdateSchedule": 3,
    "StopInstances": 1,
    "DescribeAddresses": 0,
}
ENDED = {
    "GetCallerIdentity": 1,
    "DescribeInstances": 3,
    "TerminateInstances": 1,
    "DescribeSecurityGroups": 1,
    "DeleteSecurityGroup": 1,
    "DeleteSchedule": 1,
    "DescribePlacementGroups": 0,
    "DescribeAddresses": 0,
}
BAKED = {
    **dict.fromkeys(POOL_OF["one"], 0),
    "GetProducts": 2,
    "DescribeInstances": 4,
    "DescribeImages": 4,
    "CreateImage": 2,
    "DescribeSnapshots": 2,
}
UNBAKED = {
    "GetCallerIdentity": 1,
    "DescribeImages": 1,
    "DescribeSnapshots": 1,
    "DeregisterImage": 1,
    "DeleteSnapshot": 1,
}
HALF_BAKED = {
    **dict.fromkeys(
        ("GetCallerIdentity", "DescribeInstances", "DescribeSecurityGroups", "DeleteSecurityGroup",
         "DescribePlacementGroups", "DescribeAddresses"), 0
    ),
    "DescribeImages": 2,
    "DescribeSnapshots": 2,
    "GetProducts": 1,
    "DeregisterImage": 1,
    "DeleteSnapshot": 1,
}  # fmt: skip
# By action: how often a call is made at least; with 0, it is played elsewhere. A pool comes up, runs a
# cell and goes down; one comes up although its quota as spot is used up; one does not, as a machine's
# first script fails; a pool's machine is stopped at its end; a later pool has it started; it is ended; an image is
# made of a pool's machine; it is removed; a sweep finds one that somebody asked for who was killed; another machine is rented for one of two that was taken back, and the pool goes
# down; a sweep finds machines of somebody who was killed, with their record, or without.
OTHERS = {
    "quota": {**dict.fromkeys(POOL_OF["spot"], 0), "GetServiceQuota": 1, "RunInstances": 2},
    "boot": {
        **{
            each: 0 for each in POOL_OF["one"] if each != "TerminateInstances"
        },  # they end themselves
        "GetConsoleOutput": 1,
    },
    "replacement": REPLACEMENT,
    "stopped": STOPPED,
    "started": STARTED,
    "ended": ENDED,
    "sweep": SWEEP,
    "sweep without a record": UNRECORDED,
    "baked": BAKED,
    "unbaked": UNBAKED,
    "half baked": HALF_BAKED,
}
IMAGES = ("baked", "unbaked", "half baked")
SWEEPS = ("sweep", "sweep without a record")
CALLS = tuple(dict.fromkeys([*POOL, *(action for calls in OTHERS.values() for action in calls)]))

ORDERS = ("leases first", "sweep first")
_SERVICES = {
    "GetCallerIdentity": "sts",
    "GetParameter": "ssm",
    "GetProducts": "pricing",
    "GetServiceQuota": "servicequotas",
    **dict.fromkeys(("CreateSchedule", "UpdateSchedule", "DeleteSchedule"), "scheduler"),
}
"""Those that are not of EC2."""
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
    "servicequotas": (
        "TooManyRequestsException",
        "ServiceException",
        "AccessDeniedException",
        "ExpiredTokenException",
    ),
    # docs.aws.amazon.com/scheduler/latest/APIReference/CommonErrors.html
    "scheduler": (
        "ThrottlingException",
        "InternalServerException",
        "AccessDeniedException",
        "ExpiredTokenException",
    ),
    "sts": ("Throttling", "InternalFailure", "AccessDenied", "ExpiredToken"),
}
_SELDOM = (
    "AuthFailure",
    "Blocked",
    "IncompleteSignature",
    "InternalFailure",
    "InvalidClientTokenId",
    "InvalidParameter",
    "MissingAuthenticationToken",
    "OptInRequired",
    "PendingVerification",
    "ServiceUnavailable",
    "Unavailable",
    "UnknownParameter",
)
"""Others that any call of EC2 may get: one of them is played with each."""
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
    "AllocateAddress": ("AddressLimitExceeded", "InsufficientAddressCapacity"),
    "AssociateAddress": (
        "InvalidAllocationID.NotFound",
        "Resource.AlreadyAssociated",
        "InvalidInstanceID",
    ),
    "DisassociateAddress": ("InvalidAssociationID.NotFound",),
    "ReleaseAddress": ("InvalidAllocationID.NotFound", "InvalidIPAddress.InUse"),
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
    "CreateSchedule": ("ConflictException", "ServiceQuotaExceededException", "ValidationException"),
    "UpdateSchedule": ("ConflictException", "ResourceNotFoundException", "ValidationException"),
    "DeleteSchedule": ("ConflictException", "ResourceNotFoundException"),
    "StopInstances": ("IncorrectInstanceState", "UnsupportedOperation", "OperationNotPermitted"),
    "CreateImage": ("InvalidAMIName.Duplicate", "IncorrectState", "InvalidInstanceID.NotFound"),
    "DeregisterImage": ("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"),
    "DeleteSnapshot": ("InvalidSnapshot.InUse", "InvalidSnapshot.NotFound"),
    "StartInstances": (
        "InsufficientInstanceCapacity",
        "IncorrectInstanceState",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
    ),
}
_OF_SPOT = ("MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow", "InsufficientInstanceCapacity")


@dataclass(frozen=True)
class Case:
    """The call of this action that is made after `skip` others of it, and what becomes of it."""

    scene: str
    """A kind of pool, or another scene."""
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
        times = OTHERS.get(self.scene, POOL)[self.action]
        what = f"{self.action}{self.skip + 1 if times > 1 else ''}"
        more = " from there on" * self.lasting + " all the same" * self.after
        return f"{self.scene}: {what} {self.how}{more}, {self.order}"

    @property
    def is_kill(self) -> bool:
        return self.how in _KILLS


def calls_of(scene: str) -> dict[str, int]:
    """The actions that somebody calls in a scene, and how often each at least."""
    return OTHERS.get(scene) or POOL_OF[scene]


def is_common(case: Case) -> bool:
    """Whether its error is one that any call of its service may get."""
    return case.how in (*_common(case.action), *_SELDOM)


def service_of(action: str) -> str:
    """The service that is called."""
    return _SERVICES.get(action, "ec2")


def _common(action: str) -> tuple[str, ...]:
    return _COMMON[service_of(action)]


def all_cases() -> list[Case]:
    """All of them, always the same and in the same order."""
    chance = random.Random(SEED)
    made = _cases_of(
        POOL, chance, lambda action: _ONLY.get(action) or chance.choice(("one", "two"))
    )
    made += [_case(chance, "spot", "RunInstances", 0, code) for code in _OF_SPOT]
    for scene, calls in OTHERS.items():
        made += _cases_of(calls, chance, lambda _, scene=scene: scene)
    return made


def _cases_of(
    calls: Mapping[str, int], chance: random.Random, scene_of: Callable[[str], str]
) -> list[Case]:
    made: list[Case] = []
    for action, times in calls.items():

        def add(skip: int, how: str, order: str = "", action: str = action, **more: bool) -> None:
            made.append(_case(chance, scene_of(action), action, skip, how, order, **more))

        for skip in range(times):
            for how in _KILLS:
                for order in ORDERS if action in _CHANGES else ("",):
                    add(skip, how, order)
            add(skip, "lost")
            # The codes of all calls are all played with pools: elsewhere one by chance will do.
            common = _common(action)
            for code in common if calls is POOL else (chance.choice(common),):
                add(skip, code)
            if service_of(action) == "ec2":
                others = [each for each in _SELDOM if each not in _OWN.get(action, ())]
                add(skip, others[len(made) % len(others)])
            add(skip, common[3], lasting=True)
            for code in _OWN.get(action, ()) if not skip else ():
                add(skip, code)
        if action in _CHANGES:
            add(0, "InternalError", after=True)
    return made


def _case(
    chance: random.Random,
    scene: str,
    action: str,
    skip: int,
    how: str,
    order: str = "",
    **more: bool,
) -> Case:
    delay = round(chance.random() * 0.3, 2) if how == "answered" else 0.0
    return Case(scene, action, skip, how, order or chance.choice(ORDERS), delay=delay, **more)


def sample() -> list[Case]:
    """A few of them: each way in which a call can come to grief, and the launch among them."""
    cases = all_cases()
    of_pools = [each for each in cases if each.scene in POOLS]
    chosen = [
        each
        for each in of_pools
        if each.action == "RunInstances" and each.is_kill and each.order == "leases first"
    ]
    chance = random.Random(SEED)
    wanted = [
        lambda each: each.how == "lost" and each.action == "RunInstances",
        lambda each: each.lasting and each.action == "TerminateInstances",
        lambda each: each.after and each.action == "RunInstances",
        lambda each: each.scene == "placed" and each.is_kill,
        lambda each: each.action == "AllocateAddress" and each.how == "sent",
    ]
    for fits in wanted:
        chosen.append(
            chance.choice([each for each in of_pools if fits(each) and each not in chosen])
        )
    chosen.append(
        next(
            each
            for each in cases
            if (each.scene, each.action, each.skip, each.how) == ("baked", "CreateImage", 1, "sent")
        )
    )
    for scene in SWEEPS:
        killed = [
            each for each in cases if each.scene == scene and each.action == "TerminateInstances"
        ]
        chosen.append(next(each for each in killed if each.how == "sent"))
    return chosen
