"""Keras on torch over two ranks: `fit` averages gradients, and trains the model that one rank would train."""

import numpy as np

import skyward_nb as sky

random = np.random.default_rng(0)
x = random.normal(size=(256, 16)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")


@sky.function
def train(x, y, batch_size, epochs):
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(1, "sigmoid")])
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(
        x, y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0
    ).history
    return history["loss"], history["accuracy"][-1], model.get_weights()


@sky.function
def train_together(x, y, epochs):
    # Rank r has the rows r, r + 2, ...: the batches of both make those of one.
    return train.local(*sky.shard(x, y), 16, epochs)


with sky.Compute(nodes=2, plugins=[sky.plugins.keras(backend="torch")]) as pool:
    alone = train(x, y, 32, epochs=5) >> pool
    ranks = train_together(x, y, epochs=5) @ pool

(losses, accuracy, weights), (other_losses, _, other_weights) = ranks
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.3f}")
print(f"losses agree: {losses == other_losses}")
print(f"weights agree: {all(map(np.array_equal, weights, other_weights))}")
apart = max(abs(one - other).max() for one, other in zip(weights, alone[2], strict=True))
print(f"as one rank with the whole batch: {apart < 1e-5}")
