"""Options of rented machines on the line, in files and in Python, as a pool's spec has them."""

import pytest
from options.lines import spec

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.options.defaults import Default
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import check_fits
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.offers import Need


def test_a_line_of_all_of_them():
    made = spec(
        "nodes=4 accelerator=A100 provider=aws region=us-east-1,us-west-2 spot=auto cpus=8+ "
        "memory=32GB+ zones=us-east-1b,us-east-1a ami=ami-0123456789abcdef0 user=ubuntu max_cost=$5 "
        "subnet=subnet-0123456789abcdef0 security_group=sg-0123456789abcdef0 aws_profile=lab "
        "confirm_above=20 on_preempt=replace"
    )
    assert (made.provider, made.nodes, made.spot) == ("aws", 4, "auto")
    assert (made.cpus, made.memory) == (Need(8, more=True), Need(32, more=True))
    assert (made.max_cost, made.confirm_above, made.on_preempt) == (5, 20, "replace")
    access = made.aws
    assert (access.region, access.regions) == ("us-east-1", ("us-west-2",))
    assert access.zones == ("us-east-1b", "us-east-1a")
    assert (access.ami, access.user) == ("ami-0123456789abcdef0", "ubuntu")
    assert (access.subnet, access.security_group, access.profile) == (
        ("subnet-0123456789abcdef0",),
        "sg-0123456789abcdef0",
        "lab",
    )


def test_yes_is_an_agreement_to_whatever_it_costs():
    assert spec("provider=aws").confirm_above == 5
    assert spec("provider=aws yes").confirm_above is None
    assert spec("provider=aws yes=no").confirm_above == 5


def test_a_zone_says_its_region():
    assert spec("provider=aws zones=eu-west-1a,eu-west-1b").aws.region == "eu-west-1"
    both = spec("provider=aws zones=eu-west-1a,us-east-1b").aws
    assert (both.region, both.regions) == ("eu-west-1", ("us-east-1",))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("cpus=8", "it goes with provider=aws"),
        ("region=us-east-1", "it goes with provider=aws"),
        ("provider=local memory=32+", "it goes with provider=aws"),
        ("spot=yes", "only rented machines are spot machines"),
        ("on_preempt=replace", "it goes with provider=aws"),
        ("provider=aws on_preempt=wait", "on_preempt=wait"),
        ("yes", "it goes with provider=aws"),
        ("hosts=a provider=aws", "provider=aws knows no hosts="),
        (
            "provider=aws zones=us-east-1a region=us-west-2",
            "that is not a zone of region=us-west-2",
        ),
        ("provider=aws region=useast1", "'useast1' is not a name like us-east-1"),
        ("provider=aws zones=a", "'a' is not a name like us-east-1a"),
        ("provider=aws instance_type=g6", "is not a name like g6.xlarge"),
        (
            "provider=aws ami=ami-torch",
            "is not a name like ami-0123456789abcdef0, or one that %sky bake",
        ),
        (
            "provider=aws ami=my/torch",
            "is not a name like ami-0123456789abcdef0, or one that %sky bake",
        ),
        ("provider=aws subnet=mine", "is not a name like subnet-"),
        ("provider=aws user=me", "name it, ami="),
        ("provider=aws max_cost=0", "max_cost=0: machines that cost nothing"),
        ("provider=aws max_cost=much", "give a sum of dollars"),
        ("provider=aws cpus=many", "write cpus=8+"),
        ("provider=aws cpus=8GB", "write cpus=8+"),
        ("provider=aws memory=0", "write memory=8+ for 8 GB or more"),
        ("provider=aws spot=maybe", "choose one of no, yes, auto"),
    ],
)
def test_what_is_refused(line, says):
    with pytest.raises(OptionError) as raised:
        spec(line)
    assert says in raised.value.message


def test_defaults_of_rented_machines_leave_other_pools_alone():
    known = [Default("region", "eu-west-1", "file"), Default("spot", "yes", "file")]
    plain = spec("nodes=2", *known)
    assert (plain.provider, plain.aws, plain.spot) == ("local", None, "no")
    rented = spec("provider=aws", *known)
    assert (rented.aws.region, rented.spot) == ("eu-west-1", "yes")
    of_file = spec("nodes=2", *known, Default("provider", "aws", "file"))
    assert (of_file.provider, of_file.aws.region) == ("aws", "eu-west-1")


def test_what_costs_nothing_keeps_to_any_sum():
    for line in ("max_cost=5", "spot=auto", "confirm_above=1"):
        made = spec(line)
        assert (made.provider, made.max_cost, made.spot) == ("local", None, "no")


def test_in_python():
    aws = sky.AWS(
        region="us-east-1",
        regions=["us-west-2"],
        zones=["us-east-1a"],
        profile="lab",
        disk=200,
        placement="no",
    )
    made = spec_for("x", provider=aws, spot=True, cpus=8, memory="32+", max_cost=5, yes=True)
    assert (made.provider, made.spot, made.confirm_above) == ("aws", "yes", None)
    assert (made.cpus, made.memory, made.max_cost) == (Need(8), Need(32, more=True), 5)
    access = made.aws
    assert (access.region, access.regions, access.zones) == (
        "us-east-1",
        ("us-west-2",),
        ("us-east-1a",),
    )
    assert (access.profile, access.disk, access.placement) == ("lab", 200, "no")
    assert spec_for("x", max_cost=0, spot=False).provider == "local"


@pytest.mark.parametrize(
    ("aws", "says"),
    [
        (sky.AWS(region="us-east-1,us-west-2"), "name one; others are regions="),
        (sky.AWS(disk=3), "give 30 to 65536 GB"),
        (sky.AWS(zones=("us-east-1",)), "is not a name like us-east-1a"),
        (sky.AWS(region="us-east-1", zones="us-west-2a"), "is not a zone of region=us-east-1"),
        (sky.AWS(placement="close"), "choose 'auto' or 'no'"),
        (sky.AWS(ami=7), "write it as text"),
    ],
)
def test_what_is_refused_in_python(aws, says):
    with pytest.raises(OptionError) as raised:
        spec_for("x", provider=aws)
    assert says in raised.value.message


def test_a_pool_that_is_up_is_used_as_it_is():
    made = spec("provider=aws region=us-east-1 instance_type=g6.xlarge max_cost=5 aws_profile=lab")
    check_fits(made, parse("region=us-east-1 yes confirm_above=9 aws_profile=lab max_cost=5").pool)
    with pytest.raises(
        PoolError, match=r"up with region=us-east-1, and region=us-west-2 was asked"
    ):
        check_fits(made, parse("region=us-west-2").pool)
    with pytest.raises(PoolError, match=r"up with max_cost=5, and max_cost=7 was asked"):
        check_fits(made, parse("max_cost=7").pool)
    with pytest.raises(PoolError, match=r"up with aws_profile=lab"):
        check_fits(made, parse("aws_profile=home").pool)


def test_what_accounts_of_companies_need():
    made = spec(
        "provider=aws subnet=subnet-0123456789abcdef0,subnet-0123456789abcdef1 public_ip=no jump=me@bastion:2222 "
        "caller=10.0.0.5 tags=team=vision,cost=42 disk=2TB throughput=500 instance_profile=trainer"
    ).aws
    assert made.subnet == ("subnet-0123456789abcdef0", "subnet-0123456789abcdef1")
    assert (made.public_ip, made.jump, made.caller) == (
        False,
        "ssh://me@bastion:2222",
        ("10.0.0.5/32",),
    )
    assert made.tags == (("team", "vision"), ("cost", "42"))
    assert (made.disk, made.throughput, made.instance_profile) == (2000, 500, "trainer")
    same = sky.AWS(
        subnet=["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"], public_ip=False, jump="me@bastion:2222",
        caller=["10.0.0.5"], tags={"team": "vision", "cost": "42"}, disk="2TB", throughput=500, instance_profile="trainer",
    )  # fmt: skip
    assert spec_for("x", provider=same).aws == made


@pytest.mark.parametrize("warm", ["2h", 7200, 7200.0])
def test_machines_that_are_stopped(warm):
    made = spec("provider=aws warm=2h").aws
    assert made.warm == 7200
    assert spec_for("x", provider=sky.AWS(warm=warm)).aws == made


@pytest.mark.parametrize("line", ["", "provider=ssh hosts=a", "provider=slurm"])
def test_only_rented_machines_are_stopped(line):
    with pytest.raises(OptionError, match=r"warm= .*goes with provider=aws"):
        spec(f"{line} warm=2h")


def test_tags_of_python_may_have_commas():
    given = {"cost": "42,43", "team": "a=b", "year": 2026}
    made = spec_for("x", provider=sky.AWS(tags=given)).aws
    assert made.tags == (("cost", "42,43"), ("team", "a=b"), ("year", "2026"))
    for wrong, says in [
        ({"skyward:pool": "x"}, "not yours to give"),
        ({"": "x"}, "a tag has a name"),
        ({"team": None}, "None is not text"),
        ({"team": "x" * 300}, "256"),
    ]:
        with pytest.raises(OptionError, match=says):
            spec_for("x", provider=sky.AWS(tags=wrong))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tags=skyward:pool=x", "not yours to give"), ("tags=team", "not a tag"), ("caller=0.0.0.0/0", "is everybody"),
        ("jump=-oProxyCommand=x", "not a host name"), ("disk=5", "30 to"), ("throughput=9", "125 to 2000"),
        ("instance_profile=arn:aws:iam::123456789012:role/x", "not an instance profile"),
        ("security_group=sg-0123456789abcdef0 caller=1.2.3.4", "leave out one"),
        ("reservation=cr-0123456789abcdef0", "name both"), ("reservation=night", "cr-0123456789abcdef0"),
        ("capacity_block=cr-0123456789abcdef0 instance_type=p5.48xlarge zones=us-east-1a spot=auto", "cannot be spot"),
        ("warm=2h spot=auto", "one-time spot request"), ("warm=5m", "10m at least"), ("warm=31d", "30d at most"), ("warm=soon", "give a time"),
        ("warm=2h capacity_block=cr-0123456789abcdef0 instance_type=p5.48xlarge zones=us-east-1a", "end with it"),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(line, says):
    with pytest.raises(OptionError, match=says):
        spec(f"provider=aws {line}")


def test_reserved_capacity_is_of_one_type_and_zone():
    made = spec(
        "provider=aws reservation=cr-0123456789abcdef0 instance_type=c6i.large zones=us-east-1a"
    )
    assert made.aws.reservation == "cr-0123456789abcdef0" and made.slurm is None
    assert spec("provider=slurm reservation=night").slurm.reservation == "night"
    with pytest.raises(OptionError, match="goes with provider=aws"):
        spec("provider=slurm jump=ssm")
