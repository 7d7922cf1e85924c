"""Keras on the ranks of a pool: the backend set, one model trained by all ranks on JAX."""

import ast

import pytest
from absent import BESIDE_KERAS, without
from gpus import on_gpus
from kernels import ready
from later import needs

import skyward_nb as sky
from skyward_nb.plugins.keras_plugin import settled

pytestmark = needs("keras", "jax")

MODEL = """
import os, keras, numpy as np
def make():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.layers.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model
rng = np.random.default_rng(0)
x, y = rng.normal(size=(64, 8)).astype("float32"), rng.normal(size=(64, 4)).astype("float32")
"""
TRAIN = """%%sky_remote out=got
import jax
from jax.experimental import multihost_utils
model = make()
batch = 32 // {parts}
part = np.arange(64).reshape(2, {parts}, batch)[:, {mine}].ravel()
losses = model.fit(x[part], y[part], batch_size=batch, epochs=3, shuffle=False, verbose=0).history["loss"]
values = [each.value for each in model.trainable_variables]
weights = [multihost_utils.process_allgather(each, tiled=True) for each in values]
own = [each.addressable_data(0).shape for each in values]
(losses, [float(np.abs(w).sum()) for w in weights], type(keras.distribution.distribution()).__name__, own[0])
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    path = without(tmp_path_factory.mktemp("absent"), "tensorflow", *BESIDE_KERAS)
    cell = f"{MODEL}\nimport skyward_nb as sky"
    with ready(cell, KERAS_BACKEND="jax", PYTHONPATH=path) as running:
        yield running


@pytest.fixture(scope="module")
def alone(notebook):
    """Losses and weights of one process with all the data."""
    ran = notebook.run(
        "model = make()\n"
        "losses = model.fit(x, y, batch_size=32, epochs=3, shuffle=False, verbose=0).history['loss']\n"
        "losses, [float(np.abs(np.asarray(w)).sum()) for w in model.get_weights()]"
    )
    return ast.literal_eval(ran.result)


@pytest.fixture(scope="module")
def pool_of(notebook):
    """Has a pool of these options with new ranks: the one there is, or another one in its place."""
    there = []

    def begin(line):
        if there == [line]:
            ran = notebook.run("%sky restart")
        else:
            notebook.run("%sky down")
            ran = notebook.run(f"%sky up {line}", timeout=100)
        assert ran.status == "ok", ran.traceback
        there[:] = [line]

    yield begin
    notebook.run("%sky down")


# The pool, its distribution, in how many parts the data come, which is a rank's, and what a device
# has of the first layer, which is 8 by 16.
SHAPES = {"nodes=2 framework=keras:jax": ("DataParallel", 2, "rank", (8, 16))}
MORE_SHAPES = {
    "nodes=2 framework=keras mesh=tp:2": ("ByShape", 1, "0", (8, 8)),
    "nodes=2 framework=keras env=JAX_NUM_CPU_DEVICES=2 mesh=data:2,tp:2": (
        "ByShape",
        2,
        "rank",
        (8, 8),
    ),
    "nodes=4 framework=keras:jax mesh=data:2,tp:2": ("ByShape", 2, "rank // 2", (8, 8)),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "line", [*(pytest.param(each, marks=pytest.mark.extensive) for each in MORE_SHAPES), *SHAPES]
)
def test_ranks_train_one_model(notebook, alone, pool_of, line):
    """Of ranks along `tp` each takes the same data, as they have parts of one model."""
    kind, parts, mine, own = (SHAPES | MORE_SHAPES)[line]
    pool_of(line)
    body = TRAIN.format(parts=parts, mine=mine.replace("rank", "jax.process_index()"))
    ran = notebook.run(body, timeout=200)
    assert ran.status == "ok", ran.traceback
    for rank in range(4 if "nodes=4" in line else 2):
        losses, weights, made, first = ast.literal_eval(notebook.run(f"got[{rank}]").result)
        assert (made, first) == (kind, own)
        assert losses == pytest.approx(alone[0], abs=1e-4)
        assert weights == pytest.approx(alone[1], abs=1e-4)


@pytest.mark.extensive
def test_the_head_saves_alone_and_each_rank_predicts_what_it_gives(notebook, pool_of, tmp_path):
    pool_of("nodes=2 framework=keras:jax")
    ran = notebook.run(
        "%%sky_remote\nimport skyward_nb as sky\ninfo = sky.instance_info()\nmodel = make()\n"
        "model.fit(x, y, verbose=0)\npart = x[info.rank * 30 : info.rank * 30 + 30]\n"
        "rows = model.predict(part, batch_size=10, verbose=0)\n"
        "w = model.get_weights()\n"
        "expected = np.tanh(part @ w[0] + w[1]) @ w[2] + w[3]\n"
        "rows.shape, bool(np.allclose(rows, expected, atol=1e-5))"
    )
    assert ran.result == "[0-1] ((30, 4), True)", ran.traceback
    for save in (
        f"save({str(tmp_path / 'm.keras')!r})",
        f"save_weights({str(tmp_path / 'm.weights.h5')!r})",
    ):
        ran = notebook.run(f"%%sky_remote timeout=60\nif info.is_head: model.{save}", timeout=90)
        assert ran.status == "ok", ran.traceback
    for line in ("gather=head", "ranks=head"):
        ran = notebook.run(f"%%sky_remote {line} out=found timeout=60\nmodel", timeout=90)
        assert ran.status == "ok", ran.traceback
        ran = notebook.run(
            "found = getattr(found, 'head', found)\nfound.predict(x, verbose=0).shape"
        )
        assert ran.result == "(64, 4)"
    # The pool goes on as it was: nothing was cut.
    ran = notebook.run("%%sky_remote\nmodel.fit(x, y, verbose=0); info.generation")
    assert "formed again" not in ran.picture
    loaded = f"keras.models.load_model({str(tmp_path / 'm.keras')!r}).count_params()"
    assert notebook.run(loaded).result == notebook.run("found.count_params()").result


def test_a_model_of_the_notebook_does_not_change_with_the_time(notebook):
    """Keras saves the time with a model; ranks would lose what they trained in each second anew."""
    ran = notebook.run(
        "from unittest import mock\nfrom skyward_nb.pickling.payload import pack\nsaid = make(), make().optimizer\n"
        "def written():\n    return [(each.__reduce__()[1][0].getvalue(), pack('said', each).digest) for each in said]\n"
        "now = written()\nwith mock.patch('time.time', lambda: 1e9): of_old = written()\n"
        "[(a == c, b == d) for (a, b), (c, d) in zip(now, of_old)]"
    )
    assert ran.result == "[(False, True), (False, True)]", ran.traceback


def test_a_model_with_a_layer_of_the_notebook_trains_and_comes_home(notebook, pool_of):
    pool_of("nodes=2 framework=keras:jax")
    notebook.run(
        "class Scaled(keras.layers.Layer):\n    def __init__(self, by=2):\n        super().__init__()\n"
        "        self.by = by\n    def call(self, x): return x * self.by\n"
        "def far(y, p): return keras.ops.mean(keras.ops.abs(y - p))\n"
        "scaled = keras.Sequential([keras.layers.Input((8,)), Scaled(3), keras.layers.Dense(4)])\n"
        "scaled.compile('sgd', far)"
    )
    ran = notebook.run(
        "%%sky_remote gather=head out=trained timeout=60\nbefore = scaled.get_weights()[0].copy()\n"
        "scaled.fit(x, y, verbose=0)\n"
        "(scaled, type(scaled.layers[0]) is Scaled, bool((scaled.get_weights()[0] != before).any()))",
        timeout=90,
    )
    assert ran.status == "ok", ran.traceback
    assert "shares an object" not in ran.picture
    ran = notebook.run(
        "model_back = trained[0]\n"
        "trained[1:], type(model_back.layers[0]) is Scaled, model_back.layers[0].by, model_back.loss.__name__"
    )
    assert ran.result == "((True, True), True, 3, 'far')", ran.traceback


def test_weights_begin_alike_without_a_seed_and_other_randomness_does_not(notebook, pool_of):
    pool_of("nodes=2 framework=keras:jax")
    ran = notebook.run(
        "%%sky_remote push=none out=got\n"
        "import keras, random\n"
        "dense = keras.layers.Dense(2)\ndense.build((None, 3))\n"
        "drawn = keras.random.normal((2,)).tolist()\n"
        "dense.get_weights()[0].tolist(), drawn, random.random()"
    )
    assert ran.status == "ok", ran.traceback
    assert (
        notebook.run("got[0][:2] == got[1][:2], got[0][2] == got[1][2]").result == "(True, False)"
    )


@pytest.mark.extensive
@needs("torch")
def test_on_torch_a_batch_by_itself_is_said_to_train_as_many_models(notebook, pool_of):
    """`fit` trains one: `test_keras_together`."""
    pool_of("nodes=2 framework=keras:torch")
    ran = notebook.run(
        "%%sky_remote push=none out=got\n"
        f"{MODEL}\nimport torch, torch.distributed as dist\n"
        "model = make()\n"
        "model.train_on_batch(x, y)\nmodel.train_on_batch(x, y)\n"
        "twin = torch.nn.parallel.DistributedDataParallel(make())\n"
        "(twin(torch.ones(2, 8) * dist.get_rank()) ** 2).mean().backward()\n"
        "grads = [p.grad.abs().sum().item() for p in twin.parameters()]\n"
        "keras.config.backend(), os.environ['KERAS_BACKEND'], grads"
    )
    assert ran.status == "ok", ran.traceback
    assert ran.picture.count("2 different models") == 1, ran.picture
    assert notebook.run("got[0] == got[1] and got[0][:2]").result == "('torch', 'torch')"


@pytest.mark.extensive
def test_another_backend_than_that_of_the_notebook_may_be_said_to_a_pool_of_torch(notebook):
    ran = notebook.run("%sky up nodes=1 framework=torch pool=other env=KERAS_BACKEND=torch")
    assert ran.status == "ok"
    notebook.run("%sky down pool=other")


def test_keras_that_was_imported_with_another_backend(notebook):
    ran = notebook.run("%sky up pool=other framework=keras:jax env=KERAS_BACKEND=torch")
    assert "contradict each other" in ran.stderr


def test_what_keras_alone_means(monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "keras", None)
    assert settled(("keras",), {"KERAS_BACKEND": "torch"}) == ("keras:torch",)
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert settled(("keras", "torch"), {}) == ("keras:tensorflow", "torch")
    monkeypatch.delenv("KERAS_BACKEND")
    assert settled(("keras",), {}) == ("keras:jax",)
    assert settled(("torch",), {}) == ("torch",)


# ── on GPUs ─────────────────────────────────────────────────────────────────────────────


@needs("torch")
@pytest.mark.gpu
def test_keras_on_torch_trains_on_the_gpu(no_leaks):
    @sky.integrations.keras(backend="torch")
    @sky.compute
    def train():
        import keras
        import numpy as np

        x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        losses = model.fit(x, x[:, :1], epochs=3, verbose=0).history["loss"]
        return model.weights[0].value.device.type, losses[-1] < losses[0]

    with sky.ComputePool(accelerator=on_gpus(1), quiet=True) as pool:
        assert {*(train() @ pool)} == {("cuda", True)}
