"""Frameworks as values, `sky.plugins`: for a pool's `plugins=[...]`, and for decorators of functions.

Each states in Python what an option line states in words. Nothing of a framework is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from skyward_nb.runtime.keras_settings import AVERAGE, SEED, variables
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import FRAMEWORKS
from skyward_nb.words.masking import MASK, is_secret
from skyward_nb.words.mig import parse_mig
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.units import near_words, read_duration

Backend = Literal["auto", "gloo", "nccl"]
KerasBackend = Literal["jax", "torch", "tensorflow"]

OF_JOBS = ("joblib", "sklearn")
"""Names of choices that hand jobs to ranks, and prepare nothing there."""
_BACKENDS = ("auto", "gloo", "nccl")
_TOKEN = "HF_TOKEN"  # noqa: S105 - the variable's name
_ARGUMENTS = {"collective_timeout": "timeout", "mig": "profile"}


class PluginChoice(msgspec.Struct, frozen=True):
    """A plugin that is asked for: its `word`, and the `options` of the pool that go with it."""

    word: str
    options: PoolOptions = PoolOptions()

    def __repr__(self) -> str:
        name, _, variant = self.word.partition(":")
        arguments = [f"backend={variant!r}"] if variant else []
        for option in self.options.stated:
            value = getattr(self.options, option)
            if option == "env":
                arguments += [_as_given(n, v) for n, v in value.items()]
            else:
                arguments.append(f"{_ARGUMENTS.get(option, option)}={value!r}")
        return f"sky.plugins.{name}({', '.join(arguments)})"


def torch(
    *, backend: Backend | None = "auto", timeout: float | str | timedelta | None = None
) -> PluginChoice:
    """PyTorch: code starts with a process group over all ranks, and each rank has its device.

    `backend` auto is NCCL on GPUs and gloo on CPU; the `timeout` of a collective is in seconds, or written
    `"30m"`; without one it is torch's. Raises `OptionError` for other values.
    """
    seconds = UNSET if timeout is None else _seconds(timeout)
    return PluginChoice("torch", _of_backend(backend).changed(collective_timeout=seconds))


def jax() -> PluginChoice:
    """JAX: code starts with the devices of all nodes as one set."""
    return PluginChoice("jax")


def keras(
    *, backend: KerasBackend | None = None, seed: int | None = None, average: bool = True
) -> PluginChoice:
    """Keras 3 on a `backend`, which is made ready, too; without one, on a framework of the pool.

    `fit` trains one model over the ranks that call it together: on JAX on all devices, on torch and
    TensorFlow by the mean of their gradients, unless `average` is False, and each trains a model by itself. There,
    `evaluate` and `predict` outside `fit` are of the rows of the rank that calls them. All ranks begin with the same `seed`. Raises `OptionError` for a backend that Keras does not have, and what is no seed.
    """
    given: tuple[Any, Any] = seed, average
    is_number = isinstance(given[0], int) and not isinstance(given[0], bool)
    if seed is not None and not (is_number and 0 <= seed < 1 << 32):
        raise OptionError("seed", f"seed={seed!r}: give a whole number from 0 to {(1 << 32) - 1}")
    if not isinstance(given[1], bool):
        raise OptionError("average", f"average={average!r}: write True or False")
    stated = variables(seed, average=average)
    options = PoolOptions(env=stated or UNSET)
    if backend is None:
        return PluginChoice("keras", options)
    known = next(each.variants for each in FRAMEWORKS if each.name == "keras")
    return PluginChoice(f"keras:{_one_of('backend', backend, known)}", options)


def tensorflow() -> PluginChoice:
    """TensorFlow: `MultiWorkerMirroredStrategy()` joins all ranks, without arguments."""
    return PluginChoice("tensorflow")


def huggingface(*, token: str | None = None, backend: Backend | None = "auto") -> PluginChoice:
    """Hugging Face on PyTorch: `Trainer` and `Accelerator` see the process group.

    `token` is the ranks' `HF_TOKEN`; without one, that of this machine. `backend` is torch's.
    """
    env = UNSET if token is None else {_TOKEN: _text("token", token)}
    return PluginChoice("huggingface", _of_backend(backend).changed(env=env))


def transformers(*, token: str | None = None, backend: Backend | None = "auto") -> PluginChoice:
    """`huggingface`, by the name of its first package."""
    return huggingface(token=token, backend=backend)


def joblib() -> PluginChoice:
    """joblib: within `with sky.Compute(...)`, in its thread, jobs of `joblib.Parallel` run on the ranks, which need joblib, too."""
    return PluginChoice("joblib")


def sklearn() -> PluginChoice:
    """scikit-learn: `n_jobs=` of its estimators and searches runs on the ranks, as joblib's jobs do."""
    return PluginChoice("sklearn")


def mig(profile: str, *, partition: bool = False) -> PluginChoice:
    """A rank for each slice of a GPU, cut by MIG to a `profile` such as `3g.40gb`.

    With `partition`, idle GPUs are cut into such slices for as long as the pool lives. Raises
    `OptionError` for what is no profile.
    """
    name = parse_mig(_text("profile", profile))
    if name is None:
        raise OptionError("mig", "sky.plugins.mig takes a profile such as '3g.40gb'")
    return PluginChoice("mig", PoolOptions(mig=name, partition=partition or UNSET))


OF_FRAMEWORKS: dict[str, Callable[..., PluginChoice]] = {
    each.__name__: each for each in (torch, jax, keras, tensorflow, huggingface, transformers)
}
"""The functions for frameworks, by the names that `sky.plugins` and `sky.integrations` have for them."""
WITHOUT_ARGUMENTS = (*OF_FRAMEWORKS.values(), joblib, sklearn)
"""Those that need no argument, and so may be written without brackets."""


def _of_backend(backend: Any) -> PoolOptions:
    chosen = _one_of("backend", "auto" if backend is None else backend, _BACKENDS)
    return PoolOptions(backend=UNSET if chosen == "auto" else chosen)


def _one_of(option: str, value: Any, known: Iterable[str]) -> str:
    names = tuple(known)
    if value not in names:
        near = near_words(value, names) if isinstance(value, str) else ""
        raise OptionError(option, f"{option}={value!r}: choose one of {', '.join(names)}{near}")
    return value


def _seconds(timeout: Any) -> float:
    if isinstance(timeout, str):
        return read_duration("timeout", timeout)
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        raise OptionError("timeout", f"timeout={timeout!r}: give seconds, or a time such as '30m'")
    return float(seconds)


def _text(option: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise OptionError(option, f"{option}= takes a text, not {type(value).__name__}")
    return value


def _as_given(variable: str, value: str) -> str:
    """The argument that a variable of the ranks came from."""
    if variable == AVERAGE:
        return "average=False"
    if variable == SEED:
        return f"seed={value}"
    return f"token={MASK if is_secret(variable) else repr(value)}"
