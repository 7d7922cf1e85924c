"""What acts of a rehearsal must show, by the findings of a check, and what they may cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from skyward_nb.cli.rehearsal_acts import (
    ACTS,
    ActEnd,
    ActFindings,
    PlannedAct,
    check_budget,
    chosen,
    last_line,
)
from skyward_nb.runtime.survey import efa_devices
from skyward_nb.words.errors import OptionError
from skyward_nb.words.findings import (
    EFA,
    Connection,
    Findings,
    PathSpeed,
    RankFacts,
    ReachResult,
    ReduceTiming,
    Reductions,
)

BY_NAME = {each.name: each for each in ACTS}


def rank(number, framework="torch", device="NVIDIA L4", **more):
    return RankFacts(
        rank=number, node=number, host=f"ip-{number}", address="10.0.0.1", device=device, memory=24 << 30,
        versions={"torch": "2.13.0", "driver": "580", EFA: "1 device"}, joined=(framework,), **more,
    )  # fmt: skip


TWO = Findings(
    ranks=(rank(0), rank(1)),
    reach={0: (ReachResult(1, 0.0001),), 1: (ReachResult(0, 0.0001),)},
    connection=Connection(ranks=(0, 1), nodes=(0, 1), link=PathSpeed(0.0001, 3e9)),
    reductions=Reductions(
        through="torch", sizes=(1 << 20,), timings=(ReduceTiming(1 << 20, 2, 0.001),)
    ),
)
ON_GPU = "cuda:0 NVIDIA L4, ranks are joined by nccl"
GOOD = {
    "cpu": ActFindings(TWO),
    "torch": ActFindings(Findings(ranks=(rank(0),)), {0: ON_GPU}),
    "jax": ActFindings(Findings(ranks=(rank(0, "jax"),)), {0: "gpu NVIDIA L4"}),
    "efa": ActFindings(TWO, {0: ON_GPU, 1: ON_GPU}),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_one_shows_all(name):
    checks = [*BY_NAME[name].judge(GOOD[name])]
    assert checks and all(each.holds for each in checks), checks


@pytest.mark.parametrize(
    ("name", "check", "computed", "what"),
    [
        ("cpu", {"ranks": (rank(0), changed(rank(1), host="ip-0"))}, {}, "2 machines"),
        ("cpu", {"reach": {0: (ReachResult(1, trouble="timed out"),)}}, {}, "reach one another: timed out"),
        ("torch", {}, {0: "cpu CPU, ranks are joined by gloo"}, "rank 0: cpu CPU"),
        ("torch", {}, {0: "cuda:0 NVIDIA L40S"}, "rank 0: cuda:0 NVIDIA L40S"),
        ("torch", {}, {}, "nothing was computed on its NVIDIA L4"),
        ("torch", {"ranks": (rank(0, troubles={"torch": "ImportError: libcuda"}),)}, None, "ImportError: libcuda"),
        ("jax", {"ranks": (rank(0, "torch"),)}, None, "jax computes"),
        ("efa", {"reductions": Reductions(why_not="no group")}, None, "by NCCL: no group"),
        ("efa", {}, {0: ON_GPU, 1: ON_GPU.replace("nccl", "gloo")}, "by NCCL"),
        ("efa", {"ranks": (rank(0), changed(rank(1), versions={}))}, None, "EFA device: 1 device, none"),
    ],
)  # fmt: skip
def test_what_is_not_so_is_not_shown(name, check, computed, what):
    good = GOOD[name]
    found = ActFindings(
        changed(good.check, **check), good.computed if computed is None else computed
    )
    (wrong,) = [str(each) for each in BY_NAME[name].judge(found) if not each.holds]
    assert wrong.startswith("✗ ") and what in wrong


@pytest.mark.parametrize("name", GOOD)
def test_of_a_pool_that_did_not_come_up_nothing_is_shown(name):
    assert not any(each.holds for each in BY_NAME[name].judge(ActFindings()))


def test_acts_by_name():
    assert chosen(()) == ACTS
    assert [each.name for each in chosen(["killed", "cpu"])] == ["cpu", "killed"]
    with pytest.raises(OptionError, match="did you mean torch"):
        chosen(["torhc"])


def test_what_a_plan_costs_at_most():
    act = replace(BY_NAME["cpu"], minutes=30)
    planned = PlannedAct(act, 1.0)
    assert planned.most == 0.5
    check_budget([planned], 0.5)
    with pytest.raises(OptionError, match="max_cost=2, or name fewer: skyward-nb rehearse aws cpu"):
        check_budget([planned] * 3, 0.5)


def test_an_act_with_trouble_has_not_shown_all():
    ends = [ActEnd(name="cpu", dollars=0.01), ActEnd(name="jax", trouble="no quota", dollars=0.02)]
    assert last_line(ends, 3) == ("1 of 3 acts have shown what they must; they cost at most $0.030")


def test_adapters_of_efa(tmp_path):
    assert efa_devices(tmp_path) == {}
    for name, driver in (("rdmap0", "efa"), ("rdmap1", "efa"), ("mlx5_0", "mlx5_core")):
        device = tmp_path / name / "device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    assert efa_devices(tmp_path) == {EFA: "2 devices"}
    assert efa_devices(tmp_path / "none") == {}
