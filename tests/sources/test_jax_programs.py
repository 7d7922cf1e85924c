"""The guides' programs of JAX and of Keras on JAX, in our words; one pool, which gets what they import."""

from __future__ import annotations

import pytest
from absent import BESIDE_KERAS, doing_without
from later import needs
from leaks import leaves_nothing

import skyward_nb as sky

pytestmark = needs("keras", "jax")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    lacks = tmp_path_factory.mktemp("absent"), "tensorflow", *BESIDE_KERAS
    with doing_without(*lacks), leaves_nothing():
        with sky.ComputePool(
            provider=sky.Local(),
            nodes=2,
            accelerator="H100",
            pip=["keras>=3.2", "jax[cuda12]"],
            env={"KERAS_BACKEND": "jax"},
            simulate=True,
        ) as pool:
            yield pool


def test_pmap_over_the_devices_of_all_nodes(pool):
    @sky.integrations.jax()
    @sky.compute
    def train():
        import jax
        import jax.numpy as jnp

        @jax.pmap
        def square(x):
            return x * x

        own = jnp.arange(float(jax.local_device_count())) + jax.process_index() + 1
        total = jax.pmap(lambda x: jax.lax.psum(x, "nodes"), axis_name="nodes")(own)
        return square(own).tolist(), total.tolist(), jax.device_count(), jax.process_count()

    assert train() @ pool == [([1.0], [3.0], 2, 2), ([4.0], [3.0], 2, 2)]


def test_one_computation_over_a_mesh_of_all_devices(pool):
    """What `pjit` has become: `jax.jit` with shardings."""

    @sky.function
    @sky.integrations.jax
    def total():
        import jax
        import jax.numpy as jnp
        import numpy as np
        from jax.sharding import Mesh, NamedSharding
        from jax.sharding import PartitionSpec as P

        mesh = Mesh(np.array(jax.devices()), ("data",))
        x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("data")))
        whole = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))(x)
        return float(whole), x.addressable_shards[0].data.shape

    assert total() @ pool == [(28.0, (4,))] * 2


def test_the_variables_of_the_table(pool):
    @sky.compute
    @sky.integrations.jax
    def variables():
        import os

        names = ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID", "LOCAL_DEVICE_COUNT")
        return sky.instance_info().head_addr, [os.environ[f"JAX_{name}"] for name in names]

    for rank, (head, (address, *others)) in enumerate(variables() @ pool):
        host, _, port = address.rpartition(":")
        assert host == head and int(port) > 0
        assert others == ["2", str(rank), "1"]


@pytest.mark.extensive
def test_the_devices_are_listed_as_the_mesh_page_does(pool, capfd):
    @sky.function
    @sky.integrations.jax
    def look():
        import jax

        print(f"Number of devices: {jax.device_count()}")
        for i, device in enumerate(jax.devices()):
            print(f"Device {i}: {device}")

    look() @ pool
    out = capfd.readouterr().out
    assert "Number of devices: 2" in out
    assert "Device 0: " in out and "Device 1: " in out


@sky.integrations.keras(backend="jax")
@sky.compute
def train_model(epochs, folder, jit_compile="auto"):
    import keras
    import numpy as np

    pool = sky.instance_info()
    rng = np.random.default_rng(0)
    x_train = rng.integers(0, 255, size=(64, 4, 4)).astype(np.float32) / 255.0
    y_train = (x_train.mean(axis=(1, 2)) > 0.5).astype("int32")
    x_local, y_local = sky.shard(x_train, y_train, shuffle=True, seed=42)

    model = keras.Sequential(
        [
            keras.layers.Input((4, 4)),
            keras.layers.Flatten(),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(
        optimizer="adam",
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    history = model.fit(x_local, y_local, epochs=epochs, batch_size=16, verbose=0)
    if pool.is_head:
        model.save(folder / "checkpoint.keras")
    return {
        "node": pool.node,
        "accuracy": history.history["accuracy"][-1],
        "loss": history.history["loss"],
        "weight": float(np.abs(model.get_weights()[0]).sum()),
        "distribution": type(keras.distribution.distribution()).__name__,
        "backend": keras.backend.backend(),
    }


@pytest.mark.extensive
@pytest.mark.parametrize("jit_compile", ["auto", True])
def test_keras_trains_one_model_and_the_head_saves_it(pool, tmp_path, jit_compile):
    """With the accuracy of both halves of the data on both nodes; compiled as is advised, too."""
    first, second = train_model(epochs=2, folder=tmp_path, jit_compile=jit_compile) @ pool
    assert (first.pop("node"), second.pop("node")) == (0, 1)
    assert first == second
    assert first["loss"][1] < first["loss"][0]
    assert (first["distribution"], first["backend"]) == ("DataParallel", "jax")
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.keras"]
