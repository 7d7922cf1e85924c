"""Reducers for what a torch model is trained with: modules, optimizers and schedules."""

from __future__ import annotations

from typing import Any

from skyward_nb.compat import torch_models_private, torch_private


def parametrized(module: Any) -> Any:
    """A module with parametrizations, such as a normalized weight, which torch itself refuses to pickle."""
    own: Any = type(module).__base__
    if (own.__reduce_ex__, own.__reduce__) != (object.__reduce_ex__, object.__reduce__):
        return NotImplemented  # as its own class says
    names = tuple(module.parametrizations)
    return torch_models_private.make_parametrized, (own, names), own.__getstate__(module)


def schedule(schedule: Any) -> Any:
    """A learning rate schedule, whose optimizer notes its steps wherever both arrive."""
    reduced = schedule.__reduce_ex__(5)
    is_plain = isinstance(reduced, tuple) and len(reduced) == 5 and reduced[2] is not None
    if not is_plain or reduced[3:] != (None, None):
        return reduced  # in a way of its own
    given = reduced[2], torch_private.has_stepped(getattr(schedule, "optimizer", None))
    return *reduced[:2], given, None, None, _restore_schedule


def _restore_schedule(schedule: Any, given: tuple[Any, bool]) -> None:
    state, has_stepped = given
    if hasattr(schedule, "__setstate__"):
        schedule.__setstate__(state)
    else:
        own, slots = state if isinstance(state, tuple) else (state, {})
        schedule.__dict__.update(own or {})
        for name, value in slots.items():
            setattr(schedule, name, value)
    torch_private.note_steps(getattr(schedule, "optimizer", None), has_stepped=has_stepped)


def optimizer(optimizer: Any) -> Any:
    """An optimizer with all its attributes, of which torch keeps the state of its parameters alone.

    So `torch.optim.LBFGS` itself cannot go on with what `pickle` makes of it, nor can classes that keep more.
    """
    kept = torch_models_private.attributes_of_optimizer(optimizer)
    return NotImplemented if kept is None else (*optimizer.__reduce_ex__(5)[:2], kept)
