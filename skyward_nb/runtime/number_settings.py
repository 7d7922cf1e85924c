"""Settings of JAX, torch and Keras that decide the type and precision of numbers: ranks have the notebook's.

The client reads them (`as_they_are`); what is not as a rank has it goes with the next run. A rank sets it at once
(`apply`), or once the package is imported (`patch`). What a package does not know, or refuses, stays as it is.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from skyward_nb.compat import keras_private
from skyward_nb.runtime import hooks

_IF_NOT = "numbers may have another type or precision on ranks than in the notebook"


class _Setting(NamedTuple):
    """One setting of a package: its value as text, where nobody has set it, and how it is read (None: not now) and set."""

    default: str
    read: Callable[[Any], str | None]
    write: Callable[[Any, str], object]


def _of_jax(name: str, default: str, value: Callable[[str], object]) -> _Setting:
    return _Setting(
        default,
        lambda jax: str(getattr(jax.config, name)),
        lambda jax, text: jax.config.update(name, value(text)),
    )


def _policy(keras: Any) -> str | None:
    """Keras's policy of types, empty where it is none but that of its float type, which the first layer sets.

    Each thread has its own: None in another than the main one, where the user's code has set it.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    policy = keras_private.chosen_policy()
    return "" if policy == keras.config.floatx() else policy


def _set_floatx(keras: Any, text: str) -> None:
    """Set the float type, and the policy that the first layer has set of the one before."""
    is_policys = _policy(keras) == ""
    keras.config.set_floatx(text)
    if is_policys:
        keras.config.set_dtype_policy(text)


_SETTINGS: dict[tuple[str, str], _Setting] = {
    ("jax", "jax_enable_x64"): _of_jax("jax_enable_x64", "False", lambda text: text == "True"),
    ("jax", "jax_default_matmul_precision"): _of_jax(
        "jax_default_matmul_precision", "None", lambda text: None if text == "None" else text
    ),
    ("torch", "default_dtype"): _Setting(
        "float32",
        lambda torch: str(torch.get_default_dtype()).removeprefix("torch."),
        lambda torch, text: torch.set_default_dtype(getattr(torch, text)),
    ),
    ("torch", "float32_matmul_precision"): _Setting(
        "highest",
        lambda torch: str(torch.get_float32_matmul_precision()),
        lambda torch, text: torch.set_float32_matmul_precision(text),
    ),
    ("keras", "floatx"): _Setting(
        "float32",
        lambda keras: str(keras.config.floatx()),
        _set_floatx,
    ),
    ("keras", "dtype_policy"): _Setting(
        "",
        _policy,
        lambda keras, text: keras.config.set_dtype_policy(text or keras.config.floatx()),
    ),
}
DEFAULTS: Mapping[str, str] = {".".join(name): each.default for name, each in _SETTINGS.items()}
_waiting: dict[tuple[str, str], str] = {}


def as_they_are() -> dict[str, str]:
    """The settings of the packages that this process has imported, by `package.name`."""
    found: dict[str, str] = {}
    for (package, name), setting in _SETTINGS.items():
        if (module := sys.modules.get(package)) is not None:
            # It may be half imported, of another version, or, as torch, refuse to tell what was set in another way.
            with contextlib.suppress(Exception):
                if (value := setting.read(module)) is not None:
                    found[f"{package}.{name}"] = value
    return found


def apply(settings: Mapping[str, str]) -> None:
    """Have these settings, at once where the package is imported, and else once it is."""
    for name, value in settings.items():
        package, _, own = name.partition(".")
        if (package, own) in _SETTINGS:
            _waiting[package, own] = value
    for package in {package for package, _ in _waiting}:
        if (module := sys.modules.get(package)) is not None:
            _set(package, module)


def patch(module: Any, _: hooks.Changes) -> None:
    """Have what waits for this package, which was just imported."""
    _set(module.__name__, module)


def _set(package: str, module: Any) -> None:
    for each in [each for each in _waiting if each[0] == package]:
        with hooks.careful(package, _IF_NOT):
            _SETTINGS[each].write(module, _waiting.pop(each))
