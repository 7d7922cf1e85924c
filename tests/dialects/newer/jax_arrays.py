"""JAX over two nodes: one set of devices, and one computation over arrays that are spread over them."""

import numpy as np

import skyward_nb as sky


@sky.function
def gradient_descent(x, y, steps):
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(jax.devices(), "data")
    rows = NamedSharding(mesh, PartitionSpec("data"))
    mine = slice(jax.process_index(), None, jax.process_count())
    x, y = (jax.make_array_from_process_local_data(rows, each[mine]) for each in (x, y))

    @jax.jit
    def step(weights, x, y):
        loss, slope = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
        return loss, weights - 0.1 * slope

    weights = jnp.zeros(x.shape[1])
    for number in sky.progress(range(steps)):
        loss, weights = step(weights, x, y)
        sky.log(loss=float(loss), step=number)
    print(f"process {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices")
    return float(loss), np.asarray(weights)


random = np.random.default_rng(0)
x = random.normal(size=(128, 4)).astype("float32")
y = x @ np.array([1, -2, 3, -4], "float32")

with sky.Compute(nodes=2, plugins=[sky.plugins.jax()]) as pool:
    ranks = gradient_descent(x, y, steps=60) @ pool

losses, weights = zip(*ranks, strict=True)
print(f"losses: {losses[0]:.6f} {losses[1]:.6f}")
print(f"weights: {weights[0].round(1).tolist()}")
