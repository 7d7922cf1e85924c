"""How a pool's nodes belong together."""

import pytest

import skyward_nb as sky
from skyward_nb.words.errors import OptionError
from skyward_nb.words.spec import PoolSpec


def test_nodes_form_a_cluster_unless_it_is_said_otherwise():
    assert sky.Options().cluster
    assert not sky.Options(cluster=False).cluster
    assert str(PoolSpec(nodes=2, cluster=False)) == "2 ranks on 2 nodes that stand alone (local)"
    assert str(PoolSpec(cluster=False)) == "1 rank on 1 node that stands alone (local)"


@pytest.mark.parametrize("cluster", [None, 1, "no"])
def test_what_is_neither_is_refused(cluster):
    with pytest.raises(OptionError, match="write True or False"):
        sky.Options(cluster=cluster)
