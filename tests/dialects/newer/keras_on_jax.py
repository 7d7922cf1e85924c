"""Keras on JAX over two nodes: `fit` sees the devices of both, and trains one model."""

import numpy as np

import skyward_nb as sky

random = np.random.default_rng(0)
x = random.normal(size=(512, 16)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")


@sky.function
def train(x, y, epochs):
    import jax
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(1, "sigmoid")])
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
    x, y = sky.shard(x, y, shuffle=True, drop_last=True)
    history = model.fit(x, y, batch_size=32, epochs=epochs, verbose=0).history
    print(
        f"{keras.config.backend()} with {jax.device_count()} devices of {jax.process_count()} ranks"
    )
    return history["loss"], history["accuracy"][-1], [np.asarray(w) for w in model.get_weights()]


with sky.Compute(nodes=2, plugins=[sky.plugins.jax(), sky.plugins.keras(backend="jax")]) as pool:
    ranks = train(x, y, epochs=12) @ pool

(losses, accuracy, weights), (other_losses, _, other_weights) = ranks
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.3f}")
print(f"losses agree: {losses == other_losses}")
print(f"weights agree: {all(map(np.array_equal, weights, other_weights))}")
