"""Accelerators as values of the API."""

import copy
import pickle

import pytest
from msgspec import UNSET

import skyward_nb as sky
from skyward_nb.options.accelerator_choices import AcceleratorChoice, chosen
from skyward_nb.options.arguments import spec_for
from skyward_nb.options.plugin_options import options_of
from skyward_nb.options.specs import spec_of
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.catalogue import KINDS, kind_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


@pytest.mark.parametrize(
    ("value", "accelerator", "mig"),
    [
        ("A100", Accelerator("A100"), None),
        ("A100-80GB:8", Accelerator("A100-80GB", 8), None),
        (sky.accelerators.A100, Accelerator("A100"), None),
        (sky.accelerators.A100(), Accelerator("A100"), None),
        (sky.accelerators.A100(count=8, mig="3g.40gb"), Accelerator("A100", 8), "3g.40gb"),
        (sky.accelerators.A100(count=8)(mig="3g.40gb"), Accelerator("A100", 8), "3g.40gb"),
        (sky.accelerators.A100(memory="40GB"), Accelerator("A100-40GB"), None),
        (sky.accelerators.A100(memory=40, count=2), Accelerator("A100-40GB", 2), None),
        (sky.accelerators.H100(form_factor="NVL"), Accelerator("H100-NVL"), None),
        (sky.accelerators.A100_80GB, Accelerator("A100-80GB"), None),
        (sky.accelerators.RTX_4090(count=2.0), Accelerator("RTX-4090", 2), None),
        (sky.NVIDIA.A100, Accelerator("A100"), None),
        (sky.NVIDIA.A100(count=4), Accelerator("A100", 4), None),
        (sky.Accelerator.NVIDIA.A100(mig="1g.10gb"), Accelerator("A100"), "1g.10gb"),
        (sky.accelerators.AMD.MI300X, Accelerator("MI300X"), None),
        (sky.accelerators.Custom("B400")(count=2), Accelerator("B400", 2), None),
    ],
)
def test_every_way_to_name_them_is_one_value(value, accelerator, mig):
    found = chosen(value)
    assert found == AcceleratorChoice(accelerator, mig)
    assert options_of(accelerator=value) == PoolOptions(accelerator=accelerator, mig=mig or UNSET)


def test_none_is_none():
    assert chosen(None) is chosen("none") is None
    assert options_of(accelerator=None) == PoolOptions()
    assert options_of(accelerator="none") == PoolOptions(accelerator=None)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: spec_for("x", accelerator=sky.accelerators.A100(count=0.5)),
            "mig=3g.40gb cuts it",
        ),
        (
            lambda: spec_for("x", accelerator="L4:0.25"),
            "^accelerator=L4:0.25: write .*ranks_per_node=4",
        ),
        (lambda: sky.accelerators.A100(count=True), "whole count"),
        (lambda: sky.accelerators.A100(count="many"), "whole count"),
        (lambda: sky.accelerators.A100(count=0), "whole count"),
        (lambda: sky.accelerators.A100(mig="3g.41gb"), "is not a profile of A100"),
        (lambda: sky.accelerators.A100(mig=["3g.40gb"]), "all slices have one profile"),
        (lambda: sky.accelerators.L4(mig="3g.40gb"), "slices of L4 are not known"),
        (lambda: sky.accelerators.A100(memory="60GB"), "A100 has 40 or 64 or 80"),
        (lambda: sky.accelerators.Custom("a:2"), "is not an accelerator"),
        (lambda: chosen(3), r"takes 'A100:8' or sky.accelerators.A100\(count=8\), not int"),
        (lambda: chosen("A10O"), "did you mean A10"),
    ],
)
def test_what_there_is_not_is_told(make, says):
    with pytest.raises(OptionError, match=says):
        make()


@pytest.mark.parametrize(
    ("name", "of", "says"),
    [
        ("A10O", sky.accelerators, "sky.accelerators has no 'A10O'; did you mean A10?"),
        ("MI300X", sky.NVIDIA, "it is of AMD, sky.accelerators.AMD.MI300X"),
        ("quux", sky.accelerators, "Custom"),
        ("_repr_html_", sky.accelerators, "has no"),
    ],
)
def test_a_name_that_is_none_is_no_attribute(name, of, says):
    with pytest.raises(AttributeError, match=says):
        getattr(of, name)


def test_type_checkers_know_the_names_of_the_catalogue():
    told = [
        name
        for cls in type(sky.accelerators).__mro__
        for name in vars(cls).get("__annotations__", ())
    ]
    names = {name for name in told if kind_of(name)}
    assert {kind_of(name) for name in names} == set(KINDS)
    for name in names:
        assert getattr(sky.accelerators, name).maker == kind_of(name).maker
    assert {kind.name.replace("-", "_") for kind in KINDS} == set(dir(sky.accelerators)) <= names
    for maker in ("NVIDIA", "AMD", "AWS", "Google", "Intel"):
        of = getattr(sky.accelerators, maker)
        assert {getattr(of, name).maker for name in type(of).__annotations__ if kind_of(name)} == {
            maker
        }


def test_what_is_known_of_a_model():
    a100 = sky.accelerators.A100
    assert (a100.maker, a100.memory, a100.count) == ("NVIDIA", 80, 1)
    assert a100(memory=40).memory == 40
    assert a100.mig_profiles["3g.40gb"] == 2
    assert a100(memory=40).mig_profiles["3g.20gb"] == 2
    assert sky.accelerators.RTX_4090.memory == 24
    assert sky.accelerators.T4.mig_profiles == {}
    other = sky.accelerators.Custom("MyChip")
    assert (other.maker, other.memory, other.mig_profiles) == (None, None, {})
    assert repr(a100(count=2, mig="3g.40gb")) == "sky.accelerators.A100(count=2, mig='3g.40gb')"
    assert str(a100(count=2, mig="3g.40gb")) == "A100:2 mig=3g.40gb"
    assert pickle.loads(pickle.dumps(sky.accelerators)).T4 == copy.deepcopy(sky.NVIDIA).T4


def test_a_pool_of_the_api_takes_them():
    gpus = sky.NVIDIA.A100(count=2, mig="3g.40gb")
    spec = spec_for("name", accelerator=gpus, simulate=True)
    assert (spec.accelerator, spec.mig, spec.world_size) == (Accelerator("A100", 2), "3g.40gb", 4)
    spec = spec_for("name", accelerator="nvidia.a100:2", simulate=True)
    assert (spec.accelerator, spec.world_size) == (Accelerator("A100", 2), 2)
    with pytest.raises(OptionError, match="say different things"):
        spec_for("name", [sky.plugins.mig("1g.10gb")], accelerator=gpus)


def test_slices_are_asked_for_in_one_way():
    gpus = sky.accelerators.A100(mig="3g.40gb")
    asked = options_of([sky.plugins.mig("3g.40gb"), sky.plugins.torch()], gpus)
    spec = spec_of(PoolSpec(), asked.changed(simulate=True))
    assert (spec.mig, spec.world_size) == ("3g.40gb", 2)
    with pytest.raises(
        OptionError, match=r"A100\(mig='3g.40gb'\) and sky.plugins.mig\(profile='1g"
    ):
        options_of([sky.plugins.mig("1g.10gb")], gpus)
