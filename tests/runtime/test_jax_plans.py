"""Which axis of which array goes along which axis of a mesh: rules, a person's plan, a model's own."""

from __future__ import annotations

import pytest

from skyward_nb.runtime.jax_plans import Leaf, place, remark

LAYERS = (
    Leaf("blocks.0.up.kernel", (8, 32)),
    Leaf("blocks.0.up.bias", (32,)),
    Leaf("blocks.0.down.kernel", (32, 8)),
    Leaf("blocks.0.down.bias", (8,)),
    Leaf("count", (), is_float=False),
)
BOTH = {"fsdp": 2, "tp": 2}


def specs(plan=None, sizes=BOTH, leaves=LAYERS):
    return place(leaves, plan, sizes).specs


@pytest.mark.parametrize(
    ("sizes", "up", "down"),
    [
        ({"fsdp": 2, "tp": 2}, ("fsdp", "tp"), ("tp", "fsdp")),
        ({"fsdp": 4, "tp": 1}, (None, "fsdp"), ("fsdp", None)),
        ({"fsdp": 1, "tp": 4}, (None, "tp"), ("tp", None)),
        ({"dp": 4}, (None, None), (None, None)),
    ],
)
def test_a_layer_that_widens_is_split_by_what_it_gives_the_next_one_by_what_it_takes(
    sizes, up, down
):
    assert specs(sizes=sizes) == [up, (None,), down, (None,), ()]


@pytest.mark.parametrize(
    ("shape", "sizes", "spec"),
    [
        ((3, 4, 8), BOTH, (None, "fsdp", "tp")),
        ((3, 3, 4, 8), BOTH, (None, None, "fsdp", "tp")),
        ((6, 9), BOTH, ("tp", None)),
        ((5, 12), {"fsdp": 3, "tp": 4}, (None, "tp")),
        ((8, 8), BOTH, ("fsdp", "tp")),
    ],
)
def test_of_the_axes_that_can_be_divided_the_largest(shape, sizes, spec):
    assert specs(sizes=sizes, leaves=[Leaf("w", shape)]) == [spec]


def test_what_stays_whole_is_said():
    leaves = [Leaf("head.kernel", (5, 7)), *(Leaf(f"w{n}", (4, 3)) for n in range(5))]
    found = place(leaves, None, {"fsdp": 2, "tp": 4})
    assert found.specs[:2] == [(None, None), ("tp", None)]
    words = remark(found, {"fsdp": 2, "tp": 4})
    assert "along tp=4 each device holds all of head.kernel (5, 7)" in words
    assert "along fsdp=2 each device holds all of head.kernel (5, 7), w0 (4, 3)" in words
    assert "and 2 more" in words
    assert remark(place(LAYERS, None, BOTH), BOTH) == ""


def test_a_plan_of_words():
    plan = {"blocks.*.up": "rowwise", "blocks.0.down": "colwise", "blocks.*.down.bias": "replicate"}
    assert specs(plan) == [("tp", "fsdp"), (None,), ("fsdp", "tp"), (None,), ()]
    assert specs({"": "gather"})[:2] == [("fsdp", "tp"), ("tp",)]
    assert specs({}) == [(None, "fsdp"), (None,), ("fsdp", None), (None,), ()]


def test_a_plan_of_specs_and_what_a_model_says_itself():
    assert specs({"blocks.0.up.kernel": (None, ("fsdp", "tp"))})[0] == (None, ("fsdp", "tp"))
    assert specs({"blocks.0.up.kernel": ("dp", "tp")})[0] == (None, "tp"), "the mesh has no dp"
    own = [Leaf("w", (4, 8), own=("tp", None)), Leaf("v", (4, 8))]
    assert specs(leaves=own) == [("tp", None), ("fsdp", "tp")]
    assert specs({"v": "colwise"}, leaves=own)[0] == (None, "fsdp"), "a plan takes its place"


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"blocks.0.upp": "colwise"}, "no layer or array is named 'blocks.0.upp'; did you mean"),
        ({"blocks.0.up": "columns"}, "'columns' is not one of colwise, rowwise, gather, replicate"),
        ({"blocks.0.up": 3}, "a int is not a word or a PartitionSpec"),
        (
            {"blocks.0.up": ("fsdp", "tp")},
            r"up.bias \(32,\) has 1 axes, and the PartitionSpec .* 2",
        ),
        ({"blocks.0.up.kernel": ("model",)}, "names the axis 'model', and the mesh has fsdp, tp"),
        ({"odd": ("tp",)}, r"axis 0 of odd \(5, 4\) cannot be divided along tp into 2 equal parts"),
        ({"odd": "rowwise"}, r"odd \(5, 4\) cannot be rowwise with tp=2: its axis 0"),
    ],
)
def test_a_plan_that_cannot_be_followed(plan, says):
    with pytest.raises(ValueError, match=says):
        place((*LAYERS, Leaf("odd", (5, 4))), plan, BOTH)


def test_without_a_mesh_a_plan_is_read_all_the_same():
    assert specs({"blocks.*.up": "colwise"}, sizes={})[0] == (None, None)
    with pytest.raises(ValueError, match="no layer or array"):
        specs({"nowhere": "colwise"}, sizes={})
