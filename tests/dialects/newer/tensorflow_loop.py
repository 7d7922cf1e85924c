"""TensorFlow over two ranks: MultiWorkerMirroredStrategy finds its cluster, and a loop of one's own."""

import numpy as np

import skyward_nb as sky


@sky.function
def train(x, y, steps):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(len(x)).repeat()
    batches = iter(strategy.experimental_distribute_dataset(dataset))
    with strategy.scope():
        weights = tf.Variable(tf.zeros([x.shape[1], 1]))

    @tf.function
    def step(batch):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((x @ weights - y) ** 2) / 128
            (slope,) = tape.gradient(loss, [weights])
            slope = tf.distribute.get_replica_context().all_reduce("sum", slope)
            weights.assign_sub(0.1 * slope)
            return loss

        return strategy.reduce("sum", strategy.run(replica, batch), axis=None)

    for _ in sky.progress(range(steps)):
        loss = step(next(batches))
    return strategy.num_replicas_in_sync, float(loss), weights.numpy().ravel()


random = np.random.default_rng(0)
x = random.normal(size=(128, 4)).astype("float32")
y = (x @ np.array([1, -2, 3, -4], "float32"))[:, None]

with sky.Compute(nodes=2, plugins=[sky.plugins.tensorflow()]) as pool:
    ranks = train(x, y, steps=40) @ pool

for rank, (replicas, loss, weights) in enumerate(ranks):
    print(f"rank {rank}: {replicas} replicas, loss {loss:.5f}, weights {weights.round(1).tolist()}")
