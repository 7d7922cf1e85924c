"""Which policy denied a call of AWS, by AWS's words, and who can change that. Pure.

A call is allowed only where all of them allow it: beside the policies of a user or role these are limits that others
set, such as permissions boundaries. Source:
https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_WHO = re.compile(r"User: (arn:\S+)")
_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)")
_KIND = (
    r"(?P<kind>permissions boundary|(?:service control|resource control|session|vpc endpoint|identity-based|"
    r"resource-based)(?= policy))"
)
_LACKS = re.compile(
    rf"no {_KIND}(?: policy)? allows the (?P<action>[\w-]+:\w+) action", re.IGNORECASE
)
_DENIES = re.compile(
    rf"explicit deny in an? {_KIND}(?: policy)?(?:: (?P<policy>arn:\S+?)(?=\.?(?:\s|$)))?",
    re.IGNORECASE,
)
_POLICY = "docs/aws-policy.json of the project is the policy that grants it"


@dataclass(frozen=True)
class _Denial:
    """What AWS said: the kind of policy, the action, whether it denies it, and the ARN of who asked."""

    kind: str
    action: str
    is_explicit: bool
    policy: str
    who: str


def advice(message: str) -> str:
    """What a refusal for want of rights means, and who can help; AWS's words where they are not known."""
    found = _read(message)
    if found is None:
        return f"these credentials lack that permission: {_POLICY}"
    does = "denies" if found.is_explicit else "does not allow"
    named = f" ({found.policy})" if found.policy else ""
    match found.kind:
        case "permissions boundary":
            return (
                f"a permissions boundary{named} {does} {found.action}: a limit set by the administrator of the account, which no policy of "
                f"your own widens, docs/aws-policy.json neither. They have to allow {found.action} in the boundary"
                f"{_boundary_of(found.who)}"
            )
        case "service control" | "resource control":
            return (
                f"a {found.kind} policy of the organization{named} {does} {found.action}: no policy within the account, nor "
                "docs/aws-policy.json, changes that. Ask the administrator of the organization; where it is about regions, types or "
                "tags, region=, instance_type= and tags= choose others"
            )
        case "session":
            return (
                f"the policy of this session{named} {does} {found.action}: it was begun with fewer rights than its role has. "
                "Sign in without that policy"
            )
        case "vpc endpoint":
            return (
                f"the policy of the VPC endpoint{named} that calls go through {does} {found.action}: the administrator of the network "
                "has to allow it there"
            )
        case "identity-based" if found.is_explicit:
            return (
                f"a policy of this user or role{named} denies {found.action}: it counts more than one that allows it, such as "
                "docs/aws-policy.json, and has to be changed first"
            )
        case _:
            return f"these credentials lack that permission: {_POLICY}"


def _read(message: str) -> _Denial | None:
    text = " ".join(message.split())
    who, action = _WHO.search(text), _ACTION.search(text)
    asked = action[1] if action else "this call"
    by = who[1] if who else ""
    if denies := _DENIES.search(text):
        return _Denial(denies["kind"].lower(), asked, True, denies["policy"] or "", by)
    if lacks := _LACKS.search(text):
        return _Denial(lacks["kind"].lower(), lacks["action"], False, "", by)
    return None


def _boundary_of(who: str) -> str:
    """The command that names the boundary of a user or a role."""
    kind, _, name = who.rpartition(":")[2].partition("/")
    if kind == "user" and name:
        own = shlex.quote(name.rpartition("/")[2])
        return f": `aws iam get-user --user-name {own} --query User.PermissionsBoundary` names it"
    if kind == "assumed-role" and name:
        own = shlex.quote(name.partition("/")[0])
        return f": `aws iam get-role --role-name {own} --query Role.PermissionsBoundary` names it"
    return ""
