"""TensorFlow in the older dialect: Keras 2 under MultiWorkerMirroredStrategy, its cluster from TF_CONFIG."""

import skyward_nb as sky


@sky.compute
@sky.integrations.tensorflow()
def train(epochs):
    import json
    import os

    import numpy as np
    import tensorflow as tf
    import tf_keras

    cluster = json.loads(os.environ["TF_CONFIG"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 4)).astype("float32")
    y = x @ np.array([[1], [2], [3], [4]], "float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)

    tf_keras.utils.set_random_seed(0)
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(4,))])
        model.compile(tf_keras.optimizers.legacy.SGD(0.1), "mse")
    losses = model.fit(dataset, epochs=epochs, verbose=0).history["loss"]
    return len(cluster["cluster"]["worker"]), cluster["task"]["index"], losses


with sky.ComputePool(nodes=2) as pool:
    ranks = train(epochs=12) @ pool

for workers, index, losses in ranks:
    print(f"worker {index} of {workers}: loss {losses[0]:.3f} -> {losses[-1]:.5f}")
print(f"losses agree: {ranks[0][2] == ranks[1][2]}")
