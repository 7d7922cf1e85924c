"""Results of earlier plans for each name, so that later plans need neither examine nor pack it again.

Two kinds of values are known to be unchanged at a glance: a function of the notebook that is made of
constants, by its parts; and a name whose value is a constant, or travels as a mere reference (a module,
an object in a module, a definition of the notebook). The cache keeps only constants alive.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from skyward_nb.names.unit import Unit
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
    """A bundle and its value; for a definition, also the value's parts."""

    whole: Bundle
    value_of: Callable[[], object]
    parts: tuple[object, ...] = ()


@dataclass
class NameCache:
    """The ids of each name's objects, its value, held weakly, and the bundles of earlier plans.

    Ids may be reused, so they are hints. `ages` orders labels by the times they were sent.
    """

    objects: dict[str, frozenset[int]] = field(default_factory=dict)
    values: dict[str, Callable[[], object]] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)
    packed: dict[str, _Before] = field(default_factory=dict)

    def remember(self, units: Iterable[Unit]) -> None:
        """Keep what later plans need to know of the units just planned."""
        for unit in units:
            for label, value in zip(unit.labels, unit.values, strict=True):
                self.ages.setdefault(label, len(self.ages))
                if unit.whole.pickler is not None and len(unit.labels) == 1:
                    self.keep(label, value, unit.whole)
                if not is_label(label):
                    self._remember_name(label, value, unit)

    def _remember_name(self, name: str, value: object, unit: Unit) -> None:
        try:
            self.values[name] = weakref.ref(value)
        except TypeError:
            self.values[name] = _nothing
        if unit.whole.is_large:
            return
        if objects := unit.list_objects():
            self.objects[name] = frozenset(objects)
        else:
            self.objects.pop(name, None)

    # ── bundles ─────────────────────────────────────────────────────────────────────────

    def find(self, label: str, value: object) -> Bundle | None:
        """The bundle of this value, if it was packed under this label and has not changed."""
        before = self.packed.get(label)
        if before is None or before.value_of() is not value:
            return None
        if is_label(label):
            assert isinstance(value, types.FunctionType)
            return before.whole if is_made_of(value, before.parts) else None
        if _is_constant(value):
            return before.whole
        if not _is_reference(value):
            return None  # its module has another object under that name by now
        if is_definition(value):
            return replace(before.whole, definitions={label_of(value): value})
        return before.whole

    def keep(self, label: str, value: object, whole: Bundle) -> None:
        """Keep the bundle of a value whose changes can be noticed."""
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
        # Without its pickler and its definitions, which would keep objects alive.
        self.packed[label] = _Before(replace(whole, pickler=None, definitions={}), held, parts)

    def forget(self, label: str) -> None:
        """Remove a label."""
        self.packed.pop(label, None)


def _is_constant(value: object) -> bool:
    if type(value) in (str, bytes):
        return len(value) < _SHORT  # type: ignore[arg-type]
    return type(value) in _NUMBERS


def _is_reference(value: object) -> bool:
    """Whether it is packed as a mere reference."""
    if type(value) is types.ModuleType:
        return is_importable(value)
    if type(value) is types.FunctionType or issubclass(type(value), type):
        assert isinstance(value, types.FunctionType | type)
        return is_definition(value) or is_importable(value)
    return False


def _nothing() -> object:
    """Stands for a value that cannot be held weakly: it is not recognized under another name."""
    return _nothing
