"""Keras on TensorFlow in the older dialect: the decorator sets the backend, and `fit` trains one model."""

import skyward_nb as sky


@sky.integrations.keras(backend="tensorflow", seed=7)
@sky.compute
def train():
    import keras
    import numpy as np

    random = np.random.default_rng(0)
    x = random.normal(size=(250, 8)).astype("float32")
    y = (x[:, 0] > x[:, 1]).astype("int32")
    x, y = sky.shard(x, y)  # parts may differ in size

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(2, "softmax")])
    model.compile(
        keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    history = model.fit(x, y, epochs=8, batch_size=16, verbose=0).history
    return keras.backend.backend(), history["loss"], model.get_weights()


with sky.ComputePool(nodes=3) as pool:
    ranks = train() @ pool

(backend, losses, weights), *others = ranks
print(f"backend: {backend}")
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
print(f"losses agree: {all(loss == losses for _, loss, _ in others)}")
agree = all((w == o).all() for _, _, other in others for w, o in zip(weights, other, strict=True))
print(f"weights agree: {agree}")
