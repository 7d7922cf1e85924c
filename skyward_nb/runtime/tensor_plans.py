"""Which layer is split how along `tp`: a model's own plan, one that is made for it, or a person's.

A plan is a word for each layer, by its full name. What it does not name is held by every rank:
`colwise` splits the output and leaves it split, `rowwise` takes an input that is split, `gather` is
`colwise` with the output put together again, `split` is `rowwise` with an input that is whole, and
`sum` stands for a layer that is whole and sees only this rank's part, so that its gradients are summed.
The last three are right whatever stands between two layers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from skyward_nb.compat.transformers_private import tensor_plan
from skyward_nb.runtime.plan_words import WORDS, near_name, unknown_word

Plan = dict[str, Any]
"""A word, or torch's own `ParallelStyle`, by a layer's full name."""

_THEIRS = {
    "colwise": "colwise",
    "rowwise": "rowwise",
    "colwise_rep": "gather",
    "colwise_gather_output": "gather",
    "rowwise_rep": "split",
    "rowwise_split_input": "split",
    "embedding_rowwise": "split",
    "packed_colwise": "gather",
    "replicate": "replicate",
    "replicated_with_grad_allreduce": "sum",
}
"""What Hugging Face calls them; a packed layer is no longer split where its parts are taken apart."""

_ALONE = {"colwise": "gather", "rowwise": "split", "sum": "replicate"}
"""The word that needs nothing of its neighbours."""

_HEADS = (
    "num_attention_heads",
    "num_key_value_heads",
    "linear_num_key_heads",
    "linear_num_value_heads",
)

_FUNCTIONS = (
    "relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "selu", "mish", "hardswish",
    "relu6", "softplus",
)  # fmt: skip
_LAYERS = frozenset((
    "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "LeakyReLU", "ELU", "SELU", "CELU", "Mish",
    "Hardswish", "Hardtanh", "Hardsigmoid", "ReLU6", "Softplus", "Softsign", "LogSigmoid",
    "Tanhshrink", "Softshrink", "Hardshrink", "Identity", "Dropout",
))  # fmt: skip
"""Elementwise functions: each number is computed from one number."""


def make_plan(model: Any, wanted: Mapping[str, Any] | None, size: int) -> Plan:
    """The plan for a model to be split in `size` parts: what is `wanted`, else its own, else one made.

    Raises ValueError for a name or word that there is not, and for a layer that cannot be split.
    """
    if wanted is not None:
        return _from_person(model, wanted, size)
    theirs = tensor_plan(model)
    return (_from_model(model, theirs, size) if theirs else None) or _made(model, size)


def shared_modules(model: Any) -> set[str]:
    """Names of modules that are there under another name, too, or share a parameter with one."""
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        owners.setdefault(id(module), []).append(name)
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(name)
    return {name for names in owners.values() if len(names) > 1 for name in names}


# ── a plan that is made ─────────────────────────────────────────────────────────────────


def _made(model: Any, size: int) -> Plan:
    """Pairs where it is known what stands between them, every other Linear by itself."""
    from torch import nn

    shared = shared_modules(model)
    plain = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and name not in shared
    }
    plan: Plan = {}
    for first, second in _pairs(model):
        if first in plain and second in plain and plain[first].out_features % size == 0:
            plan |= {first: "colwise", second: "rowwise"}
    for name, module in plain.items():
        if name not in plan and module.out_features % size == 0:
            plan[name] = "gather"
    return plan


def _pairs(model: Any) -> Iterator[tuple[str, str]]:
    """Names of two Linears between which nothing mixes what ranks have apart."""
    from torch import nn

    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if type(module) in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
            if _is_elementwise(module.activation):
                yield f"{prefix}linear1", f"{prefix}linear2"
        elif type(module) is nn.Sequential:
            yield from (
                (f"{prefix}{a}", f"{prefix}{b}") for a, b in _pairs_in(module.named_children())
            )


def _pairs_in(children: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    from torch import nn

    first: str | None = None
    for name, child in children:
        if type(child) is nn.Linear:
            if first is not None:
                yield first, name
                first = None
            else:
                first = name
        elif not _is_elementwise(child):
            first = None


def _is_elementwise(what: Any) -> bool:
    from torch import nn
    from torch.nn import functional

    functions = (getattr(functional, name) for name in _FUNCTIONS)
    is_layer = any(type(what) is getattr(nn, name) for name in _LAYERS)
    return is_layer or any(what is each for each in functions)


# ── the plan a model brings ─────────────────────────────────────────────────────────────


def _from_model(model: Any, theirs: Mapping[str, str], size: int) -> Plan | None:
    """A Hugging Face model's own plan; None where its heads cannot be dealt out evenly."""
    if (why := _uneven_heads(model, size)) is not None:
        warnings.warn(
            f"sky.parallelize: {why} cannot be split by tp={size}, so the model's own plan is not "
            "used: each Linear is split by itself",
            stacklevel=6,
        )
        return None
    shared = shared_modules(model)
    modules = dict(model.named_modules())
    plan: Plan = {}
    unknown: list[str] = []
    for pattern, style in theirs.items():
        names = _matches(pattern, modules)
        for name in names:
            word = _THEIRS.get(style)
            is_fit = name not in shared and fits(modules[name], word, size)
            plan[name] = word if is_fit else None if word in _ALONE else "replicate"
        if style not in _THEIRS or not names:
            unknown.append(pattern)
            plan |= dict.fromkeys(names or _parameters(pattern, modules))
    _leave_neighbours_alone(plan)
    if unknown:
        warnings.warn(
            f"sky.parallelize: each rank of tp holds all of {', '.join(unknown)}: the model's "
            "plan for them works in Transformers only",
            stacklevel=6,
        )
    return {
        name: word
        for name, word in plan.items()
        if word not in (None, "replicate") and fits(modules[name], word, size)
    }


def _parameters(pattern: str, modules: Mapping[str, Any]) -> list[str]:
    """The parameters of modules that a pattern names, if it names no layer."""
    parent, _, last = pattern.rpartition(".")
    return [f"{name}.{last}" for name in _matches(parent, modules)]


def _leave_neighbours_alone(plan: Plan) -> None:
    """Where one layer stays whole that would be split, what is beside it takes and gives wholes."""
    for lost in [name for name, word in plan.items() if word is None]:
        beside = lost.rpartition(".")[0] + "."
        for name, word in plan.items():
            if name.startswith(beside):
                plan[name] = _ALONE.get(word, word)


def _uneven_heads(model: Any, size: int) -> str | None:
    config: Any = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    for name in _HEADS:
        count = getattr(config, name, None)
        if isinstance(count, int) and count % size:
            return f"{name}={count}"
    return None


# ── a plan that a person gives ──────────────────────────────────────────────────────────


def _from_person(model: Any, wanted: Mapping[str, Any], size: int) -> Plan:
    """Patterns as names; what comes later in it goes before."""
    modules = dict(model.named_modules())
    plan: Plan = {}
    for pattern, style in wanted.items():
        names = _matches(pattern, modules)
        if not names:
            near = near_name(pattern, filter(None, modules))
            raise ValueError(f"sky.parallelize: no layer is named {pattern!r}{near}")
        if isinstance(style, str) and style not in WORDS:
            raise unknown_word(pattern, style, "ParallelStyle of torch.distributed.tensor.parallel")
        plan |= dict.fromkeys(names, style)
    shared = shared_modules(model)
    for name, style in plan.items():
        _check(name, modules[name], style, size, is_shared=name in shared)
    return {name: style for name, style in plan.items() if style != "replicate"}


def _check(name: str, module: Any, style: Any, size: int, *, is_shared: bool) -> None:
    if style == "replicate" or not isinstance(style, str):
        return
    if is_shared:
        raise ValueError(
            f"sky.parallelize: {name} shares its weight with another layer, so it is not split"
        )
    if not fits(module, style, size):
        raise ValueError(
            f"sky.parallelize: {name} cannot be {style} with tp={size}: {module} is not a Linear or "
            "Embedding whose size is a multiple of that"
        )


def _matches(pattern: str, modules: Mapping[str, Any]) -> list[str]:
    """Names that fit, a `*` for one part between dots."""
    parts = pattern.split(".")
    return [
        name
        for name in modules
        if name.count(".") == len(parts) - 1 and all(map(fnmatchcase, name.split("."), parts))
    ]


# ── what torch makes of a word ──────────────────────────────────────────────────────────


def fits(module: Any, word: Any, size: int) -> bool:
    """Whether a layer can be split as a word says, into equal parts."""
    from torch import nn

    if word in (None, "replicate", "sum"):
        return True
    if isinstance(module, nn.Embedding):
        along = module.num_embeddings if word in ("rowwise", "split") else module.embedding_dim
    elif isinstance(module, nn.Linear):
        along = module.in_features if word in ("rowwise", "split") else module.out_features
    else:
        return False
    return along % size == 0 and all(p.is_floating_point() for p in module.parameters())


def style_of(module: Any, word: Any) -> Any:
    """The `ParallelStyle` that a word means for a layer; one that is a style already stays so."""
    from torch import nn
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    if not isinstance(word, str):
        return word
    if word == "gather":
        return ColwiseParallel(output_layouts=Replicate())
    if word == "colwise":
        return ColwiseParallel()
    if word == "split" or isinstance(module, nn.Embedding):
        return RowwiseParallel(input_layouts=Replicate())
    return RowwiseParallel()


def gives_whole(word: Any) -> bool:
    """Whether what a layer gives is made by a collective, the same on all ranks."""
    return word in ("gather", "split", "rowwise")
