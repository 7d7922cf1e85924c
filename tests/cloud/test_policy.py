"""The rights that README asks for are those of the calls that are made: no fewer, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cloud.cases import CALLS
from cloud.people import People

pytestmark = pytest.mark.timeout(200)
_POLICY = Path(__file__).parents[2] / "docs/aws-policy.json"
_NEEDS_NONE = {"GetCallerIdentity"}
# docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html
_NO_CALL = {"ec2:CreateTags"}
_SELDOM = {
    "DescribePlacementGroups": "ec2",
    "GetConsoleOutput": "ec2",
    "GetServiceQuota": "servicequotas",
}
"""Calls of a sweep, of a boot that fails, of a launch that a quota refuses."""
_MARKED = {"TerminateInstances", "DeleteSecurityGroup", "DeletePlacementGroup", "GetConsoleOutput"}


def statements():
    return json.loads(_POLICY.read_text())["Statement"]


def actions(statement):
    own = statement["Action"]
    return {own} if isinstance(own, str) else set(own)


def test_the_policy_allows_what_is_called_and_nothing_else():
    """That these are all calls, another test finds by recording them."""
    called = {
        f"{service}:{each}" for each, (service, _) in CALLS.items() if each not in _NEEDS_NONE
    }
    called |= {f"{service}:{each}" for each, service in _SELDOM.items()}
    allowed = set().union(*map(actions, statements()))
    assert allowed - _NO_CALL == called


def test_what_ends_something_is_allowed_for_what_is_ours_alone():
    for each in statements():
        own = {name.partition(":")[2] for name in actions(each)}
        if own & _MARKED:
            assert own >= _MARKED
            assert each["Condition"] == {"Null": {"aws:ResourceTag/skyward:pool": "false"}}


def test_calls_that_are_made_seldom_are_made(cloud):
    people = People(cloud)
    try:
        cloud.quota("L-34B43A08", 0)
        ended = people.person().does("pool", spot=True)
        assert ended.code == 0, ended
        assert "GetServiceQuota" in cloud.actions()
        person = people.person()
        ended = person.does("pool", user="nobody-here")
        assert ended.code == 3, ended
        assert "GetConsoleOutput" in cloud.actions()
        assert person.does("sweep").code == 0
        assert "DescribePlacementGroups" in cloud.actions()
    finally:
        people.close()
    cloud.nothing_left()


def test_what_is_made_is_marked_in_the_call_that_makes_it(cloud):
    """Else the policy would not let anybody end it."""
    people = People(cloud)
    try:
        ended = people.person().does("pool", nodes=2, kind="c5n.18xlarge")
        assert ended.code == 0, ended
    finally:
        people.close()
    made = {"RunInstances", "CreateSecurityGroup", "CreatePlacementGroup"}
    for call in (each for each in cloud.calls if each.action in made):
        tags = [key for key, value in call.parameters.items() if value == "skyward:pool"]
        kinds = [key for key in call.parameters if key.endswith(".ResourceType")]
        assert len(tags) == len(kinds) >= 1, call.action
