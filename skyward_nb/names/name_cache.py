"""What earlier plans found of each name, so that later ones need not look again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from skyward_nb.names.pack_cache import PackCache
from skyward_nb.names.unit import Unit
from skyward_nb.pickling.definitions import is_label


@dataclass
class NameCache:
    """Of each name ids of its objects, and its value, held weakly; and what was packed.

    Ids outlive their objects, so they are hints. `ages` orders labels by when they were sent.
    """

    objects: dict[str, frozenset[int]] = field(default_factory=dict)
    values: dict[str, Callable[[], object]] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)
    packed: PackCache = field(default_factory=PackCache)

    def remember(self, units: Iterable[Unit]) -> None:
        """Keep what later plans want to know of the units just planned."""
        for unit in units:
            for label, value in zip(unit.labels, unit.values, strict=True):
                self.ages.setdefault(label, len(self.ages))
                if unit.whole.pickler is not None and len(unit.labels) == 1:
                    self.packed.keep(label, value, unit.whole)
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


def _nothing() -> object:
    """No value: one that cannot be held weakly is not recognized under another name."""
    return _nothing
