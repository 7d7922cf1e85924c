"""Arguments of `sky.Compute` read as options."""

import pytest

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
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
    ],
)
def test_what_is_refused(arguments, says):
    with pytest.raises(OptionError, match=says):
        spec_for("x", **arguments)
