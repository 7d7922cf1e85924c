"""A model of JAX spread over the devices of a mesh: what `sky.parallelize` does with one."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from typing import Any

from skyward_nb.runtime import jax_arrays, jax_plans
from skyward_nb.words.mesh import other_axes


def spread(model: Any, plan: Mapping[str, Any] | None, mesh: Any) -> Any:
    """A model with its arrays on the devices of a mesh; without one, as it is if `plan` fits."""
    if mesh is not None:
        _check_mesh(mesh)
    import jax

    tree = jax_arrays.tree_of(model)
    leaves, structure = jax.tree.flatten(tree)
    sizes: dict[str, int] = dict(mesh.shape) if mesh is not None else {}
    described = _described(model, tree)
    found = jax_plans.place(described, plan, sizes)
    if mesh is None:
        return model
    if words := jax_plans.remark(found, sizes):
        warnings.warn(words, stacklevel=3)
    specs = iter(found.specs)
    which = [at for at, leaf in enumerate(leaves) if jax_arrays.is_array(leaf)]
    arrays = _of_the_first([leaves[at] for at in which], [each.name for each in described], mesh)
    for at, array in zip(which, arrays, strict=True):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*next(specs)))
        leaves[at] = _placed(array, sharding, leaves[at])
    return _with(model, jax.tree.unflatten(structure, leaves))


def whole_state(model: Any, *, head: bool) -> Any:
    """The pytree of a model's arrays, each whole, on the head; elsewhere {}.

    They are NumPy's; in a module's state JAX's, as modules count their random numbers in place.
    """
    import jax

    leaves, structure = jax.tree.flatten(jax_arrays.tree_of(model))
    whole = [_gathered(leaf) if jax_arrays.is_array(leaf) else leaf for leaf in leaves]
    if not head:
        return {}
    if jax_arrays.is_module(model):
        whole = [jax.numpy.asarray(leaf) if jax_arrays.is_array(leaf) else leaf for leaf in whole]
    return jax.tree.unflatten(structure, whole)


def _check_mesh(mesh: Any) -> None:
    import jax

    if not isinstance(mesh, jax.sharding.Mesh):
        raise TypeError(
            f"sky.parallelize: mesh= takes a jax.sharding.Mesh for this model, not a "
            f"{type(mesh).__name__}: leave it out, or make one with jax.make_mesh"
        )
    if why := other_axes(mesh.axis_names):
        raise ValueError(f"sky.parallelize {why}")
    processes = _processes(mesh)
    if len(processes) not in (1, jax.process_count()) or jax.process_index() not in processes:
        raise ValueError(
            f"sky.parallelize: mesh= has devices of {len(processes)} of {jax.process_count()} ranks; "
            "it needs those of all, or of this one alone"
        )


def _processes(mesh: Any) -> set[int]:
    return {device.process_index for device in mesh.devices.flat}


def _described(model: Any, tree: Any) -> list[jax_plans.Leaf]:
    """Each array with its name, and the spec that its model says of it."""
    import jax

    own: dict[str, Any] = {}
    if jax_arrays.is_module(model):
        from flax import nnx

        specs = nnx.get_partition_spec(tree)
        named = zip(jax_arrays.names_of(specs), jax.tree.leaves(specs), strict=True)
        own = {name: tuple(spec) for name, spec in named if spec is not None and tuple(spec)}
    return [
        jax_plans.Leaf(name, tuple(leaf.shape), jax_arrays.is_float(leaf), own.get(name))
        for name, leaf in zip(jax_arrays.names_of(tree), jax.tree.leaves(tree), strict=True)
        if jax_arrays.is_array(leaf)
    ]


# ── the same start everywhere ───────────────────────────────────────────────────────────


def _of_the_first(arrays: list[Any], names: list[str], mesh: Any) -> list[Any]:
    """Arrays of the host, those of the first rank on all; random keys as their bits."""
    import jax
    import numpy as np

    for name, array in zip(names, arrays, strict=True):
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            raise ValueError(f"sky.parallelize: {name} is spread over ranks already; make it anew")
    plain = [np.asarray(_bits(array)) for array in arrays]
    if len(_processes(mesh)) == 1:
        return plain
    from jax.experimental import multihost_utils

    lines = [f"{each.shape} {each.dtype}" for each in plain]
    digest = hashlib.sha256("\n".join((*names, *lines)).encode()).digest()
    everyone = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    if len({bytes(each) for each in everyone}) > 1:
        raise ValueError(
            "sky.parallelize: ranks have different models (names, shapes or types of arrays)"
        )
    return multihost_utils.broadcast_one_to_all(plain)


def _bits(array: Any) -> Any:
    import jax
    import jax.numpy as jnp

    array = jnp.asarray(array)
    return jax.random.key_data(array) if jax_arrays.is_key(array) else array


def _placed(array: Any, sharding: Any, like: Any) -> Any:
    import jax

    made = jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
    if jax_arrays.is_key(like):
        return jax.random.wrap_key_data(made, impl=jax.random.key_impl(like))
    return made


def _gathered(array: Any) -> Any:
    """The whole of an array, on every rank, as NumPy's; random keys stay keys."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    is_spread = isinstance(array, jax.Array) and not array.is_fully_addressable
    bits = _bits(array)
    whole = np.array(multihost_utils.process_allgather(bits, tiled=True) if is_spread else bits)
    if jax_arrays.is_key(array):
        return jax.random.wrap_key_data(jax.numpy.asarray(whole), impl=jax.random.key_impl(array))
    return whole


def _with(model: Any, tree: Any) -> Any:
    if not jax_arrays.is_module(model):
        return tree
    from flax import nnx

    nnx.update(model, tree)
    return model
