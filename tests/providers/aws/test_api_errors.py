"""What refusals of EC2 mean, and where a launch goes on."""

import itertools

import pytest

from skyward_nb.providers.aws.api_errors import (
    AWSError,
    NextStep,
    limit_in,
    quota_of,
    spell_fault,
    spell_quota,
    way_on,
)
from skyward_nb.providers.aws.offer_walk import (
    OfferWalk,
    ZoneAttempt,
    run_limit,
    spell_way,
    without,
)
from skyward_nb.words.offers import InstanceType, Offer


@pytest.mark.parametrize(
    ("code", "way"),
    [
        ("InsufficientInstanceCapacity", NextStep.ZONE),
        ("Unsupported", NextStep.ZONE),
        ("VcpuLimitExceeded", NextStep.QUOTA),
        ("MaxSpotInstanceCountExceeded", NextStep.QUOTA),
        ("OptInRequired", NextStep.REGION),
        ("SpotInstanceTermination", NextStep.ZONE),
        ("SpotInstanceShutdown", NextStep.ZONE),
        ("Server.InternalError", NextStep.ZONE),
        ("Client.InternalError", NextStep.STOP),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", NextStep.MARKET),
        ("RequestLimitExceeded", NextStep.AGAIN),
        ("InternalError", NextStep.AGAIN),
        ("UnauthorizedOperation", NextStep.STOP),
        ("InvalidParameterValue", NextStep.STOP),
        ("SomethingNew", NextStep.STOP),
    ],
)
def test_each_code_has_its_way(code, way):
    assert way_on(AWSError(code, "", "RunInstances")) is way


def test_an_answer_that_was_lost_is_asked_for_again():
    fault = AWSError("InsufficientInstanceCapacity", "", "RunInstances", is_unknown=True)
    assert way_on(fault) is NextStep.AGAIN


@pytest.mark.parametrize(
    ("name", "spot", "code"),
    [
        ("p4d.24xlarge", False, "L-417A185B"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
        ("p5.48xlarge", False, "L-417A185B"),
        ("p5en.48xlarge", True, "L-C4BD4855"),
        ("hpc7a.96xlarge", False, "L-F7808C92"),
        ("g6.xlarge", False, "L-DB2E81BA"),
        ("g5.xlarge", True, "L-3819A6DF"),
        ("c6i.large", False, "L-1216C47A"),
        ("m7g.large", True, "L-34B43A08"),
        ("trn1.2xlarge", False, "L-2C3B7624"),
        ("u-6tb1.112xlarge", False, "L-43DA4232"),
        ("unheard.of", False, "L-1216C47A"),
        ("unheard.of", True, "L-34B43A08"),
    ],
)
def test_each_type_has_its_quota(name, spot, code):
    assert quota_of(name, spot=spot).code == code


def test_a_quota_is_told_with_what_it_is_now_and_what_is_needed():
    said = (
        "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the "
        "instance bucket that the specified instance type belongs to."
    )
    assert limit_in(said) == 32
    text = spell_quota(quota_of("p4d.24xlarge", spot=False), "us-east-1", 32, 384)
    assert "L-417A185B" in text and "is 32 vCPUs now" in text and "384 are needed" in text
    assert "--desired-value 416 --region us-east-1" in text


def test_a_refusal_says_what_to_do():
    expired = AWSError("ExpiredToken", "The security token is expired", "RunInstances")
    assert "aws sso login" in spell_fault(expired)
    new = AWSError("SomethingNew", "that is\n new", "RunInstances")
    assert spell_fault(new) == "RunInstances: that is new (SomethingNew)"


def test_a_denial_keeps_the_words_of_aws():
    said = (
        "You are not authorized to perform this operation. User: arn:aws:iam::1:user/me is not authorized to perform: "
        "ec2:RunInstances with an explicit deny in a service control policy. Encoded authorization failure message: AbC-1"
    )
    fault = AWSError("UnauthorizedOperation", said, "RunInstances")
    fault.profile = "lab"
    text = spell_fault(fault)
    assert "explicit deny in a service control policy" in text and "docs/aws-policy.json" in text
    command = "aws sts decode-authorization-message --encoded-message AbC-1 --profile lab"
    assert text.endswith(f"`{command}`") and text.count("AbC-1") == 1


def test_a_disk_s_key_that_may_not_be_used_is_named():
    fault = AWSError("Client.InternalError", "i-1 ended: Client error on launch", "RunInstances")
    assert "KMS" in spell_fault(fault) and "Client error on launch" in spell_fault(fault)


# ── the walk ────────────────────────────────────────────────────────────────────────────


def offer(name, region="us-east-1", zones=("us-east-1a", "us-east-1b"), *, spot=False):
    kind = InstanceType(name=name, arch="x86_64", cpus=96, memory=1152)
    return Offer(type=kind, region=region, zones=zones, spot=spot)


def walked(offers, *ways):
    walk = OfferWalk(offers)
    seen = []
    for way in ways:
        seen.append(str(walk.next))
        walk.refuse(way, "why")
    return seen, [] if walk.next is None else [str(walk.next)]


def test_capacity_leads_to_the_next_zone_then_type_then_region():
    offers = [
        offer("p4d.24xlarge"),
        offer("p4de.24xlarge"),
        offer("p4d.24xlarge", "eu-west-1", ("eu-west-1c",)),
    ]
    seen, last = walked(offers, *[NextStep.ZONE] * 4)
    assert seen == [
        "p4d.24xlarge in us-east-1a",
        "p4d.24xlarge in us-east-1b",
        "p4de.24xlarge in us-east-1a",
        "p4de.24xlarge in us-east-1b",
    ]
    assert last == ["p4d.24xlarge in eu-west-1c"]


def test_a_quota_leads_away_from_its_types_in_its_region():
    offers = [
        offer("p4d.24xlarge", spot=True),
        offer("p4de.24xlarge", spot=True),
        offer("p5.48xlarge", spot=True),
        offer("p4d.24xlarge"),
    ]
    _, last = walked(offers, NextStep.QUOTA)
    assert last == ["spot p5.48xlarge in us-east-1a"]


def test_a_region_that_an_account_does_not_have_leads_away_from_it():
    offers = [
        offer("p4d.24xlarge"),
        offer("c6i.large"),
        offer("p4d.24xlarge", "eu-west-1", ("eu-west-1a",)),
    ]
    _, last = walked(offers, NextStep.REGION)
    assert last == ["p4d.24xlarge in eu-west-1a"]
    refused = AWSError("OptInRequired", "You are not subscribed to this service", "RunInstances")
    assert "has not subscribed" in spell_fault(refused)


def test_an_account_without_spot_machines_takes_those_on_demand():
    offers = [offer("g6.xlarge", spot=True), offer("g5.xlarge", spot=True), offer("g6.xlarge")]
    _, last = walked(offers, NextStep.MARKET)
    assert last == ["g6.xlarge in us-east-1a"]


def test_after_machines_that_were_taken_back_the_next_zone_comes_then_the_next_offer():
    offers = [offer("g5.xlarge"), offer("g6.xlarge", spot=True), offer("g6.xlarge")]
    walk = OfferWalk(offers[1:])
    left = without(offers, walk.next)
    assert left == (offer("g6.xlarge", zones=("us-east-1b",), spot=True), offers[2])
    assert without(left, OfferWalk(left).next) == (offers[2],)
    assert without([offers[2]], ZoneAttempt(offers[2], "us-east-1b")) == ()


def test_nothing_is_tried_after_a_stop():
    walk = OfferWalk([offer("p4d.24xlarge")])
    walk.refuse(NextStep.STOP, "why")
    assert walk.next is None
    assert [why for _, why in walk.refused] == ["why"]


def test_each_step_has_its_words():
    tries = [OfferWalk([each]).next for each in (
        offer("p4d.24xlarge", spot=True), offer("p4d.24xlarge"),
        offer("p4de.24xlarge"), offer("p4de.24xlarge", "eu-west-1", ("eu-west-1a",)),
    )]  # fmt: skip
    assert [spell_way(*pair) for pair in itertools.pairwise(tries)] == [
        "on demand instead of spot", "next type", "next region",
    ]  # fmt: skip


def test_large_types_have_longer_to_run():
    assert run_limit("p5.48xlarge") == 900 > run_limit("g6.xlarge")
