"""Marks of functions: what decorators leave, which ranks' output is shown, and decorators misplaced."""

import functools
import pickle

import cloudpickle
import pytest

import skyward_nb as sky
from skyward_nb.functions.function_marks import Marks, marks_of, shown
from skyward_nb.runtime import keras_settings
from skyward_nb.words.errors import OptionError
from skyward_nb.words.info import InstanceInfo, Peer, place
from skyward_nb.words.spec import PoolSpec

PEERS = (Peer(0, "127.0.0.1"), Peer(1, "127.0.0.1"))
INFOS = place(PoolSpec(nodes=2, ranks_per_node=2), PEERS, 1, "job", 1)
ALL, NONE = frozenset(range(4)), frozenset()


def test_a_function_stays_itself():
    def train():
        return 3

    assert marks_of(train) == Marks()
    assert sky.integrations.torch(backend="gloo")(train) is train
    assert sky.integrations.keras(train) is train
    train = sky.stdout(only="head")(train)
    assert train() == 3
    assert train.__name__ == "train"
    plugins = (sky.plugins.torch(backend="gloo"), sky.plugins.keras())
    assert marks_of(train) == Marks(uses=plugins, stdout=("head",))

    @functools.wraps(train)
    def wrapper():
        return train()

    assert marks_of(wrapper) == marks_of(train)


def test_a_method_has_the_marks_of_its_function():
    class Trainer:
        @sky.function
        @sky.silent
        @sky.integrations.torch
        def train(self):
            return 3

    marks = marks_of(Trainer().train.raw)
    assert marks == marks_of(Trainer.train.raw)
    assert marks.uses
    assert marks.stdout == ("none",)


@pytest.mark.parametrize(
    ("decorate", "choice"),
    [
        (sky.integrations.torch, sky.plugins.torch()),
        (sky.integrations.torch(timeout="1m"), sky.plugins.torch(timeout=60)),
        (sky.integrations.jax(), sky.plugins.jax()),
        (sky.integrations.jax, sky.plugins.jax()),
        (sky.integrations.keras(backend="jax"), sky.plugins.keras(backend="jax")),
        (sky.integrations.tensorflow(), sky.plugins.tensorflow()),
        (sky.integrations.huggingface(token="t"), sky.plugins.huggingface(token="t")),
        (sky.integrations.transformers(backend="gloo"), sky.plugins.transformers(backend="gloo")),
    ],
)
def test_integrations_are_the_plugins_of_their_names(decorate, choice):
    assert marks_of(decorate(lambda: None)).uses == (choice,)


def test_integrations_that_contradict_one_another_are_refused_where_they_stand():
    @sky.integrations.keras(backend="jax")
    def train(): ...

    with pytest.raises(OptionError, match=r"keras\(backend='jax'\) and"):
        sky.integrations.keras(backend="torch")(train)


@pytest.mark.parametrize(
    ("only", "ranks"),
    [
        ("all", ALL),
        ("head", {0}),
        ("none", NONE),
        (2, {2}),
        ([1, 3], {1, 3}),
        (range(2), {0, 1}),
        ({3}, {3}),
        ((), NONE),
        (lambda info: info.node == 1, {2, 3}),
        (lambda info: info.local_rank, {1, 3}),
        (sky.is_head, {0}),
    ],
)
def test_ranks_whose_output_is_shown(only, ranks):
    assert shown(marks_of(sky.stdout(only=only)(lambda: None)), INFOS) == (ranks, ALL)
    assert shown(marks_of(sky.stderr(only=only)(lambda: None)), INFOS) == (ALL, ranks)


def test_ranks_may_be_an_array():
    np = pytest.importorskip("numpy")
    marks = marks_of(sky.stdout(only=np.array([0, 2]))(lambda: None))
    assert shown(marks, INFOS) == ({0, 2}, ALL)


def test_predicates_see_places_as_code_does_where_nodes_stand_alone():
    infos = place(PoolSpec(nodes=2, ranks_per_node=2, cluster=False), PEERS, 1, "job", 1)
    marks = marks_of(sky.stdout(only=lambda info: info.rank == 0)(lambda: None))
    assert shown(marks, infos) == ({0, 2}, ALL)
    marks = marks_of(sky.stdout(only="head")(lambda: None))
    assert shown(marks, infos) == ({0}, ALL)


def test_what_any_decorator_hides_is_hidden():
    @sky.stdout(only=[0, 1])
    @sky.stdout(only=lambda info: info.rank > 0)
    def train(): ...

    assert shown(marks_of(train), INFOS) == ({1}, ALL)
    assert shown(marks_of(sky.silent(train)), INFOS) == (NONE, NONE)
    assert shown(marks_of(sky.silent()(lambda: None)), INFOS) == (NONE, NONE)
    assert shown(Marks(), INFOS) == (ALL, ALL)


def test_of_some_ranks_those_that_are_meant():
    marks = marks_of(sky.stdout(only=[0, 2])(lambda: None))
    assert shown(marks, INFOS[2:]) == ({2}, {2, 3})


@pytest.mark.parametrize(
    ("only", "says"),
    [
        ("haed", "choose one of all, head, none; did you mean head"),
        ("rank0", "or ranks, or a function"),
        (-1, r"write 'head', ranks as in \[0, 2\]"),
        (True, "write 'head'"),
        ([0, "1"], "write 'head'"),
        (1.5, "write 'head'"),
        (None, "write 'head'"),
    ],
)
def test_what_names_no_ranks_is_refused(only, says):
    with pytest.raises(OptionError, match=says):
        sky.stdout(only=only)


def test_a_rank_that_the_pool_has_not_is_told():
    marks = marks_of(sky.stdout(only=[0, 4])(lambda: None))
    with pytest.raises(OptionError, match="only=4: the pool has ranks 0 to 3"):
        shown(marks, INFOS[:1])


def test_a_predicate_that_fails_says_of_what():
    marks = marks_of(sky.stderr(only=lambda info: info.nowhere)(lambda: None))
    with pytest.raises(AttributeError) as raised:
        shown(marks, INFOS)
    assert raised.value.__notes__ == ["in only= of @sky.stderr, for rank 0"]


class Model: ...


DECORATORS = [
    (lambda: sky.stdout(only="head"), "stdout"),
    (lambda: sky.stderr(only="head"), "stderr"),
    (lambda: sky.silent, "silent"),
    (lambda: sky.integrations.torch, "integrations.torch"),
    (lambda: sky.integrations.torch(), "integrations.torch()"),
]


@pytest.mark.parametrize("decorator", [decorator for decorator, _ in DECORATORS])
def test_both_orders_say_the_same(decorator):
    def train(x):
        return x + 1

    below = sky.function(decorator()(train))
    function = sky.function(lambda x: x + 1)
    above = decorator()(function)
    assert above is function
    assert marks_of(above.raw) == marks_of(below.raw) != Marks()
    assert above(1).local() == below(1).local() == 2


@pytest.mark.parametrize(("decorator", "name"), DECORATORS)
@pytest.mark.parametrize(
    ("thing", "what"), [(Model, "the class Model"), (len, "a builtin"), ("nccl", "a str")]
)
def test_what_is_no_function_is_refused(decorator, name, thing, what):
    with pytest.raises(TypeError) as raised:
        decorator()(thing)
    assert str(raised.value).startswith(f"@sky.{name} decorates a function")
    assert what in str(raised.value)


def test_a_decorator_that_does_not_say_which_ranks_is_told():
    with pytest.raises(TypeError, match=r'which ranks: @sky.stdout\(only="head"\)'):
        sky.stdout(lambda: None, only="head")
    with pytest.raises(TypeError, match="only"):
        sky.stdout()


def test_ranks_get_no_marks_and_no_token():
    train = sky.integrations.huggingface(token="hunter2")(lambda: 4)
    sent = cloudpickle.dumps(train)
    assert b"hunter2" not in sent
    assert b"skyward_nb" not in sent
    there = pickle.loads(sent)
    assert there() == 4
    assert marks_of(there) == Marks()
    silent = pickle.loads(cloudpickle.dumps(sky.silent(train)))
    assert silent() == 4
    assert marks_of(silent) == Marks()


def test_places_are_asked_for_their_head():
    assert sky.is_head(InstanceInfo())
    assert not sky.is_head(InstanceInfo(rank=1, world_size=2))


def test_a_function_trains_as_its_decorator_says_and_the_next_one_as_before(monkeypatch):
    seeded = []
    monkeypatch.setattr(keras_settings, "set_seed", lambda env: seeded.append(dict(env)))

    @sky.integrations.keras(backend="torch", seed=3, average=False)
    def train():
        return keras_settings.averages()

    assert keras_settings.averages() and train() is False and keras_settings.averages()
    assert seeded == [{"SKYWARD_KERAS_SEED": "3", "SKYWARD_KERAS_AVERAGE": "no"}]
    # A pool that has Keras on torch has what it needs.
    assert marks_of(train).uses == (sky.plugins.keras(backend="torch"),)

    @sky.integrations.keras(seed=3)
    @sky.function
    def outer():
        return len(seeded)

    assert outer.local() == 2
