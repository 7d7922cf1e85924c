"""A line of torchrun and the pool for it: too few nodes are told before any machine starts."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from skyward_nb.reports.torchrun import Torchrun
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


@pytest.mark.parametrize(
    ("nnodes", "nodes", "asked"), [("3", 2, "3"), ("2:4", 1, "2:4"), ("1:4", 2, ""), ("2", 3, "")]
)
def test_a_pool_with_too_few_nodes(nnodes, nodes, asked):
    script = Torchrun.of_line([f"--nnodes={nnodes}", "two words.py"], "skyward-nb torchrun")
    if not asked:
        assert script.for_new_pool(PoolOptions(nodes=nodes)).nodes == nodes
        script.check_pool(PoolSpec(name="p", nodes=nodes))
        return
    with pytest.raises(OptionError, match=f"--nnodes={asked}, and nodes={nodes} is on the line"):
        script.for_new_pool(PoolOptions(nodes=nodes))
    with pytest.raises(OptionError, match=f"--nnodes={asked}, and pool 'p' has {nodes} node"):
        script.check_pool(PoolSpec(name="p", nodes=nodes))


def test_a_new_pool_has_a_rank_for_each_node():
    script = Torchrun.of_line(["--nnodes=1:4", "main.py"], "skyward-nb torchrun")
    made = script.for_new_pool(PoolOptions())
    assert (made.nodes, made.ranks_per_node, script.fewest) == (4, 1, 1)


@pytest.mark.parametrize(
    ("options", "pip"),
    [
        ({"provider": "ssh"}, ("torch>=2.6", "numpy>=2")),
        ({"provider": "aws", "pip": ("six", "NumPy")}, ("six", "NumPy", "torch>=2.6")),
        ({"provider": "ssh", "image": Image(interpreter="/opt/python")}, UNSET),
        ({}, UNSET),
        ({"provider": "local", "pip": ("six",)}, ("six",)),
    ],
)
def test_a_new_pool_has_the_package_of_the_agents(options, pip):
    """On other machines nothing else would install it: no framework is entered on ranks."""
    script = Torchrun.of_line(["main.py"], "skyward-nb torchrun")
    assert script.for_new_pool(PoolOptions(**options)).pip == pip
