"""Decorators that ready a framework for a function, `sky.integrations`: what plugins of a pool do, too.

Each stands above or below `@sky.function`, or on a function that a cell calls, with brackets or without, and
takes what the plugin of its name takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, overload

from skyward_nb.functions.function_marks import run_within, used_by
from skyward_nb.plugins import choices
from skyward_nb.plugins.choices import Backend, KerasBackend, PluginChoice
from skyward_nb.runtime import keras_settings

__all__ = ["huggingface", "jax", "keras", "tensorflow", "torch", "transformers"]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def torch(fn: F, /) -> F: ...
@overload
def torch(
    *, backend: Backend | None = "auto", timeout: float | str | timedelta | None = None
) -> Callable[[F], F]: ...
def torch(
    fn: Any = None,
    /,
    *,
    backend: Backend | None = "auto",
    timeout: float | str | timedelta | None = None,
) -> Any:
    """Have PyTorch's process group there when the function starts, as `sky.plugins.torch` does."""
    return _decorate(fn, "torch", choices.torch(backend=backend, timeout=timeout))


@overload
def jax(fn: F, /) -> F: ...
@overload
def jax() -> Callable[[F], F]: ...
def jax(fn: Any = None, /) -> Any:
    """Have the devices of all nodes form one set when the function starts, as `sky.plugins.jax` does."""
    return _decorate(fn, "jax", choices.jax())


@overload
def keras(fn: F, /) -> F: ...
@overload
def keras(
    *, backend: KerasBackend | None = None, seed: int | None = None, average: bool = True
) -> Callable[[F], F]: ...
def keras(
    fn: Any = None,
    /,
    *,
    backend: KerasBackend | None = None,
    seed: int | None = None,
    average: bool = True,
) -> Any:
    """Have Keras there on its backend when the function starts, as `sky.plugins.keras` does.

    With a `seed`, each call begins with it, on all ranks alike.
    """
    choices.keras(backend=backend, seed=seed, average=average)
    choice = choices.keras(backend=backend)
    if seed is None and average:
        return _decorate(fn, "keras", choice)

    def mark(fn: F) -> F:
        enter = functools.partial(keras_settings.during, seed, average)
        return run_within(used_by(fn, "integrations.keras()", choice), "integrations.keras", enter)

    return mark if fn is None else mark(fn)


@overload
def tensorflow(fn: F, /) -> F: ...
@overload
def tensorflow() -> Callable[[F], F]: ...
def tensorflow(fn: Any = None, /) -> Any:
    """Have TensorFlow's cluster there when the function starts, as `sky.plugins.tensorflow` does."""
    return _decorate(fn, "tensorflow", choices.tensorflow())


@overload
def huggingface(fn: F, /) -> F: ...
@overload
def huggingface(
    *, token: str | None = None, backend: Backend | None = "auto"
) -> Callable[[F], F]: ...
def huggingface(
    fn: Any = None, /, *, token: str | None = None, backend: Backend | None = "auto"
) -> Any:
    """Have `Trainer` and `Accelerator` see the process group, as `sky.plugins.huggingface` does."""
    return _decorate(fn, "huggingface", choices.huggingface(token=token, backend=backend))


@overload
def transformers(fn: F, /) -> F: ...
@overload
def transformers(
    *, token: str | None = None, backend: Backend | None = "auto"
) -> Callable[[F], F]: ...
def transformers(
    fn: Any = None, /, *, token: str | None = None, backend: Backend | None = "auto"
) -> Any:
    """`huggingface`, by the name of its first package."""
    return _decorate(fn, "transformers", choices.transformers(token=token, backend=backend))


def _decorate(fn: Any, name: str, choice: PluginChoice) -> Any:
    """The function that is marked, or where it has not come yet, what marks it."""
    if fn is not None:
        return used_by(fn, f"integrations.{name}", choice)
    return lambda later: used_by(later, f"integrations.{name}()", choice)
