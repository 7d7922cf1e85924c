"""The rights that the documentation asks for are those of the calls that are made: no fewer, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cloud.cases import CALLS, service_of
from cloud.renter import GPU, Renter, offer

from skyward_nb.providers.aws.end_timers import ROLE

pytestmark = pytest.mark.timeout(200)
_POLICY = Path(__file__).parents[2] / "docs/aws-policy.json"
_NEEDS_NONE = {"GetCallerIdentity"}
# It is asked for the words of an error alone: tests/cloud/test_disk_keys.py.
_OF_ERRORS = {"ec2:GetEbsDefaultKmsKeyId"}
# docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html
# docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_use_passrole.html
_NO_CALL = {"ec2:CreateTags", "iam:PassRole"}
_MADE = {"RunInstances", "CreateSecurityGroup", "CreatePlacementGroup", "AllocateAddress"}
_MARKED = {
    "StartInstances", "StopInstances", "TerminateInstances", "DeleteSecurityGroup", "DeletePlacementGroup",
    "GetConsoleOutput", "AssociateAddress", "DisassociateAddress", "ReleaseAddress", "CreateImage", "DeregisterImage",
    "DeleteSnapshot",
}  # fmt: skip


def statements():
    return json.loads(_POLICY.read_text())["Statement"]


def actions(statement):
    own = statement["Action"]
    return {own} if isinstance(own, str) else set(own)


def test_the_policy_allows_what_is_called_and_nothing_else():
    """That these are all calls, another test finds by recording them."""
    called = {f"{service_of(each)}:{each}" for each in CALLS if each not in _NEEDS_NONE}
    allowed = set().union(*map(actions, statements()))
    assert allowed - _NO_CALL - _OF_ERRORS == called


def test_machines_may_be_made_of_capacity_that_is_reserved():
    (plain,) = [
        each["Resource"]
        for each in statements()
        if "ec2:RunInstances" in actions(each) and "Condition" not in each
    ]
    assert "arn:aws:ec2:*:*:capacity-reservation/*" in plain


def test_what_ends_something_is_allowed_for_what_is_ours_alone():
    for each in statements():
        own = {name.partition(":")[2] for name in actions(each)}
        if own & _MARKED and own != {"CreateImage"}:
            assert own >= _MARKED
            assert each["Condition"] == {"Null": {"aws:ResourceTag/skyward:pool": "false"}}


def test_the_role_of_timers_ends_marked_machines_and_no_others():
    (own,) = json.loads(_POLICY.with_name("aws-warm-policy.json").read_text())["Statement"]
    assert own["Action"] == "ec2:TerminateInstances"
    assert own["Condition"] == {"Null": {"aws:ResourceTag/skyward:pool": "false"}}
    (trust,) = json.loads(_POLICY.with_name("aws-warm-trust.json").read_text())["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    (passed,) = [each for each in statements() if "iam:PassRole" in actions(each)]
    assert passed["Resource"].endswith(f":role/{ROLE}")
    assert passed["Condition"] == {
        "StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}
    }


def test_an_image_is_made_of_a_marked_machine_alone_and_marked_with_its_snapshots():
    """docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html: its three resources."""
    plain, marked = sorted(
        (each for each in statements() if "ec2:CreateImage" in actions(each)),
        key=lambda each: each["Sid"] == "MakeImagesThatAreMarked",
    )
    assert plain["Condition"] == {"Null": {"aws:ResourceTag/skyward:pool": "false"}}
    assert marked["Condition"] == {"Null": {"aws:RequestTag/skyward:pool": "false"}}
    assert marked["Resource"] == ["arn:aws:ec2:*::image/*", "arn:aws:ec2:*::snapshot/*"]


def test_what_is_made_is_marked_in_the_call_that_makes_it(api):
    """Else the policy would not let anybody end it."""
    renter = Renter(nodes=2)
    renter.launch(offer(GPU))
    assert not renter.end()
    assert api.left() == {}
    made = set()
    for call in (each for each in api.calls if each.action in _MADE):
        tags = [key for key, value in call.parameters.items() if value == "skyward:pool"]
        kinds = [value for key, value in call.parameters.items() if key.endswith(".ResourceType")]
        assert len(tags) == len(kinds) >= 1, call.action
        made |= {(call.action, kind) for kind in kinds}
    assert {action for action, _ in made} == _MADE
    marked = 0
    for each in statements():
        own = {name.partition(":")[2] for name in actions(each)} & _MADE
        kinds = {name.rpartition(":")[2].partition("/")[0] for name in each["Resource"]}
        if own and each.get("Condition") == {"Null": {"aws:RequestTag/skyward:pool": "false"}}:
            assert own == _MADE and kinds == {kind for _, kind in made}
            marked += 1
        elif own and "Condition" not in each:
            assert not {(action, kind) for action in own for kind in kinds} & made
    assert marked == 1
