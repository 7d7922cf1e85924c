"""A model of two layers, and how its parts lie on the axes of a mesh."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

SPECS = {"up": P("fsdp", "tp"), "down": P("tp", "fsdp")}


def parameters(width: int = 8) -> dict[str, jax.Array]:
    first, second = jax.random.split(jax.random.PRNGKey(0))
    return {
        "up": 0.3 * jax.random.normal(first, (width, 4 * width)),
        "down": 0.3 * jax.random.normal(second, (4 * width, width)),
    }


def loss(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((jnp.tanh(x @ weights["up"]) @ weights["down"] - y) ** 2)
