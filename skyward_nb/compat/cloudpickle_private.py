"""cloudpickle's private names: how it takes functions and classes apart, and makes them again.

They are bound once, as some are asked for each value. Some stand in pickles, too, under the name that
cloudpickle has for them: both ends need them. Where one is missing this module is not imported, and
nothing can be sent: AttributeError says which.

Seen with cloudpickle 3.1.0 and 3.1.2.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _inside

is_by_reference: Callable[[Any], bool] = _inside._should_pickle_by_reference
"""Whether a function, class or module is found by its name where it arrives."""
by_value_modules: set[str] = _inside._PICKLE_BY_VALUE_MODULES
"""Modules of which a person has said that what is in them travels by value."""

# ── functions ───────────────────────────────────────────────────────────────────────────

take_function_apart: Callable[[Any, types.FunctionType], Any] = (
    cloudpickle.Pickler._dynamic_function_reduce
)
"""The pickler's method for a function that travels by value."""
make_function: Callable[..., types.FunctionType] = _inside._make_function
"""Of code, globals, name, defaults and the cells it closes over."""
fill_function: Callable[..., Any] = _inside._function_setstate
"""Gives a function that was made its `(attributes, slots)`."""
SUBMODULES = "_cloudpickle_submodules"
"""The slot by which `fill_function` knows modules to be imported."""
submodules_used: Callable[[types.CodeType, list[types.ModuleType]], Any] = (
    _inside._find_imported_submodules
)
"""Modules within these modules that code names."""
globals_read: Callable[[types.CodeType], Any] = _inside._extract_code_globals
"""Names of globals that code reads or writes."""
cell_contents: Callable[[types.CellType], Any] = _inside._get_cell_contents
"""The content of a closure's cell; a marker of cloudpickle if it is empty."""
make_cell: Callable[[], types.CellType] = _inside._make_empty_cell
"""A variable to be closed over, with nothing in it."""

# ── classes ─────────────────────────────────────────────────────────────────────────────

take_class_apart: Callable[[type], Any] = _inside._class_reduce
"""What makes it, with which arguments, and its `(attributes, slots)`, among six; or a name of it."""
make_class: Callable[..., type] = _inside._make_skeleton_class
"""Makes a class without its attributes; the arguments are kind, name, bases, keywords …"""
fill_class: Callable[[type, Any], type] = _inside._class_setstate
"""Gives a class that was made its `(attributes, slots)`."""
class_id: Callable[[type], str] = _inside._get_or_create_tracker_id
"""By which a class that travels by value is known to be the same one, here and where it arrives."""
