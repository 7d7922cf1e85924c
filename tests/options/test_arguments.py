"""Arguments of `sky.Compute` read as options."""

import pytest

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for, specs_for
from skyward_nb.words.errors import OptionError


def test_where_auto_is_the_default_plugins_name_the_frameworks(monkeypatch):
    monkeypatch.setenv("SKYWARD_FRAMEWORK", "auto")
    assert spec_for("x").framework == ()
    assert spec_for("x", [sky.plugins.torch()]).framework == ("torch",)


def test_an_argument_that_is_none_is_not_given(monkeypatch):
    monkeypatch.setenv("SKYWARD_NODES", "3")
    spec = spec_for("x", nodes=None, name=None)
    assert (spec.name, spec.nodes) == ("x", 3)
    assert spec_for("x", nodes=2, name="mine").name == "mine"


def test_variables_of_plugins_and_of_env_come_together():
    spec = spec_for("x", [sky.plugins.huggingface(token="t")], env={"A": "1"})
    assert spec.env == {"HF_TOKEN": "t", "A": "1"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"options": True}, r"takes sky.Options\(...\), not bool"),
        ({"image": "img"}, "this is not one"),
        ({"name": 3}, "name= cannot be 3"),
        ({"env": {"A": 1}}, "names and values are text"),
        ({"nodes": True}, "nodes= cannot be True"),
        ({"pip": 3}, "takes text, or a list of it, not int"),
        ({"nodes": "0"}, "nodes=0: give a whole number"),
        ({"worker": 4}, r"worker= takes sky.Worker\(concurrency=...\), not int"),
        ({"worker": sky.Worker(2), "ranks_per_node": 3}, "worker= means ranks_per_node=2, and"),
        (
            {"worker": sky.Worker(3), "accelerator": "A100:2"},
            r"^worker=sky.Worker\(concurrency=3\): a",
        ),
        (
            {"allocation": "preemptible"},
            "allocation='preemptible': choose one of 'spot', 'on-demand'",
        ),
        ({"allocation": "spot"}, "allocation='spot'.*provider=aws"),
        (
            {"provider": "aws", "spot": "no", "allocation": "spot"},
            "allocation= means spot=yes, and",
        ),
        (
            {"provider": "aws", "max_hourly_cost": 0},
            "max_hourly_cost=0: machines that cost nothing",
        ),
    ],
)
def test_what_is_refused(arguments, says):
    with pytest.raises(OptionError, match=says):
        spec_for("x", **arguments)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"concurrency": 0}, "concurrency=0: write a whole number"),
        ({"concurrency": True}, "concurrency=True"),
        ({"executor": "thread"}, "executor='thread': there is 'process' alone"),
    ],
)
def test_what_a_worker_cannot_be(given, says):
    with pytest.raises(OptionError, match=says):
        sky.Worker(**given)


def test_a_worker_runs_so_many_calls_at_once_on_each_node():
    spec = spec_for("x", nodes=3, worker=sky.Worker(concurrency=4, executor="process"))
    assert (spec.slots, spec.world_size) == (4, 12)


@pytest.mark.parametrize(
    ("allocation", "spot"),
    [("spot", "yes"), ("on-demand", "no"), ("spot-if-available", "auto"), ("cheapest", "cheapest")],
)
def test_an_allocation_is_a_word_for_spot(allocation, spot):
    assert spec_for("x", provider="aws", allocation=allocation).spot == spot


def test_specs_are_completed_by_the_arguments_of_the_pool():
    aws, local, other = specs_for(
        "x",
        [sky.plugins.torch()],
        [
            sky.Spec(provider=sky.AWS(region="us-east-1"), accelerator="L4", allocation="spot"),
            sky.Spec(provider=sky.Local(), nodes=3),
            sky.Spec(provider="aws"),
        ],
        nodes=2,
        spot="auto",
        env={"A": "1"},
    )
    assert (aws.provider, aws.nodes, aws.spot, aws.accelerator.name) == ("aws", 2, "yes", "L4")
    assert (other.spot, other.accelerator) == ("auto", None)
    assert (local.provider, local.nodes, local.accelerator) == ("local", 3, None)
    assert {each.name for each in (aws, local)} == {"x"}
    assert {each.framework for each in (aws, local)} == {("torch",)}
    two, three, four = specs_for(
        "x",
        (),
        [sky.Spec(ranks_per_node=2), sky.Spec(ranks_per_node=3, nodes=2), sky.Spec()],
        worker=sky.Worker(4),
    )
    assert [each.slots for each in (two, three, four)] == [2, 3, 4]
    with pytest.raises(OptionError, match=r"sky\.Spec number 2: nodes=0"):
        specs_for("x", [], [sky.Spec(), sky.Spec(nodes=0)])
    with pytest.raises(OptionError, match="not dict"):
        specs_for("x", [], [{"nodes": 1}])
