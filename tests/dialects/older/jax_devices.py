"""JAX in the older dialect: processes joined, a sum over the devices of all of them."""

import skyward_nb as sky


@sky.compute
@sky.integrations.jax()
def total():
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

    info = sky.instance_info()
    assert jax.process_index() == info.rank
    mine = jnp.arange(4.0) + 10 * info.rank
    gathered = multihost_utils.process_allgather(mine)
    return jax.process_count(), len(jax.devices()), float(jnp.sum(gathered))


with sky.ComputePool(nodes=3) as pool:
    for rank, (processes, devices, value) in enumerate(total() @ pool):
        print(f"rank {rank}: {processes} processes, {devices} devices, sum {value:g}")
