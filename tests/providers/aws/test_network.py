"""The network cards that machines are launched with."""

import pytest

from skyward_nb.providers.aws.network import cards_for
from skyward_nb.providers.aws.price_table import shipped_types

KINDS = {each.name: each for each in shipped_types()}


def cards(name, *, efa=True, is_public=False):
    made = cards_for(KINDS[name], "subnet-1", "sg-1", efa=efa, is_public=is_public)
    assert all(each["DeleteOnTermination"] and each["Groups"] == ["sg-1"] for each in made)
    return [(each.get("NetworkCardIndex"), each.get("InterfaceType")) for each in made]


@pytest.mark.parametrize(
    ("name", "first", "others"),
    [
        ("p4d.24xlarge", "efa", 3),
        ("p5.48xlarge", "efa", 31),
        ("p6-b200.48xlarge", "efa", 7),
        ("p6-b300.48xlarge", None, 16),  # whose first card has no EFA
    ],
)
def test_all_cards_of_a_private_machine_are_used(name, first, others):
    assert cards(name) == [(0, first), *((card, "efa-only") for card in range(1, others + 1))]


@pytest.mark.parametrize(
    ("name", "efa", "said"),
    [
        ("g6.8xlarge", True, False),  # EFA on its only card
        ("g6.8xlarge", False, False),
        ("p5.48xlarge", False, False),
        ("p5.48xlarge", True, None),  # of several cards, EC2 takes no word about it
    ],
)
def test_no_public_address_where_none_was_asked_for(name, efa, said):
    asked = {"efa": efa, "is_public": False}
    first, *_ = cards_for(KINDS[name], "subnet-1", "sg-1", asked=False, **asked)
    assert first.get("AssociatePublicIpAddress") is said
    first, *_ = cards_for(KINDS[name], "subnet-1", "sg-1", asked=None, **asked)
    assert "AssociatePublicIpAddress" not in first


@pytest.mark.parametrize(
    ("name", "efa", "said"),
    [
        ("g6.8xlarge", True, True),
        ("p5.48xlarge", False, True),
        ("p5.48xlarge", True, None),  # an Elastic IP address is for those with several
    ],
)
def test_only_with_one_card_a_public_address_is_asked_for(name, efa, said):
    asked = {"efa": efa, "is_public": True}
    first, *_ = cards_for(KINDS[name], "subnet-1", "sg-1", **asked)
    assert first.get("AssociatePublicIpAddress") is said
    assert cards(name, efa=efa, is_public=True) == cards(name, efa=efa)


def test_without_efa_there_is_one_card():
    assert cards("p5.48xlarge", efa=False) == [(None, None)]
