"""What JAX's arrays have in common, wherever a person keeps them: modules of nnx, dicts, lists."""

from __future__ import annotations

import sys
from typing import Any

from skyward_nb.runtime.indexing import is_of


def is_module(value: Any) -> bool:
    """Whether this is an object of flax.nnx, which is changed in place."""
    return is_of(value, "flax.nnx", "Pytree", "Module")


def is_array(leaf: Any) -> bool:
    """Whether this leaf of a pytree is an array, JAX's or NumPy's."""
    return is_of(leaf, "jax", "Array") or is_of(leaf, "numpy", "ndarray")


def has_arrays(tree: Any) -> bool:
    """Whether this is a pytree, or a module, with any array in it."""
    jax = sys.modules.get("jax")
    return jax is not None and any(map(is_array, jax.tree.leaves(tree_of(tree))))


def tree_of(model: Any) -> Any:
    """The pytree of a model's arrays: a module's state, and anything else itself."""
    if not is_module(model):
        return model
    from flax import nnx

    return nnx.state(model)


def names_of(tree: Any) -> list[str]:
    """The names of a pytree's leaves, their parts between dots."""
    import jax

    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    return [name.removesuffix(".value") for name in names] if is_state(tree) else names


def is_state(tree: Any) -> bool:
    """Whether this is a state of nnx, whose variables stand between names and arrays."""
    return is_of(tree, "flax.nnx", "State")


def is_float(array: Any) -> bool:
    """Whether its numbers are floating-point or complex."""
    import jax.numpy as jnp

    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def is_key(array: Any) -> bool:
    """Whether it holds random keys, whose bits JAX hides."""
    import jax

    return bool(jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key))
