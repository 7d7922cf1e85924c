"""The options of a pool as values."""

import pytest

import skyward_nb as sky
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import AUTO
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


def test_nodes_form_a_cluster_unless_it_is_said_otherwise():
    assert sky.Options().cluster
    assert not sky.Options(cluster=False).cluster
    assert str(PoolSpec(nodes=2, cluster=False)) == "2 ranks on 2 nodes that stand alone (local)"
    assert str(PoolSpec(cluster=False)) == "1 rank on 1 node that stands alone (local)"


def test_nodes_of_this_machine_are_named_only_where_they_say_more_than_the_ranks():
    assert str(PoolSpec(nodes=4)) == "4 ranks (local)"
    assert str(PoolSpec(ranks_per_node=2, framework=("torch",))) == "2 ranks, torch (local)"
    assert str(PoolSpec(nodes=2, ranks_per_node=2)) == "4 ranks on 2 nodes (local)"
    assert str(PoolSpec(nodes=2, provider="ssh")) == "2 ranks on 2 nodes (ssh)"


@pytest.mark.parametrize("cluster", [None, 1, "no"])
def test_what_is_neither_is_refused(cluster):
    with pytest.raises(OptionError, match="write True or False"):
        sky.Options(cluster=cluster)


def test_what_is_not_stated_is_no_value():
    asked = PoolOptions(accelerator=None, nodes=2)
    assert asked.stated == ("nodes", "accelerator")
    assert asked != PoolOptions(nodes=2)
    assert asked.name is None
    assert PoolOptions(pool="mine").name == "mine"


def test_options_are_completed_by_weaker_ones():
    weaker = PoolOptions(nodes=4, accelerator=Accelerator("A100"), idle=60.0)
    asked = PoolOptions(accelerator=None, nodes=2).over(weaker)
    assert asked == PoolOptions(accelerator=None, nodes=2, idle=60.0)
    assert asked.without(["nodes", "ttl"]) == PoolOptions(accelerator=None, idle=60.0)


def test_frameworks_are_chosen_where_none_is_named():
    assert PoolOptions(nodes=2).chooses_frameworks
    assert PoolOptions(framework=AUTO).chooses_frameworks
    assert not PoolOptions(framework=()).chooses_frameworks
    chosen = PoolOptions(framework=AUTO).with_chosen(("torch",))
    assert chosen == PoolOptions(framework=("torch",), adds_frameworks=True)


def test_secrets_are_not_shown():
    assert repr(PoolOptions(env={"A_TOKEN": "hunter2"})) == "PoolOptions(env={'A_TOKEN': '***'})"
