"""Plugins as values: what they ask of a pool, together and against one another."""

from datetime import timedelta

import pytest

import skyward_nb as sky
from skyward_nb.options.plugin_options import missing, options_of
from skyward_nb.options.specs import spec_of
from skyward_nb.plugins import huggingface, jax, keras, mig, tensorflow, torch, transformers
from skyward_nb.plugins.plugin_table import PLUGINS, find_plugin
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


@pytest.mark.parametrize(
    ("choices", "options"),
    [
        ([], {}),
        ([torch()], {"framework": ("torch",)}),
        ([torch(backend=None)], {"framework": ("torch",)}),
        ([torch], {"framework": ("torch",)}),
        ([torch(backend="gloo")], {"framework": ("torch",), "backend": "gloo"}),
        ([torch(timeout="30m")], {"framework": ("torch",), "collective_timeout": 1800.0}),
        ([torch(timeout=timedelta(minutes=1))], {"framework": ("torch",), "collective_timeout": 60.0}),
        ([torch(timeout=5)], {"framework": ("torch",), "collective_timeout": 5.0}),
        ([jax(), keras(backend="jax")], {"framework": ("jax", "keras:jax")}),
        ([keras(), keras(backend="torch")], {"framework": ("keras:torch",)}),
        ([keras(), tensorflow()], {"framework": ("keras", "tensorflow")}),
        ([torch(), torch(backend="gloo")], {"framework": ("torch",), "backend": "gloo"}),
        (
            [huggingface(token="hf_x"), torch(backend="gloo")],
            {"framework": ("huggingface", "torch"), "backend": "gloo", "env": {"HF_TOKEN": "hf_x"}},
        ),
        ([transformers(backend="gloo")], {"framework": ("huggingface",), "backend": "gloo"}),
        ([mig("3g.40gb")], {"mig": "3g.40gb"}),
        ([mig("MIG-1g.10gb.me", partition=True)], {"mig": "1g.10gb+me", "partition": True}),
    ],
)  # fmt: skip
def test_what_plugins_ask_of_a_pool(choices, options):
    assert options_of(choices) == PoolOptions(**options)


def test_a_pool_is_made_of_it():
    asked = options_of([mig("3g.40gb"), torch(backend="gloo")], "A100")
    spec = spec_of(PoolSpec(), asked.changed(simulate="yes"))
    assert (spec.world_size, spec.backend, spec.framework) == (2, "gloo", ("torch",))


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        (
            [torch(backend="gloo"), torch(backend="nccl")],
            r"sky.plugins.torch\(backend='gloo'\) and sky.plugins.torch\(backend='nccl'\) say",
        ),
        (
            [torch(backend="gloo"), huggingface(backend="nccl")],
            r"torch\(backend='gloo'\) and sky.plugins.huggingface\(backend='nccl'\)",
        ),
        (
            [keras(backend="jax"), keras(backend="torch")],
            r"keras\(backend='jax'\) and sky.plugins.keras\(backend='torch'\)",
        ),
        ([torch(timeout=1), torch(timeout=2)], r"torch\(timeout=1.0\) and .*torch\(timeout=2.0\)"),
        ([mig("3g.40gb"), mig("1g.10gb")], r"mig\(profile='3g.40gb'\) and"),
        ([huggingface(token="hunter2"), huggingface(token="hunter3")], r"\(token=\*\*\*\) and"),
        (["torch"], r"takes sky.plugins.torch\(\), .*not 'torch'"),
        ([mig], "not function"),
        ([3], "not int"),
        (torch(), r"takes a list: plugins=\[sky.plugins.torch\(\)\]"),
    ],
)
def test_contradictions_name_both(choices, says):
    with pytest.raises(OptionError, match=says) as raised:
        options_of(choices)
    assert "hunter" not in str(raised.value)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: torch(backend="ncl"),
            "backend='ncl': choose one of auto, gloo, nccl; did you mean nccl",
        ),
        (lambda: torch(backend=3), "backend=3"),
        (lambda: torch(timeout=0), "give seconds"),
        (lambda: torch(timeout=True), "give seconds"),
        (lambda: torch(timeout=float("inf")), "give seconds"),
        (lambda: torch(timeout="soon"), "90s, 10m"),
        (lambda: keras(backend="theano"), "choose one of jax, torch, tensorflow"),
        (lambda: keras(seed=-1), "seed=-1: give a whole number from 0 to 4294967295"),
        (lambda: keras(seed=True), "seed=True: give a whole number"),
        (lambda: keras(average="no"), "average='no': write True or False"),
        (lambda: huggingface(token=3), "not int"),
        (lambda: mig("3g"), "such as mig=3g.40gb"),
        (lambda: mig(["3g.40gb", "3g.40gb"]), "takes a text, not list"),
        (lambda: mig("none"), "takes a profile"),
    ],
)
def test_what_a_plugin_cannot_be_is_refused_at_once(make, says):
    with pytest.raises(OptionError, match=says):
        make()


def test_a_token_is_not_shown():
    assert repr(huggingface(token="hunter2")) == "sky.plugins.huggingface(token=***)"


@pytest.mark.parametrize(
    ("framework", "choices", "left"),
    [
        ((), [torch()], [torch()]),
        (("torch",), [torch()], []),
        (("huggingface",), [torch(), huggingface()], []),
        (("keras:jax",), [jax(), keras(), keras(backend="jax")], []),
        (("keras:jax",), [keras(backend="torch")], [keras(backend="torch")]),
        (("torch",), [torch(backend="gloo")], [torch(backend="gloo")]),
        (("huggingface",), [huggingface(token="x")], [huggingface(token="x")]),
        ((), [mig("3g.40gb")], [mig("3g.40gb")]),
    ],
)
def test_what_a_function_needs_that_a_pool_does_not_ready(framework, choices, left):
    assert list(missing(PoolSpec(framework=framework), choices)) == left


def test_what_a_function_needs_that_a_pool_readies():
    asked = options_of([huggingface(token="x", backend="gloo")])
    spec = spec_of(PoolSpec(), asked)
    assert missing(spec, [torch(backend="gloo"), huggingface(token="x")]) == ()


def test_importing_the_rooms_modules_takes_no_place_of_a_plugin():
    for name in PLUGINS:
        assert find_plugin(name).name == name
    for name in sky.plugins.__all__:
        assert getattr(sky.plugins, name).__module__ == "skyward_nb.plugins.choices"
    assert sky.plugins.torch() == torch()
    with pytest.raises(AttributeError, match="no attribute 'mxnet'"):
        _ = sky.plugins.mxnet


def test_what_keras_is_told_beside_its_backend():
    choice = keras(backend="torch", seed=3, average=False)
    assert choice.options.env == {"SKYWARD_KERAS_SEED": "3", "SKYWARD_KERAS_AVERAGE": "no"}
    assert repr(choice) == "sky.plugins.keras(backend='torch', seed=3, average=False)"
    assert keras(backend="torch") == keras(backend="torch", seed=None, average=True)
