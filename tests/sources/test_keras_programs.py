"""The guides' Keras on torch and on TensorFlow, in our words: one model over the ranks, as on JAX."""

from __future__ import annotations

import importlib.util

import pytest
from absent import BESIDE_KERAS, doing_without
from leaks import leaves_nothing

import skyward_nb as sky


def the_rows():
    import numpy as np

    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    return x, x[:, :1] - x[:, 1:2]


def trained(backend):
    """Decorated as the guide has it."""

    @sky.integrations.keras(backend=backend)
    @sky.compute
    def train():
        import keras

        keras.utils.set_random_seed(sky.instance_info().rank)
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        begin = model.get_weights()
        x, y = sky.shard(*the_rows())
        model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
        return keras.backend.backend(), begin, model.get_weights()

    return train


@pytest.mark.extensive
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_one_model_is_trained_that_is_that_of_one_rank(tmp_path, backend):
    """Strided halves of 32 rows on two ranks: the model is the head's, trained on whole batches by hand."""
    for package in ("keras", backend):
        if not importlib.util.find_spec(package):
            pytest.skip(f"{package} is not installed")
    lacks = {"torch", "tensorflow", "jax"} - {backend}
    image = sky.Image(pip=["keras>=3.2", backend], env={"KERAS_BACKEND": backend})
    with doing_without(tmp_path, *lacks, *BESIDE_KERAS), leaves_nothing():
        with sky.ComputePool(provider=sky.Local(), nodes=2, image=image, quiet=True) as pool:
            (kind, (w, b), first), (_, _, second) = trained(backend)() @ pool
    assert kind == backend
    x, y = the_rows()
    for start in (0, 32) * 3:
        rows, aims = x[start : start + 32], y[start : start + 32]
        error = 2 * (rows @ w + b - aims) / len(rows)
        w, b = w - 0.1 * rows.T @ error, b - 0.1 * error.sum(axis=0)
    for mine, other, alone in zip(first, second, (w, b), strict=True):
        assert (mine == other).all()
        assert mine == pytest.approx(alone, abs=1e-5)
