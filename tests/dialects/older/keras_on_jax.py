"""Keras on JAX in the older dialect: the decorator sets the backend, and `fit` trains on all devices."""

import skyward_nb as sky


@sky.compute
@sky.integrations.keras(backend="jax")
@sky.stdout(only="head")
def train():
    import keras
    import numpy as np

    random = np.random.default_rng(0)
    x = random.normal(size=(256, 8)).astype("float32")
    y = (x[:, 0] > x[:, 1]).astype("int32")
    x, y = sky.shard(x, y, drop_last=True)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(2, "softmax")])
    model.compile(
        keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    history = model.fit(x, y, epochs=10, batch_size=16, verbose=2).history
    return keras.backend.backend(), history["loss"]


with sky.ComputePool(nodes=2) as pool:
    (backend, losses), (_, other_losses) = train() @ pool

print(f"backend: {backend}")
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
print(f"losses agree: {losses == other_losses}")
