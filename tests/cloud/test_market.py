"""What EC2 says can be rented, asked of the API as boto3 asks it, and kept."""

from __future__ import annotations

import asyncio

import pytest

from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import spec_of
from skyward_nb.providers.aws.quoting import forget, quote_of
from skyward_nb.reports.cost_approval import dry_lines
from skyward_nb.words.accelerators import parse_accelerator
from skyward_nb.words.errors import AcceleratorError, AccountError, NothingFits
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


def spec(line):
    return spec_of(PoolSpec(), parse(f"provider=aws {line}").pool)


def quote(line):
    return asyncio.run(quote_of(spec(line)))


def again(line):
    forget()
    return quote(line)


def test_types_zones_and_prices_are_those_of_the_region(api):
    found = quote("accelerator=L4 nodes=2 spot=auto region=us-east-1")
    spot = [each for each in found.offers if each.spot]
    plain = [each for each in found.offers if not each.spot]
    assert [*spot, *plain] == [*found.offers]
    assert {each.type.gpu for each in found.offers} == {"L4"}
    assert all(len(each.zones) == 1 and each.price.spot for each in spot)
    assert spot[0].price.source.startswith("spot price of 20")
    assert plain[0].price.source == "list price of 2026-11-01"
    assert plain[0].zones
    assert found.first == spot[0].price.dollars * 2
    assert found.most == max(each.price.dollars for each in found.offers) * 2
    assert sorted(api.actions()) == [
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeSpotPriceHistory",
        "GetProducts",
    ]


def test_what_is_asked_does_not_grow_with_nodes_and_is_asked_once(api):
    quote("accelerator=A100:8 region=us-east-1")
    asked = len(api.actions())
    quote("accelerator=A100:8 region=us-east-1")
    again("accelerator=A100:8 nodes=64 region=us-east-1")
    assert len(api.actions()) == asked == 3


def test_other_regions_are_asked_too(api):
    found = quote("accelerator=A100:8 region=us-east-1,us-west-2")
    assert list(dict.fromkeys(each.region for each in found.offers)) == ["us-east-1", "us-west-2"]


def test_a_type_that_does_not_ship_with_us_is_asked_for_by_name(api):
    (offer,) = quote("instance_type=m5.large region=us-east-1").offers
    assert (offer.type.name, offer.type.cpus, offer.type.memory) == ("m5.large", 2, 8)
    with pytest.raises(NothingFits, match=r"EC2 has no such type; did you mean"):
        quote("instance_type=g6.xlarg region=us-east-1")


def test_needs_that_no_common_type_meets_are_looked_for_among_all(api):
    found = quote("memory=4000+ region=us-east-1")
    assert found.offers[0].type.memory >= 4000
    assert "DescribeInstanceTypes" in api.actions()


def test_without_the_price_list_the_table_says_its_date(api):
    api.fail("GetProducts", "AccessDeniedException")
    found = quote("accelerator=L4 region=us-east-1")
    assert found.offers[0].price.source == "list price of 2026-07-20, shipped"
    assert api.actions().count("GetProducts") == 1


def test_where_neither_knows_a_price_there_is_none(api):
    api.fail("GetProducts", "AccessDeniedException")
    found = quote("instance_type=m5.large region=us-east-1")
    assert (found.first, found.most) == (None, None)


@pytest.mark.parametrize("action", ["DescribeInstanceTypes", "DescribeInstanceTypeOfferings"])
def test_what_may_not_be_asked_is_gone_by_and_said(api, action):
    api.fail(action, "UnauthorizedOperation")
    found = quote("accelerator=A100:8 region=us-east-1")
    assert {each.type.name for each in found.offers} == {"p4d.24xlarge", "p4de.24xlarge"}
    assert action in found.remarks[0]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("AuthFailure", "AWS rejects these credentials"),
        ("ExpiredToken", "aws sso login"),
        ("InvalidClientTokenId", "aws configure"),
    ],
)
def test_credentials_that_are_no_good_say_what_to_type(api, code, says):
    api.fail("DescribeInstanceTypes", code)
    with pytest.raises(AccountError, match=says):
        quote("accelerator=A100:8 region=us-east-1")


def test_without_credentials_it_says_what_to_type(api, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(
        AccountError, match=r"`aws configure sso` or `aws configure`.*aws_profile=NAME"
    ):
        quote("accelerator=A100:8 region=us-east-1")
    lines = dry_lines(spec("accelerator=A100:8 nodes=2 region=us-east-1"))
    assert "aws configure sso" in lines[0]
    assert any("2 × p4d.24xlarge" in line and "$43.92 / h" in line for line in lines)
    assert not api.actions()


def test_a_profile_that_is_not_there_is_named(api):
    with pytest.raises(AccountError, match=r"profile \(nobody\).*list-profiles.*aws_profile="):
        quote("aws_profile=nobody accelerator=A100:8 region=us-east-1")
    with pytest.raises(AccountError, match=r"profile \(nobody\)"):
        quote("aws_profile=nobody accelerator=A100:8")


def test_what_to_type_is_about_the_profile_that_was_used(api, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "aws_config").write_text(
        "[profile team]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = Dev\n"
        "[sso-session corp]\nsso_region = us-east-1\nsso_start_url = https://corp.awsapps.com/start\n"
        "[profile broken]\nrole_arn = arn:aws:iam::123456789012:role/X\nsource_profile = gone\n"
    )
    with pytest.raises(AccountError, match=r"`aws sso login --profile team`"):
        quote("aws_profile=team accelerator=A100:8 region=us-east-1")
    with pytest.raises(AccountError, match=r'"gone".*"broken" does not exist: .*~/.aws/config'):
        quote("aws_profile=broken accelerator=A100:8 region=us-east-1")
    monkeypatch.setenv("AWS_PROFILE", "team")
    with pytest.raises(AccountError, match=r"`aws sso login --profile team`"):
        quote("accelerator=A100:8 region=us-east-1")


def test_a_region_that_is_mistyped_is_an_error_with_the_nearest(api):
    with pytest.raises(AccountError, match=r"region=us-eas-1: .*; did you mean us-east-1\?"):
        quote("accelerator=A100:8 region=us-eas-1")
    with pytest.raises(AccountError, match=r"did you mean us-east-1\?"):
        dry_lines(spec("accelerator=A100:8 region=us-eas-1"))
    with pytest.raises(AccountError, match=r"region=eu-west-9: .*; did you mean eu-west-\d\?"):
        quote("instance_type=c6i.large region=us-east-1,eu-west-9")


def test_the_region_is_that_of_the_line_or_of_the_configuration(api, monkeypatch, tmp_path):
    with pytest.raises(AccountError, match=r"no region is set: write region=us-east-1"):
        quote("accelerator=A100:8")
    (tmp_path / "aws_config").write_text("[default]\nregion = us-west-2\n")
    assert {each.region for each in again("accelerator=A100:8").offers} == {"us-west-2"}


def test_the_table_of_a_dry_run(api):
    lines = dry_lines(spec("accelerator=L4 nodes=4 spot=auto max_cost=5 region=us-east-1"))
    assert lines[1].split() == ["machines", "each", "has", "where", "kind", "price", "as", "says"]
    assert "4 × g6" in lines[2]
    assert " spot " in lines[2]
    assert any(line.startswith("max_cost=5 lasts for") for line in lines)
    assert "RunInstances" not in api.actions()
    lines = dry_lines(spec("accelerator=A100:8 mig=3g.40gb nodes=2 region=us-east-1"))
    assert "2 × p4de.24xlarge" in lines[1 + 1] and "/ h" in lines[2]
    assert "8 × A100 80GB of each machine is cut into 2 × 3g.40gb: a rank on each slice" in lines
    assert not any("p4d.24xlarge" in line for line in lines)
    assert dry_lines(spec_of(PoolSpec(), PoolOptions())) == []
    with pytest.raises(AcceleratorError, match="provider=aws rents such"):
        dry_lines(spec_of(PoolSpec(), PoolOptions(accelerator=parse_accelerator("B200:64"))))


def test_a_quota_that_is_too_small_is_told_before_anything_is_rented(api):
    """Only those that are too small; without the permission to read quotas, none."""
    api.quota("L-417A185B", 96)
    line = "accelerator=A100:8 nodes=2 spot=auto region=us-east-1"
    said = [each for each in dry_lines(spec(line)) if "quota" in each]
    assert len(said) == 1
    assert said[0].startswith("EC2 will refuse p4d")
    assert "'Running On-Demand P instances' (L-417A185B) of us-east-1 is 96 vCPUs now" in said[0]
    assert "192 are needed" in said[0] and "--desired-value 288" in said[0]
    api.fail("GetServiceQuota", "AccessDeniedException", times=0)
    assert not any("quota" in each for each in dry_lines(spec(line)))
    assert "RunInstances" not in api.actions()
    api.calm()
    block = (
        "capacity_block=cr-0123456789abcdef0 instance_type=p4d.24xlarge zones=us-east-1a nodes=2"
    )
    assert not any("quota" in each for each in dry_lines(spec(f"{block} region=us-east-1")))
