"""Refusals of EC2: where a launch goes on after one, and what a person can do about it. Pure.

Codes: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import Enum, auto

from skyward_nb.providers.aws import denials


class NextStep(Enum):
    """Where a launch goes on after a refusal."""

    AGAIN = auto()
    """The same call, a little later: EC2 was overloaded, or its answer was lost."""
    ZONE = auto()
    """Another zone of the same type."""
    TYPE = auto()
    """Another type, or another market: no zone of this region has it."""
    QUOTA = auto()
    """Another region or market, or types that another quota counts."""
    MARKET = auto()
    """On demand: the account may have no spot machines at all."""
    REGION = auto()
    """Another region: the account has nothing in this one."""
    STOP = auto()
    """Nowhere: a person has to do something."""


class AWSError(Exception):
    """AWS refused a call, or cannot be reached; with `is_unknown` it may still have done it."""

    def __init__(
        self, code: str, message: str, operation: str, *, is_unknown: bool = False
    ) -> None:
        super().__init__(f"{operation}: {message} ({code})" if message else f"{operation}: {code}")
        self.code = code
        self.message = message
        self.operation = operation
        self.is_unknown = is_unknown
        self.profile = ""
        """The profile of AWS's configuration that was used; "" for boto3's first choice."""


@dataclass(frozen=True)
class Quota:
    """A limit of vCPUs of running machines in each region: its code and its name."""

    code: str
    name: str


_STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"
# Codes: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-quotas.html and
# .../using-spot-limits.html; other types count as standard.
_ON_DEMAND = {
    "dl": ("DL", "L-6E869C2A"),
    "f": ("F", "L-74FC7D96"),
    "g": ("G and VT", "L-DB2E81BA"),
    "gr": ("G and VT", "L-DB2E81BA"),
    "vt": ("G and VT", "L-DB2E81BA"),
    "hpc": ("HPC", "L-F7808C92"),
    "inf": ("Inf", "L-1945791B"),
    "p": ("P", "L-417A185B"),
    "trn": ("Trn", "L-2C3B7624"),
    "u": ("High Memory", "L-43DA4232"),
    "x": ("X", "L-7295265B"),
}
# A generation may have its own quota; those pages name none for P6.
_SPOT = {
    "dl": ("DL", "L-85EED4F7"),
    "f": ("F", "L-88CF9481"),
    "g": ("G and VT", "L-3819A6DF"),
    "gr": ("G and VT", "L-3819A6DF"),
    "vt": ("G and VT", "L-3819A6DF"),
    "inf": ("Inf", "L-B5D1601B"),
    "p": ("P4, P3 and P2", "L-7212CCBC"),
    "p5": ("P5", "L-C4BD4855"),
    "trn": ("Trn", "L-6B0D517C"),
    "x": ("X", "L-E3A00192"),
}

_THROTTLED = {
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "TooManyRequestsException",
}
SERVER_FAILED = "Server.InternalError"
"""The reason of a machine that EC2 itself could not start: another host may."""
CLIENT_FAILED = "Client.InternalError"
"""The reason of a machine that its account's settings keep from starting: mostly the key of its disks."""
WRONG_KEY = "Client.InvalidKMSKey"
"""The reason of a machine whose disks have a key in a state in which it cannot be used."""
NO_TIMER = "NoTimerForStoppedMachines"
"""Our own code: AWS refuses the timer that `warm=` needs."""
NO_SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
_WAYS = {
    NextStep.ZONE: {
        "BudgetSpent",
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "UnfulfillableCapacity",
        "Unsupported",
        "SpotMaxPriceTooLow",
        "InsufficientFreeAddressesInSubnet",
        "InvalidAvailabilityZone",
        # Reasons of a machine that was reclaimed before it ran.
        "SpotInstanceTermination",
        "SpotInstanceShutdown",
        SERVER_FAILED,
    },
    NextStep.MARKET: {NO_SPOT_ROLE},
    NextStep.TYPE: {"InvalidInstanceType", "UnsupportedInstanceType", "UnsupportedOperation"},
    NextStep.QUOTA: {
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "MaxSpotFleetRequestCountExceeded",
    },
    NextStep.REGION: {"OptInRequired", "NoBakedImage", "BakedImageNotReady"},
    NextStep.AGAIN: {
        *_THROTTLED,
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "Unavailable",
        "RequestTimeout",
        "Unreachable",
        # New resources are not visible everywhere at once.
        "InvalidGroup.NotFound",
        "InvalidPlacementGroup.Unknown",
    },
}
_BY_CODE = {code: way for way, codes in _WAYS.items() for code in codes}

_ADVICE = {
    "NoCredentials": "no AWS credentials were found here: make some with `aws configure sso` or "
    "`aws configure`, or name a profile with aws_profile=NAME, in Python sky.AWS(profile=NAME)",
    "NoProfile": "`aws configure list-profiles` lists the profiles; aws_profile= takes one, in "
    "Python sky.AWS(profile=)",
    "BadConfiguration": "`aws configure list` shows what was found; check ~/.aws/config and "
    "~/.aws/credentials",
    "NotGiven": "`aws sts get-caller-identity` shows whether they work again",
    "NoMFA": "`aws sts get-session-token` makes them from an MFA code",
    "LoginOver": "`aws login`, then try again",
    "AuthFailure": "AWS rejects these credentials: `aws sts get-caller-identity` shows whose they are; "
    "a wrong clock of this machine is another cause, or a region that is not enabled for the account",
    NO_SPOT_ROLE: "the account has never had a spot machine, and these credentials may not make the role that it "
    "needs first. Once, by somebody who may: "
    "`aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`",
    NO_TIMER: "once, somebody who may makes the role skyward-nb-warm, by which it ends them, and lets these credentials pass "
    "it on: docs/howto/aws.md of the project has the commands. Without warm=, machines are ended at the pool's end",
    CLIENT_FAILED: "EC2 may not use the KMS key by which the account encrypts disks: the key's policy must let these "
    "credentials, and EC2 for them, do kms:CreateGrant, kms:Decrypt, kms:DescribeKey, "
    "kms:GenerateDataKeyWithoutPlaintext and kms:ReEncrypt* (`aws ec2 get-ebs-default-kms-key-id` names the key)",
    WRONG_KEY: "the KMS key by which the account encrypts disks is disabled or about to be deleted: "
    "`aws ec2 get-ebs-default-kms-key-id` names it, and `aws kms enable-key --key-id KEY` enables it",
    "ExpiredToken": "the credentials have expired: run `aws sso login`, then try again",
    "ExpiredTokenException": "the credentials have expired: run `aws sso login`, then try again",
    "RequestExpired": "the credentials have expired, or this machine's clock is wrong: run `aws sso login`, "
    "and check the time",
    "InvalidClientTokenId": "AWS does not know these credentials: enter valid ones with `aws configure`",
    "SignatureDoesNotMatch": "the secret key is wrong, or this machine's clock is",
    "InsufficientInstanceCapacity": "EC2 cannot provide that many there now",
    "OptInRequired": "the account has not subscribed to EC2 there, or the region is not enabled for it: its "
    "owner can enable it in AWS's console; or name another with region=",
    "PendingVerification": "AWS is still verifying the account and will write to its owner",
    "Blocked": "AWS has blocked the account: ask its support why",
    "InvalidAMIID.NotFound": "this region has no such image: name another with ami=",
    "InvalidAMIID.Malformed": "an image is written ami-0123456789abcdef0",
    "NotLinux": "ranks are started by SSH and /bin/sh: ami= takes an image of Linux",
    "InvalidSubnetID.NotFound": "this region has no such subnet: name another with subnet=",
    "VPCIdNotSpecified": "the account has no default VPC there: name a subnet with subnet=subnet-…",
    "MissingInput": "the account has no default VPC there: name a subnet with subnet=subnet-…",
    "VolumeLimitExceeded": "the account's limit for disks is reached there: run `%sky sweep`, or request a higher limit",
    "Unreadable": "the answer is not from AWS: is the internet reachable, without a proxy that asks for "
    "a login?",
    "Unreachable": "is the internet reachable, and is the region's name right?",
}
NOT_GIVEN = {"BadConfiguration", "LoginOver", "NoCredentials", "NoMFA", "NoProfile", "NotGiven"}
"""Errors of boto3 itself, which found no credentials."""
BAD_CREDENTIALS = {
    *NOT_GIVEN,
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "RequestExpired",
    "SignatureDoesNotMatch",
}
"""Errors of missing, expired or wrong credentials."""
OF_ACCOUNT = {
    *BAD_CREDENTIALS,
    "AccessDenied",
    "AccessDeniedException",
    "NoCallerAddress",
    NO_TIMER,
    "UnauthorizedOperation",
}
"""Refusals of the credentials, or of the account: no other offer helps."""
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_SAY_WHAT = {
    *NOT_GIVEN, *DENIED, CLIENT_FAILED, WRONG_KEY, NO_TIMER, "NotLinux", "Unreachable"
} - {"NoCredentials"}  # fmt: skip
"""Errors whose own text is shown, too: AWS names the action and the policy that denies it."""
_ENCODED = re.compile(r"\s*Encoded authorization failure message:\s*(\S+)\s*")
_ABOUT_KEYS = re.compile(
    r"(?<=`)aws (?:sso login|login|sts get-caller-identity|sts get-session-token|configure sso|configure list"
    r"|configure)(?=`)"
)
_LIMIT = re.compile(r"vCPU limit of (\d+)")


def way_on(fault: AWSError) -> NextStep:
    """Where a launch goes on after this refusal."""
    if fault.is_unknown:
        return NextStep.AGAIN
    return _BY_CODE.get(fault.code, NextStep.STOP)


def is_refusal(code: str) -> bool:
    """Whether certainly nothing was done, whatever the HTTP status: EC2 reports lack of capacity as 500."""
    return code in _THROTTLED or _BY_CODE.get(code, NextStep.AGAIN) is not NextStep.AGAIN


def family_of(name: str) -> str:
    """The letters that a type's name begins with: `p` of `p4d.24xlarge`, `trn` of `trn1.2xlarge`."""
    found = re.match(r"[a-z]+(?=\d|-)", name)
    return found.group() if found else ""


def quota_of(name: str, *, spot: bool) -> Quota:
    """The quota that counts machines of a type."""
    table = _SPOT if spot else _ON_DEMAND
    generation = re.match(r"[a-z]+\d", name)
    standard = _STANDARD, "L-34B43A08" if spot else "L-1216C47A"
    kind, code = table.get(
        generation.group() if generation else "", table.get(family_of(name), standard)
    )
    words = f"All {kind} Spot Instance Requests" if spot else f"Running On-Demand {kind} instances"
    return Quota(code, words)


def limit_in(message: str) -> int | None:
    """The limit of vCPUs that a refusal names."""
    found = _LIMIT.search(message)
    return int(found.group(1)) if found else None


def spell_quota(quota: Quota, region: str, now: float | None, needed: int) -> str:
    """How much a quota lacks, and the command that requests more."""
    have = "" if now is None else f" is {now:g} vCPUs now, and"
    return (
        f"the quota {quota.name!r} ({quota.code}) of {region}{have} {needed} are needed beside "
        f"those in use: `aws service-quotas request-service-quota-increase --service-code ec2 --quota-code "
        f"{quota.code} --desired-value {max(needed, int(now or 0) + needed)} --region {region}`"
    )


def advice_for(fault: AWSError) -> str:
    """Advice on a refusal, in words; "" if its own text is enough."""
    advice = denials.advice(fault.message) if fault.code in DENIED else _ADVICE.get(fault.code, "")
    if not fault.profile:
        return advice
    profile = shlex.quote(fault.profile)
    return _ABOUT_KEYS.sub(lambda found: f"{found[0]} --profile {profile}", advice)


def spell_fault(fault: AWSError) -> str:
    """A refusal, and what to do about it."""
    advice = advice_for(fault)
    said = " ".join(_ENCODED.sub(" ", fault.message).split())
    if not advice:
        return f"{fault.operation}: {said or fault.code} ({fault.code})" if said else str(fault)
    if fault.code in _SAY_WHAT and said:
        advice = f"{said.rstrip('.:')}: {advice}"
    return f"{advice} ({fault.operation}: {fault.code}){_decoding(fault)}"


def _decoding(fault: AWSError) -> str:
    """The command that shows what denied a call, where AWS tells it encoded."""
    found = _ENCODED.search(fault.message)
    if found is None:
        return ""
    profile = f" --profile {shlex.quote(fault.profile)}" if fault.profile else ""
    return f"\nWhat denied it: `aws sts decode-authorization-message --encoded-message {found[1]}{profile}`"
