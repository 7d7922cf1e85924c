"""`sky.parallelize`: a model of torch or of JAX spread over the ranks of a mesh.

Here is what both have in common: axes are `words/mesh`'s, words of plans `plan_words`'s; `torch_parallel` and
`jax_parallel` spread the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from skyward_nb.runtime import jax_arrays
from skyward_nb.runtime.indexing import is_of
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.process_group import entered
from skyward_nb.runtime.sync import mesh as pool_mesh

M = TypeVar("M")


def parallelize(
    model: M,
    plan: Mapping[str, Any] | None = None,
    *,
    mesh: Any = None,
    reduce_dtype: Any = None,
    param_dtype: Any = None,
) -> M:
    """Spread a torch module, a module of flax.nnx, or a pytree of JAX's arrays over the pool's mesh.

    Modules are changed in place and returned; of a pytree a new one is. Make the optimizer
    afterwards. Ranks that differ in `tp` alone need the same data, all others their own part:
    `sky.data_place()` says which, and `sky.shard` gives it. First every rank gets the weights
    (and buffers, and state) of the first.

    **torch**: along `tp` layers are split (tensor parallel), along `fsdp` parameters, gradients and what
    the optimizer keeps (FSDP2), and along `dp` all is copied (with `fsdp`: hybrid sharding). Gradients
    are the mean over `dp` and `fsdp`. Call `model(...)` itself: what is spread comes together in its
    forward. Ranks that differ in `tp` alone get one random state, so that dropout is the same where
    activations are; seed them alike. `param_dtype` is what forward and backward compute in,
    and `reduce_dtype` what gradients are averaged in: `"bf16"`, `torch.bfloat16` …

    **JAX**: each array of floats with two axes or more is split along `tp` by the larger of its last two
    axes, along `fsdp` by the largest other one, and copied along `dp`; others are whole on each device.
    The compiler finds the collectives, so any placement is right. What has no axis that can be divided
    is left whole, and a warning names it. Batches are arrays of all ranks:
    `jax.make_array_from_process_local_data(NamedSharding(sky.mesh(), P(("dp", "fsdp"))), part)`, with
    those of the two axes that the mesh has. The dtypes belong to `sky.accumulate`, which makes gradients.

    `plan` says what is split along `tp`: full names of layers or arrays, where `*` stands for one
    part, with `"colwise"`, `"rowwise"`, `"gather"` (torch: colwise, and the output whole again),
    `"replicate"`, or a `ParallelStyle` of torch, a `PartitionSpec` of JAX. Without it a model's own is
    taken (Hugging Face's, `out_sharding` of nnx), or one is made: in torch for pairs of Linears with
    only elementwise layers between them, and each other Linear by itself.

    `mesh` is a `DeviceMesh` over all ranks, or a `jax.sharding.Mesh`; `sky.mesh()` unless it is
    given. Its axes are among `dp`, `fsdp` and `tp`.

    With one rank, and outside a pool, a model stays as it was. `sky.full_state(model)` gives the
    weights whole, as torch's checkpoints do. Raises ValueError for what cannot be done, and for a
    `plan` that does not fit the model also where nothing is split; TypeError for what is no model;
    RuntimeError where the pool has another framework than the model.
    """
    framework = _framework_of("sky.parallelize", model)
    is_alone = instance_info().world_size == 1 and (framework == "torch" or "jax" not in entered)
    if mesh is None and not is_alone:
        mesh = _mesh_for(model, framework)
    if framework == "jax":
        from skyward_nb.runtime import jax_parallel

        if reduce_dtype is not None or param_dtype is not None:
            raise ValueError(
                "sky.parallelize: in JAX a function makes the gradients: give reduce_dtype= and "
                "param_dtype= to it, as in sky.accumulate(loss, every=1, reduce_dtype='bf16')"
            )
        return jax_parallel.spread(model, plan, mesh)
    if mesh is not None or plan is not None:
        from skyward_nb.runtime import torch_parallel

        torch_parallel.spread(model, plan, mesh, reduce_dtype=reduce_dtype, param_dtype=param_dtype)
    return model


def full_state(model: Any) -> Any:
    """A model's weights and buffers, whole, on the head; elsewhere an empty dictionary.

    All ranks must call it. For torch it equals `model.state_dict()` of the model on one rank, on the
    CPU: `torch.save` it, or make it the cell's value. For a module of nnx it is its `nnx.State`, which
    `nnx.update(model, state)` takes in; for another pytree one like it, of NumPy's arrays.
    """
    head = instance_info().is_head
    if _framework_of("sky.full_state", model) == "torch":
        from skyward_nb.runtime import torch_parallel

        return torch_parallel.whole_state(model, head=head)
    from skyward_nb.runtime import jax_parallel

    return jax_parallel.whole_state(model, head=head)


def _framework_of(function: str, model: Any) -> str:
    if is_of(model, "torch.nn", "Module"):
        return "torch"
    if jax_arrays.has_arrays(model):
        return "jax"
    kind = type(model).__name__
    advice = ""
    if is_of(model, "keras", "Model"):
        advice = "; Keras spreads one as it is made: framework=keras:jax mesh=fsdp:2,tp:2"
    elif is_of(model, "flax.linen", "Module"):
        advice = "; give the variables that its init() makes"
    raise TypeError(
        f"{function} takes a torch.nn.Module, a module of flax.nnx, or a pytree of JAX's arrays "
        f"(in dicts, lists …); in this {kind} there is none{advice}"
    )


def _mesh_for(model: Any, framework: str) -> Any:
    if entered and framework not in entered:
        raise RuntimeError(
            f"sky.parallelize: this {type(model).__name__} is one of {framework}, and the pool has "
            f"framework={','.join(entered)}: make another one with framework={framework}"
        )
    return pool_mesh(framework)
