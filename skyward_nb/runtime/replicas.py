"""Modules of a model that was parallelised: what all of a tensor-parallel group hold, and the way home.

A parameter that is not split along `tp` is a `DTensor` all the same, so that optimizers, clipping of
gradients and checkpoints see parameters of one kind; the module that owns it gets it as a plain
tensor. A module packed to go home leaves behind what binds it to its ranks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from skyward_nb.compat.torch_models_private import holds_hooks

_ADDED = "_skyward_added"


class Added(NamedTuple):
    """The class that a module had, and names of attributes that it had not."""

    kind: type
    names: frozenset[str]


class Parallelized:
    """Mixed into the class of a module; what it adds to one is its parameters as its code expects them."""

    _skyward_whole: frozenset[str] = frozenset()
    """Names of parameters that all ranks hold."""
    _skyward_sum: Callable[[Any], Any] | None = None
    """Sums their gradients over ranks, where this module sees only a part of what they act on."""

    def __getattr__(self, name: str) -> Any:
        """A parameter that all ranks hold as a plain tensor, anything else as torch has it."""
        found = super().__getattr__(name)  # pyright: ignore[reportAttributeAccessIssue]
        if name not in self._skyward_whole or not _is_replica(found):
            return found
        local = found.to_local()
        if self._skyward_sum is not None and local.requires_grad:
            local.register_hook(self._skyward_sum)
        return local

    def __deepcopy__(self, memo: object) -> Any:
        """There is none: hooks of the copy would be those of the original."""
        raise TypeError(
            "a parallelised model is not copied; make it anew, and load sky.full_state(model)"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The module as it was before, with the parameters it has now."""
        added: Added | None = self.__dict__.get(_ADDED)
        if added is None:
            return super().__reduce_ex__(protocol)
        if hasattr(self, "reshard"):  # FSDP: else parameters in use would be sent
            self.reshard()
        state = {
            name: _own_hooks(value) if holds_hooks(name) else value
            for name, value in self.__dict__.items()
            if str(name) not in added.names
        }
        return _make, (added.kind,), state


class Sum:
    """Sums a gradient over the ranks of a mesh of one axis."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh

    def __call__(self, gradient: Any) -> Any:
        """The sum; collective."""
        import torch.distributed as dist

        whole = gradient.clone()
        dist.all_reduce(whole, group=self.mesh.get_group())
        return whole


def own_output(module: Any, inputs: Any, output: Any) -> Any:
    """A forward hook for a layer whose output a collective made: that output as no view of another.

    FSDP hangs its work for the backward pass on what a module gives, and loses it when a view is
    changed in place, as `logits /= temperature` does. Nobody else holds the memory.
    """
    del module, inputs
    return _owner().apply(output)


@functools.cache
def _owner() -> Any:
    from torch import Tensor, autograd

    class Owned(autograd.Function):
        @staticmethod
        def forward(ctx: Any, output: Any) -> Any:
            del ctx
            whole = output.wait() if hasattr(output, "wait") else output
            return Tensor.new_empty(whole, 0).set_(whole)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            del ctx
            return gradients[0]

    return Owned


def _make(kind: Any) -> Any:
    return kind.__new__(kind)


def _own_hooks(hooks: Any) -> Any:
    """Hooks but for those of the distribution, some of which come only with the first forward."""
    if not isinstance(hooks, dict):
        return hooks
    return type(hooks)((key, hook) for key, hook in hooks.items() if not _is_of_distribution(hook))


def _is_of_distribution(hook: Any) -> bool:
    hook = getattr(hook, "hook", hook)  # as torch wraps those that it gives the module
    module = getattr(getattr(hook, "func", hook), "__module__", None) or ""
    return module.startswith("torch.distributed.") or module == __name__


def _is_replica(value: Any) -> bool:
    """Whether this is a parameter that the ranks of one axis hold alike, and no other axis splits."""
    placements = getattr(value, "placements", None)
    return placements is not None and len(placements) == 1 and placements[0].is_replicate()


def mark(module: Any, kinds: dict[type, type]) -> None:
    """Mix `Parallelized` into a module's class; `kinds` are those that were made for this model."""
    kind: type = type(module)
    if issubclass(kind, Parallelized):
        return
    if kind not in kinds:
        own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        kinds[kind] = type(kind.__name__, (Parallelized, kind), own)
    module.__class__ = kinds[kind]


def replicate(model: Any, mesh: Any, kinds: dict[type, type]) -> None:
    """Make every parameter that is not spread over `mesh` one that all its ranks hold.

    Recurrent layers of torch keep their weights in a list of their own, and stay as they are.
    """
    from torch import nn
    from torch.distributed.tensor import DTensor, Replicate

    made: dict[Any, Any] = {}
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            continue
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if isinstance(parameter, DTensor):
                continue
            if parameter not in made:
                whole = DTensor.from_local(parameter.data, mesh, [Replicate()], run_check=False)
                made[parameter] = nn.Parameter(whole, requires_grad=parameter.requires_grad)
            mark(module, kinds)
            module.register_parameter(name, made[parameter])
            module._skyward_whole |= {name}


def marks(model: Any) -> dict[Any, Added]:
    """What modules are and have before they are parallelised."""
    return {
        module: Added(type(module), frozenset(map(str, vars(module)))) for module in model.modules()
    }


def remember(before: dict[Any, Added], kinds: dict[type, type]) -> None:
    """Note on each module what was added to it since."""
    for module, was in before.items():
        added = frozenset(map(str, vars(module))) - was.names
        hooks = (each for name, each in vars(module).items() if holds_hooks(name))
        has_hooks = any(
            map(_is_of_distribution, itertools.chain(*(h.values() for h in hooks if h)))
        )
        if type(module) is not was.kind or added or has_hooks:
            mark(module, kinds)
            vars(module)[_ADDED] = Added(was.kind, added | {_ADDED})
