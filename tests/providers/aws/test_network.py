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


def test_a_machine_with_a_public_address_has_one():
    assert cards("p5.48xlarge", is_public=True) == [(0, "efa")]
    assert cards("p6-b300.48xlarge", is_public=True) == [(0, None)]
    assert cards("p5.48xlarge", efa=False) == [(None, None)]
