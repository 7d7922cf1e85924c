"""Which machines are what is asked for: tables of types and zones in, offers out."""

import pytest

from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import spec_of
from skyward_nb.providers.aws.network_cards import card_remarks
from skyward_nb.providers.aws.offer_selection import RegionStock, fitting, offers
from skyward_nb.providers.aws.price_table import (
    shipped_prices,
    shipped_regions,
    shipped_types,
    usual_prices,
)
from skyward_nb.words.errors import NothingFits
from skyward_nb.words.offers import InstanceType, Price
from skyward_nb.words.spec import PoolSpec

EAST = ("us-east-1a", "us-east-1b", "us-east-1c")


def spec(line):
    return spec_of(PoolSpec(), parse(f"provider=aws {line}").pool)


def fit(line, arch="x86_64"):
    return fitting(spec(line), shipped_types(), usual_prices(), arch)


def names(line, arch="x86_64"):
    return [each.name for each in fit(line, arch).types]


def stock(region, types, zones, spot=None):
    return RegionStock(
        region=region,
        zones={each.name: zones for each in types},
        listed=shipped_prices("us-east-1"),
        spot=spot or {},
    )


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("accelerator=A100:8", "p4d.24xlarge"),
        ("accelerator=A100-80GB:8", "p4de.24xlarge"),
        ("accelerator=A100-40GB:8", "p4d.24xlarge"),
        ("accelerator=H100", "p5.4xlarge"),
        ("accelerator=H100:8", "p5.48xlarge"),
        ("accelerator=H200:8", "p5en.48xlarge"),
        ("accelerator=B200:8", "p6-b200.48xlarge"),
        ("accelerator=L4", "g6.xlarge"),
        ("accelerator=L4-24GB:4", "g6.12xlarge"),
        ("accelerator=L40S", "g6e.xlarge"),
        ("accelerator=A10G:8", "g5.48xlarge"),
        ("accelerator=T4", "g4dn.xlarge"),
        ("accelerator=V100:8 ami=ami-0123456789abcdef0", "p3dn.24xlarge"),
        ("accelerator=L4 memory=60+ cpus=16+", "g6.4xlarge"),
        ("cpus=8+ memory=32+", "m6a.2xlarge"),
        ("cpus=8 memory=64", "r6a.2xlarge"),
        ("memory=500+", "r6a.16xlarge"),
        ("", "c6a.large"),
        ("instance_type=t3.medium", "t3.medium"),
        ("accelerator=A100 simulate", "c6a.large"),
        ("accelerator=A100 mig=3g.40gb", "p4de.24xlarge"),
        ("accelerator=A100:8 mig=3g.40gb", "p4de.24xlarge"),
        ("accelerator=A100 mig=3g.20gb", "p4d.24xlarge"),
        ("accelerator=A100 mig=1g.10gb", "p4de.24xlarge"),  # 7 ranks; 40 GB cards have 4 of these
        ("accelerator=A100-40GB mig=1g.10gb", "p4d.24xlarge"),
        ("accelerator=H100 mig=1g.10gb", "p5.4xlarge"),
        ("accelerator=H200:8 mig=3g.71gb", "p5en.48xlarge"),
        ("accelerator=A100 mig=3g.40gb simulate", "c6a.large"),
        ("instance_type=p4d.24xlarge mig=3g.20gb", "p4d.24xlarge"),
    ],
)
def test_the_cheapest_that_fits_comes_first(line, first):
    asked, types = spec(line), fit(line).types
    found = offers(asked, types, [stock("us-east-1", types, EAST)])
    assert found[0].type.name == first
    prices = [offer.price.dollars for offer in found]
    assert prices == sorted(prices)
    assert all(offer.zones == EAST for offer in found)


def test_machines_without_accelerators_are_of_the_arch_that_is_asked_for():
    assert all(each.arch == "arm64" for each in fit("cpus=8+", "arm64").types)
    assert all(each.arch == "x86_64" for each in fit("cpus=8+").types)


def test_processors_that_are_not_ones_own_are_taken_only_by_name():
    for line in ("cpus=2", "cpus=8+ memory=16+"):
        assert not [name for name in names(line) if name.startswith("t") or "-flex" in name]


def test_a_larger_machine_is_taken_where_there_is_none_smaller_and_that_is_said():
    found = fit("accelerator=A100")
    assert {each.gpus for each in found.types} == {8}
    assert "7 would be idle" in found.remarks[0]
    assert "accelerator=A100:8" in found.remarks[0]
    assert not fit("accelerator=A100:8").remarks


def test_new_machines_are_cut_and_that_is_said():
    line = "accelerator=A100:8 mig=3g.40gb nodes=2"
    (said,) = fit(line).remarks
    assert said == "8 × A100 80GB of each machine is cut into 2 × 3g.40gb: a rank on each slice"
    assert spec(line).partition
    assert spec(line).world_size == 32
    assert "3 of 7 idle" in fit("accelerator=H100 mig=1g.10gb ranks_per_node=4").remarks[0]
    assert "has to cut A100 80GB" in fit(f"{line} partition=no").remarks[0]
    assert not spec("accelerator=A100 mig=3g.40gb simulate").partition


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "accelerator=H100 mig=3g.47gb",
            "no type of EC2 has a GPU with 2 such slices. p5.4xlarge has H100 80GB, for 1g.10gb (7), ",
        ),
        (
            "accelerator=A100 mig=3g.40gb instance_type=p4d.24xlarge",
            "instance_type=p4d.24xlarge has no GPU with 2 such slices. p4d.24xlarge has A100 40GB, for "
            "1g.5gb (7)",
        ),
        ("accelerator=V100:8", "p3dn.24xlarge): AWS has no image any more whose driver"),
        ("instance_type=p3dn.24xlarge", "p3dn.24xlarge: AWS has no image any more whose driver"),
        ("accelerator=A100:16", "nodes=2 accelerator=A100:8 gives as many in all"),
        ("nodes=2 accelerator=A100:12", "nodes=3 accelerator=A100:8"),
        ("accelerator=Trainium", "accelerators of AWS need packages"),
        ("accelerator=MI300X", "accelerators of AMD need packages"),
        ("accelerator=L40", "did you mean L40S"),
        ("accelerator=RTX-4090", "no type of EC2 has it"),
        ("cpus=7", "The nearest are"),
        ("cpus=7", "cpus=7+ also accepts larger ones"),
        ("cpus=4 memory=500+", "r6a"),
        ("accelerator=L4 cpus=500+", "g6.48xlarge (192 cpus"),
        ("instance_type=g6.xlrge", "did you mean g6"),
        ("instance_type=g6.xlarge accelerator=A100", "has 1 × L4"),
        ("instance_type=c6i.large accelerator=A100", "has no accelerator"),
    ],
)
def test_what_nothing_fits_names_what_comes_near(line, says):
    with pytest.raises(NothingFits) as raised:
        fit(line)
    assert says in raised.value.message


def test_a_type_that_has_accelerators_has_a_rank_for_each():
    assert spec("instance_type=g6.12xlarge").slots == 4
    assert spec("instance_type=c6i.large").slots == 1
    assert spec("instance_type=g6.12xlarge accelerator=L4").slots == 1


# Sizes: https://aws.amazon.com/ec2/instance-types/g6/; memory: https://github.com/aws/karpenter-provider-aws/issues/8324.
PARTS = tuple(
    InstanceType(
        name=f"g6f.{size}", arch="x86_64", cpus=cpus, memory=4.0 * cpus,
        gpu="L4", gpus=1, gpu_memory=memory, gpu_part=part,
    )
    for size, cpus, part, memory in [
        ("large", 2, 0.125, 2.79), ("xlarge", 4, 0.125, 2.79),
        ("2xlarge", 8, 0.25, 5.59), ("4xlarge", 16, 0.5, 11.18),
    ]
)  # fmt: skip


def test_a_part_of_a_gpu_is_rented_where_ec2_has_just_this_part():
    types = (*shipped_types(), *PARTS)

    def found(line):
        return [each.name for each in fitting(spec(line), types, usual_prices(), "x86_64").types]

    ami = "ami=ami-0123456789abcdef0"
    assert found(f"accelerator=L4:0.5 {ami}") == ["g6f.4xlarge"]
    assert found(f"accelerator=L4:0.125 {ami}") == ["g6f.large", "g6f.xlarge"]
    assert not {each.name for each in PARTS} & {*found("accelerator=L4")}
    assert spec(f"accelerator=L4:0.5 {ami}").slots == 1
    for line, says in [
        ("accelerator=L4:0.5", r"\(g6f.4xlarge\): parts of GPUs need NVIDIA's GRID driver.*ami="),
        ("instance_type=g6f.large", "instance_type=g6f.large: parts of GPUs need"),
        ("accelerator=L4:0.3", "EC2 rents L4:0.125, L4:0.25, L4:0.5; write parts"),
        ("accelerator=A100:0.5", "EC2 rents L4:0.125.* mig=3g.40gb cuts it"),
        (
            f"accelerator=L4:0.5 instance_type=g6f.large {ami}",
            "has 0.125 × L4, but you asked for accelerator=L4:0.5",
        ),
    ]:
        with pytest.raises(NothingFits, match=says):
            found(line)


# ── zones, spot, regions ────────────────────────────────────────────────────────────────


def test_spot_stands_before_on_demand_and_each_zone_has_its_price():
    types = fit("accelerator=L4").types
    prices = {"us-east-1a": 0.4, "us-east-1b": 0.3, "us-east-1d": 0.1}
    spot = {
        "g6.xlarge": {
            zone: Price(dollars=dollars, source="", spot=True) for zone, dollars in prices.items()
        }
    }
    there = [stock("us-east-1", types, EAST, spot)]
    found = offers(spec("accelerator=L4 spot=auto"), types, there)
    assert [(each.type.name, each.zones) for each in found if each.spot] == [
        ("g6.xlarge", ("us-east-1b",)),
        ("g6.xlarge", ("us-east-1a",)),
    ]
    assert [each.spot for each in found] == sorted((each.spot for each in found), reverse=True)
    assert all(each.spot for each in offers(spec("accelerator=L4 spot=yes"), types, there))
    assert not any(each.spot for each in offers(spec("accelerator=L4"), types, there))


def test_the_price_alone_orders_offers_and_limits_them():
    types = fit("accelerator=L4").types
    spot = {
        "g6.xlarge": {
            zone: Price(dollars=dollars, source="", spot=True)
            for zone, dollars in {"us-east-1a": 0.9, "us-east-1b": 0.7}.items()
        }
    }
    there = [stock("us-east-1", types, EAST, spot)]
    found = offers(spec("accelerator=L4 spot=cheapest"), types, there)
    prices = [each.price.dollars for each in found]
    assert prices == sorted(prices)
    assert [each.spot for each in found[:3]] == [True, False, True]
    within = offers(spec("accelerator=L4 spot=cheapest max_hourly_cost=0.85"), types, there)
    assert [each.price.dollars for each in within] == [each for each in prices if each <= 0.85]
    with pytest.raises(
        NothingFits, match=r"max_hourly_cost=0.5: g6.xlarge .* costs \$0.805 an hour"
    ):
        offers(spec("accelerator=L4 max_hourly_cost=0.5"), types, there)


def test_zones_are_tried_in_the_order_that_is_asked_for():
    asked = spec("accelerator=L4 zones=us-east-1c,us-east-1a")
    assert asked.aws.region == "us-east-1"
    types = fit("accelerator=L4").types
    found = offers(asked, types, [stock("us-east-1", types, EAST)])
    assert {each.zones for each in found} == {("us-east-1c", "us-east-1a")}


def test_other_regions_come_after_the_first():
    types = fit("accelerator=A100:8").types
    there = [stock("us-east-1", types, EAST), stock("us-west-2", types, ("us-west-2a",))]
    found = offers(spec("accelerator=A100:8 region=us-east-1,us-west-2"), types, there)
    assert [each.region for each in found] == ["us-east-1"] * 2 + ["us-west-2"] * 2


def test_equivalents_that_cost_much_more_are_none():
    types = fit("accelerator=L4").types
    found = offers(spec("accelerator=L4"), types, [stock("us-east-1", types, EAST)])
    assert len(types) > len(found) > 1
    assert found[-1].price.dollars <= 2 * found[0].price.dollars


def test_where_a_zone_or_region_has_none_that_is_said():
    types = fit("accelerator=A100:8").types
    there = [stock("us-east-1", types, EAST)]
    with pytest.raises(NothingFits, match=r"can be had in us-east-1a, us-east-1b, us-east-1c"):
        offers(spec("accelerator=A100:8 zones=us-east-1f"), types, there)
    with pytest.raises(NothingFits, match=r"cannot be had in us-east-1: region="):
        offers(spec("accelerator=A100:8"), types, [stock("us-east-1", types, ())])
    with pytest.raises(NothingFits, match=r"cannot be had in eu-west-3\. .*eu-west-1.* had it"):
        offers(spec("accelerator=A100:8"), types, [stock("eu-west-3", types, ())], shipped_regions)


def test_where_zones_are_not_known_a_region_is_tried_as_it_is():
    types = fit("accelerator=A100:8").types
    there = [RegionStock(region="eu-west-1", zones=None, listed={}, spot={})]
    found = offers(spec("accelerator=A100:8 spot=auto"), types, there)
    assert [(each.zones, each.price) for each in found] == [((), None)] * 4


# ── the table that ships ────────────────────────────────────────────────────────────────


def test_the_shipped_table_says_whose_it_is():
    types = {each.name: each for each in shipped_types()}
    assert types["p4d.24xlarge"].efa
    assert types["p4d.24xlarge"].network_cards == 4
    price = usual_prices()["g6.xlarge"]
    assert 0 < price.dollars < 5
    assert price.source == "list price of 2026-07-20, shipped"
    assert usual_prices().keys() <= types.keys()
    assert shipped_prices("nowhere-1") == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nodes=6", "several network cards (p5.48xlarge) take an Elastic IP address each"),
        ("nodes=5", ""),
        ("nodes=2 warm=2h", "uses 1 of its 32 network cards: for all, with a public address"),
        ("nodes=6 public_ip=no", ""),
        ("nodes=6 subnet=subnet-0123456789abcdef0", ""),
        ("nodes=6 subnet=subnet-0123456789abcdef0 public_ip=yes", "quota L-0263D0A3"),
    ],
)
def test_more_elastic_addresses_than_an_account_has_are_told_of(line, said):
    asked = spec(f"instance_type=p5.48xlarge region=us-east-1 {line}")
    found = "".join(card_remarks(asked, fitting(asked, shipped_types(), {}, "x86_64").types))
    assert (said in found) if said else not found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cpus=64", "instance_type=m6i.large has cpus=2, and cpus=64 is asked for"),
        ("memory=32+", r"instance_type=m6i.large has memory=8, and memory=32\+ is asked for"),
    ],
)
def test_a_type_that_is_named_has_what_is_asked_for(line, said):
    with pytest.raises(NothingFits, match=said):
        fit(f"instance_type=m6i.large {line}")
    assert names("instance_type=m6i.large cpus=2 memory=4+") == ["m6i.large"]
