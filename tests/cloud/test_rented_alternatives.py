"""Of several specs, the next one is rented where the first has no capacity."""

from __future__ import annotations

import sys

import pytest

import skyward_nb as sky

pytestmark = [pytest.mark.extensive, pytest.mark.timeout(300)]


def rented(kind, **more):
    access = sky.AWS(region="us-east-1", zones=["us-east-1a"], instance_type=kind)
    return sky.Spec(provider=access, image=sky.Image(interpreter=sys.executable), **more)


@sky.function
def world():
    return sky.instance_info().world_size


def test_a_spec_without_capacity_leads_to_the_next(cloud, capsys, home_namespace):
    cloud.capacity("c6i.large", "us-east-1a", 0)
    specs = rented("c6i.xlarge", allocation="on-demand"), rented("c6i.large")
    pool = sky.Compute(*specs, selection="cheapest", max_cost=5)
    pool.dry_run()
    shown = capsys.readouterr().out
    # The cheaper one first, with what each costs.
    assert shown.index("sky.Spec number 2") < shown.index("sky.Spec number 1")
    assert shown.count("Offers, in the order in which they are tried") == 2
    assert not cloud.machines
    with pool:
        assert world() @ pool == [1]
        assert [each.kind for each in cloud.machines] == ["c6i.xlarge"]
        assert pool.spec.aws.instance_type == "c6i.xlarge"
    shown = capsys.readouterr().err
    assert "sky.Spec number 2: " in shown and "c6i.large in us-east-1a" in shown
    cloud.nothing_left()
