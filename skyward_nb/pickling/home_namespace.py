"""The namespace that code of the notebook belongs to: the kernel's own, or a rank's."""

from __future__ import annotations

import importlib
from typing import Any

_home: dict[str, Any] = {}


def set_home(namespace: dict[str, Any]) -> None:
    """Say which namespace functions of the notebook belong to in this process."""
    global _home
    _home = namespace


def home() -> dict[str, Any]:
    """The namespace functions of the notebook are rebuilt against."""
    return _home


class Home:
    """Stands for the home namespace in a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return home, ()


class ModuleNames:
    """Stands for the names of a module in a pickle."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return names_of, (self._module,)


def names_of(module: str) -> dict[str, Any]:
    """The names of a module, which is imported if need be."""
    return vars(importlib.import_module(module))
