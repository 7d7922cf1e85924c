"""What was packed for an earlier run and cannot have changed since, so that it need not be again.

Two things are told at a glance: a function of the notebook that is made of constants, by its parts;
and a name whose value is a constant, or travels as a mere reference: a module, what is in one, a
definition of the notebook. Who holds a value here never keeps it alive but for constants.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace

from skyward_nb.pickling.definitions import (
    is_constant,
    is_definition,
    is_importable,
    is_label,
    is_made_of,
    label_of,
    parts_of,
)
from skyward_nb.pickling.payload import Bundle

_NUMBERS = (int, float, complex, bool, type(None))
_SHORT = 1000


@dataclass(frozen=True)
class _Before:
    """A bundle, what it was packed of, and of a definition the parts."""

    whole: Bundle
    value_of: Callable[[], object]
    parts: tuple[object, ...] = ()


class PackCache:
    """Bundles by the label of what is in them."""

    def __init__(self) -> None:
        self._of: dict[str, _Before] = {}

    def find(self, label: str, value: object) -> Bundle | None:
        """The bundle of this value, if it was packed under this label and is what it was."""
        before = self._of.get(label)
        if before is None or before.value_of() is not value:
            return None
        if is_label(label):
            assert isinstance(value, types.FunctionType)
            return before.whole if is_made_of(value, before.parts) else None
        if _is_constant(value):
            return before.whole
        if not _is_reference(value):
            return None  # any more: its module has something else by now
        if is_definition(value):
            return replace(before.whole, definitions={label_of(value): value})
        return before.whole

    def keep(self, label: str, value: object, whole: Bundle) -> None:
        """Keep the bundle of a value, if it can be told whether that has changed."""
        parts: tuple[object, ...] = ()
        if is_label(label):
            if type(value) is not types.FunctionType or whole.definitions:
                return
            assert isinstance(value, types.FunctionType)
            if not is_constant(value):
                return
            parts = parts_of(value)
        elif not (_is_constant(value) or _is_reference(value)):
            return
        held: Callable[[], object] = (lambda: value) if _is_constant(value) else weakref.ref(value)
        # Without its pickler, which holds all objects that it came across, and what it refers to.
        self._of[label] = _Before(replace(whole, pickler=None, definitions={}), held, parts)

    def forget(self, label: str) -> None:
        """There will be no such label any more."""
        self._of.pop(label, None)


def _is_constant(value: object) -> bool:
    if type(value) in (str, bytes):
        return len(value) < _SHORT  # type: ignore[arg-type]
    return type(value) in _NUMBERS


def _is_reference(value: object) -> bool:
    """Whether all that is packed of it is where it is found."""
    if type(value) is types.ModuleType:
        return is_importable(value)
    if type(value) is types.FunctionType or issubclass(type(value), type):
        assert isinstance(value, types.FunctionType | type)
        return is_definition(value) or is_importable(value)
    return False
