"""The plugins that decorators name, of functions that a cell defines or reads: `@sky.integrations.torch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from skyward_nb.cell.source import Cell
from skyward_nb.functions.function_marks import marks_of
from skyward_nb.plugins import choices
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.runtime.function_calls import raw_of
from skyward_nb.words.errors import OptionError


def _keras(
    *, backend: choices.KerasBackend | None = None, seed: int | None = None, average: bool = True
) -> PluginChoice:
    """What the decorator needs of a pool; the rest it does itself, where the function runs."""
    choices.keras(seed=seed, average=average)
    return choices.keras(backend=backend)


_CHOICES: dict[str, Callable[..., PluginChoice]] = choices.OF_FRAMEWORKS | {"keras": _keras}


def plugins_of(cell: Cell, names: Mapping[str, Any]) -> tuple[PluginChoice, ...]:
    """Those of functions among the notebook's `names` that a cell reads, then of the cell's own."""
    found: dict[PluginChoice, None] = {}
    for name in sorted(cell.names.reads):
        # Nothing else is asked: a value may run code for that.
        function = raw_of(names[name]) if name in names else None
        if isinstance(function, FunctionType):
            found |= dict.fromkeys(marks_of(function).uses)
    for name, arguments in cell.integrations:
        # What it does not take is for the cell to raise, at its own line.
        if (choose := _CHOICES.get(name)) is not None:
            try:
                found[choose(**arguments)] = None
            except (TypeError, OptionError):
                continue
    return tuple(found)
