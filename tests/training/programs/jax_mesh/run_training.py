"""`run_training.py model.mesh_shape=[[2,2],["fsdp","tp"]]`: the shape of the mesh stands on the line."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from model import SPECS, loss, parameters

import skyward_nb as sky

mesh = sky.mesh("model.mesh_shape")


def spread(value: jax.Array, spec: P) -> jax.Array:
    place = NamedSharding(mesh, spec)
    return jax.make_array_from_callback(value.shape, place, lambda index: value[index])


weights = {name: spread(value, SPECS[name]) for name, value in parameters().items()}
x = jnp.linspace(-1, 1, 16 * 8).reshape(16, 8)
data = spread(x, P("fsdp")), spread(jnp.roll(x, 1, axis=1), P("fsdp"))


@jax.jit
def step(weights, x, y):
    value, gradients = jax.value_and_grad(loss)(weights, x, y)
    return value, jax.tree.map(lambda each, change: each - 0.1 * change, weights, gradients)


for epoch in range(4):
    value, weights = step(weights, *data)
    if jax.process_index() == 0:
        print(f"epoch {epoch} loss {float(value):.6f}", flush=True)
