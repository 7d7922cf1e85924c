"""A model of JAX over a mesh of four ranks, two by two: the same losses as on one device."""

import numpy as np

import skyward_nb as sky

random = np.random.default_rng(0)
x = random.normal(size=(64, 8)).astype("float32")
y = np.tanh(x @ random.normal(size=(8, 4)).astype("float32"))
start = {
    "up": random.normal(size=(8, 32)).astype("float32") / 3,
    "down": random.normal(size=(32, 4)).astype("float32") / 6,
}


@sky.function
def train(weights, x, y, steps, every):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    def loss_of(weights, x, y):
        return jnp.mean((jnp.tanh(x @ weights["up"]) @ weights["down"] - y) ** 2)

    gradients = sky.accumulate(loss_of, every=every)

    @jax.jit
    def step(weights, x, y):
        loss, slopes = gradients(weights, x, y)
        return loss, jax.tree.map(lambda weight, slope: weight - 0.3 * slope, weights, slopes)

    if sky.instance_info().world_size > 1:
        weights = sky.parallelize(weights)
        rows = NamedSharding(sky.mesh(), PartitionSpec("fsdp"))
        x, y = (jax.make_array_from_process_local_data(rows, a) for a in sky.shard(x, y))
        print("part of up:", weights["up"].addressable_shards[0].data.shape)
    losses = []
    for _ in range(steps):
        loss, weights = step(weights, x, y)
        losses.append(float(loss))
    return losses, sky.full_state(weights)


with sky.Compute(nodes=4, plugins=[sky.plugins.jax()], mesh="fsdp:2,tp:2") as pool:
    (losses, weights), *others = train(start, x, y, steps=20, every=4) @ pool

alone, expected = train(start, x, y, steps=20, every=1).local()
print(f"loss: {losses[0]:.4f} {losses[-1]:.4f}")
print("losses agree:", np.allclose(losses, alone, atol=1e-5))
print("weights agree:", all(np.allclose(weights[k], expected[k], atol=1e-5) for k in expected))
print("whole on the head alone:", all(state == {} for _, state in others))
