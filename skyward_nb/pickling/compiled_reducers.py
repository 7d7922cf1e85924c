"""Reducers for functions and models that torch, JAX or TensorFlow made: compiled, scripted, traced, with own derivatives.

They are made again where they arrive, of what they were made of; what was compiled of them stays.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

from skyward_nb.compat import tensorflow_private
from skyward_nb.pickling.reducers import name_of


def compile_again(compiler: Callable[[Any], Any], function: Any) -> Any:
    """What `torch.compile` made of a function, as its settings make it anew."""
    return compiler(function)


def scripted(made: Any) -> Any:
    """A model or function of TorchScript, as `torch.jit.save` writes it."""
    import torch

    return _load, ("jit", _saved(torch.jit.save, made))


def exported(made: Any) -> Any:
    """A program of `torch.export`, as `torch.export.save` writes it."""
    import torch

    return _load, ("export", _saved(torch.export.save, made))


def _saved(save: Callable[[Any, Any], None], made: Any) -> bytes:
    archive = io.BytesIO()
    # That TorchScript is on its way out concerns who wrote the model, not who sends it.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        save(made, archive)
    return archive.getvalue()


def _load(of: str, archive: bytes) -> Any:
    import torch

    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        # Tensors of GPUs arrive as those of the host.
        where = {"map_location": "cpu"} if of == "jit" else {}
        return getattr(torch, of).load(io.BytesIO(archive), **where)


def tf_function(made: Any) -> Any:
    """What `tf.function` made, without the graphs that it has traced: each process traces its own."""
    return tensorflow_private.untraced(made).__reduce_ex__(5)


def jitted(function: Any) -> Any:
    """What `jax.jit` made of a function, with the attributes that JAX itself leaves: its name, what `lower` goes by."""
    if (name := _name_of(function)) is not None:
        return name
    made = function.__reduce_ex__(5)
    return *made[:2], (made[2], dict(vars(function))), None, None, _restore_jitted


def _restore_jitted(function: Any, given: tuple[dict[str, Any], dict[str, Any]]) -> None:
    state, attributes = given
    function.__setstate__(state)
    _fill(function, attributes)


def custom_vjp(made: Any) -> Any:
    """A function of JAX with a derivative of its own, which cannot be made without the function."""
    return _name_of(made) or (object.__new__, (type(made),), dict(vars(made)), None, None, _fill)


def custom_jvp(made: Any) -> Any:
    """A function of JAX with a derivative of its own, such as `jax.nn.relu`."""
    return _name_of(made) or NotImplemented


def _name_of(made: Any) -> str | None:
    """The name that a package has this under: ranks have the package's own."""
    return name_of(made, getattr(made, "__qualname__", ""))


def _fill(made: Any, state: dict[str, Any]) -> None:
    vars(made).update(state)
