"""A torch model spread over the ranks of a mesh, in place: what `sky.parallelize` does with one."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Mapping
from typing import Any

from skyward_nb.compat import torch_private
from skyward_nb.compat.transformers_private import whole_blocks
from skyward_nb.runtime import replicas, tensor_plans
from skyward_nb.words.mesh import PARALLEL_AXES, dtype_name, other_axes


def spread(
    model: Any, plan: Mapping[str, Any] | None, mesh: Any, *, reduce_dtype: Any, param_dtype: Any
) -> None:
    """Spread a model over a mesh; without one, or with a single rank, see only whether `plan` fits."""
    if mesh is not None:
        _check_axes(mesh)
    if mesh is not None and mesh.size() > 1:
        _Parallel(model, mesh, _kind(param_dtype), _kind(reduce_dtype)).apply(plan)
    elif plan is not None:
        tensor_plans.make_plan(model, plan, 1)


def whole_state(model: Any, *, head: bool) -> dict[str, Any]:
    """Weights and buffers on the CPU, whole, on the head; elsewhere an empty dictionary."""
    whole: dict[str, Any] = {}
    for name, value in model.state_dict().items():
        each = value.full_tensor() if hasattr(value, "full_tensor") else value
        if head:
            # Copied also on the CPU: what is not sharded would be trained on.
            whole[name] = each.detach().to("cpu", copy=True) if hasattr(each, "detach") else each
    return whole


class _Parallel:
    """One model being parallelised over a mesh of several ranks."""

    def __init__(self, model: Any, mesh: Any, param_dtype: Any, reduce_dtype: Any) -> None:
        sizes = dict(zip(mesh.mesh_dim_names, mesh.shape, strict=True))
        self.model = model
        self.tp = sizes.get("tp", 1)
        self.replicas = sizes.get("dp", 1)
        self.is_sharded = sizes.get("fsdp", 1) * self.replicas > 1 or param_dtype is not None
        self.mesh = _nested(mesh, with_fsdp=self.is_sharded)
        self.param_dtype, self.reduce_dtype = param_dtype, reduce_dtype
        self.kinds: dict[type, type] = {}

    def apply(self, plan: Mapping[str, Any] | None) -> None:
        """Tensor parallel first, then FSDP on the blocks, then on the root."""
        _check_new(self.model)
        is_planned = self.tp > 1 or plan is not None
        words = tensor_plans.make_plan(self.model, plan, self.tp) if is_planned else {}
        blocks = find_blocks(self.model) if self.is_sharded else []
        _check_alike(self.model, self.mesh)
        _to_device(self.model, self.mesh.device_type)
        _give_weights(self.model, self.mesh)
        before = replicas.marks(self.model)
        if self.tp > 1:
            self._split(words)
        if self.is_sharded:
            self._shard(blocks)
        if self.tp > 1 and self.is_sharded:
            # Each rank would say of each norm and each gather that it takes two collectives.
            logging.getLogger(torch_private.REDISTRIBUTION).setLevel(logging.ERROR)
        replicas.remember(before, self.kinds)

    def _split(self, plan: tensor_plans.Plan) -> None:
        from torch.distributed.tensor.parallel import parallelize_module

        if not plan:
            warnings.warn(
                f"sky.parallelize: no layer of {type(self.model).__name__} is split along tp; each "
                "rank holds all of them. plan= says which could be",
                stacklevel=5,
            )
        mesh = self.mesh["tp"]
        _give_random_state(mesh)
        modules = dict(self.model.named_modules())
        for name, word in plan.items():
            if word != "sum":
                parallelize_module(modules[name], mesh, tensor_plans.style_of(modules[name], word))
            if tensor_plans.gives_whole(word):
                modules[name].register_forward_hook(replicas.own_output)
        replicas.replicate(self.model, mesh, self.kinds)
        for name in (name for name, word in plan.items() if word == "sum"):
            modules[name]._skyward_sum = replicas.Sum(mesh)

    def _shard(self, blocks: list[Any]) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = self.mesh["dp", "fsdp"] if self.replicas > 1 else self.mesh["fsdp"]
        policy = MixedPrecisionPolicy(self.param_dtype, self.reduce_dtype)
        for module in (*blocks, self.model):
            replicas.mark(module, self.kinds)
            fully_shard(module, mesh=mesh, mp_policy=policy)


def find_blocks(model: Any) -> list[Any]:
    """The repeated blocks of a model, the outermost: each is one unit of FSDP.

    Those a Hugging Face model says not to split, else modules of one class in one list. A block that
    shares a parameter with what is outside of it is none.
    """
    from torch import nn

    there = {type(module).__name__ for module in model.modules()}
    named = there.intersection(whole_blocks(model))
    owners = _owners(model)
    blocks: list[Any] = []
    inside: set[Any] = set()
    for name, module in model.named_modules():
        if module in inside or isinstance(module, nn.ModuleList | nn.ModuleDict) or not name:
            continue
        by_name = type(module).__name__ in named
        is_repeated = not named and _is_repeated(model, name, module)
        if (by_name or is_repeated) and _has_its_own(module, owners):
            blocks.append(module)
            inside.update(module.modules())
    return blocks


def _is_repeated(model: Any, name: str, module: Any) -> bool:
    from torch import nn

    parent = model.get_submodule(name.rpartition(".")[0])
    if not isinstance(parent, nn.ModuleList | nn.Sequential) or not any(module.children()):
        return False
    return sum(type(other) is type(module) for other in parent.children()) > 1


def _owners(model: Any) -> dict[Any, set[Any]]:
    """The modules that each parameter is one of."""
    owners: dict[Any, set[Any]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, set()).add(module)
    return owners


def _has_its_own(module: Any, owners: dict[Any, set[Any]]) -> bool:
    inner = set(module.modules())
    parameters = list(module.parameters())
    return bool(parameters) and all(owners[parameter] <= inner for parameter in parameters)


# ── the mesh ────────────────────────────────────────────────────────────────────────────


def _check_axes(mesh: Any) -> None:
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(mesh, DeviceMesh):
        raise TypeError(
            f"sky.parallelize: mesh= takes a DeviceMesh of torch, not a {type(mesh).__name__}: "
            "leave it out, or make one with torch.distributed.device_mesh.init_device_mesh"
        )
    if why := other_axes(mesh.mesh_dim_names or ()):
        raise ValueError(f"sky.parallelize {why}")


def _nested(mesh: Any, *, with_fsdp: bool) -> Any:
    """The mesh with its axes in the order of `PARALLEL_AXES`; with one of size 1 for `fsdp` where it lacks.

    So `dp` alone is FSDP that splits nothing, and reduces gradients as it does.
    """
    from torch.distributed.device_mesh import DeviceMesh

    has: tuple[Any, ...] = tuple(mesh.mesh_dim_names)
    wanted = tuple(axis for axis in PARALLEL_AXES if axis in has or (axis == "fsdp" and with_fsdp))
    if wanted == has:
        return mesh
    ranks = mesh.mesh.permute([has.index(axis) for axis in wanted if axis in has])
    if "fsdp" not in has and with_fsdp:
        ranks = ranks.unsqueeze(wanted.index("fsdp"))
    return DeviceMesh(mesh.device_type, ranks.contiguous(), mesh_dim_names=wanted)


def _kind(wanted: Any) -> Any:
    if not isinstance(wanted, str):
        return wanted
    import torch

    return getattr(torch, dtype_name("sky.parallelize", wanted))


# ── the same start everywhere ───────────────────────────────────────────────────────────


def _check_new(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "placements"):
            raise ValueError(f"sky.parallelize: {name} is spread over ranks already; make it anew")
        if parameter.is_meta:
            raise ValueError(f"sky.parallelize: {name} has no values yet (it is on 'meta')")


def _check_alike(model: Any, mesh: Any) -> None:
    """Raise ValueError on all ranks where they have not the same model, instead of waiting for ever."""
    import torch.distributed as dist

    lines = [f"{name} {tuple(each.shape)} {each.dtype}" for name, each in _tensors(model)]
    everyone: list[Any] = [hashlib.sha256("\n".join(lines).encode()).hexdigest()]
    for axis in range(mesh.ndim):
        group = mesh.get_group(axis)
        found: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(found, everyone, group=group)
        everyone = [each for part in found for each in part]
    if len(set(everyone)) > 1:
        raise ValueError(
            "sky.parallelize: ranks have different models (names, shapes or types of parameters)"
        )


def _tensors(model: Any) -> list[tuple[str, Any]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _to_device(model: Any, kind: str) -> None:
    if kind == "cuda":
        import torch

        model.to(torch.device("cuda", torch.cuda.current_device()))


def _give_weights(model: Any, mesh: Any) -> None:
    """Every rank gets what the first one has, along one axis after the other."""
    import torch.distributed as dist

    for _, tensor in _tensors(model):
        whole = tensor.data.contiguous()
        for axis in range(mesh.ndim):
            dist.broadcast(whole, group=mesh.get_group(axis), group_src=0)
        tensor.data = whole


def _give_random_state(mesh: Any) -> None:
    """The ranks of this axis go on with the random numbers of its first."""
    import torch
    import torch.distributed as dist

    on_gpu = mesh.device_type == "cuda"
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if on_gpu else [])]
    dist.broadcast_object_list(states, group=mesh.get_group(), group_src=0)
    torch.set_rng_state(states[0])
    if on_gpu:
        torch.cuda.set_rng_state(states[1])
