"""What ranks have under one label: a name's, or a definition's."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import Any

from skyward_nb.names.unit import ContentMark, Unit


@dataclass
class Entry:
    """The state of one label."""

    marks: dict[int, ContentMark] = field(default_factory=dict[int, ContentMark])
    """The mark of each rank."""
    digest: str = ""
    """The digest of the bytes sent last."""
    is_assigned: bool = False
    """Whether ranks have a newer value than the notebook."""
    owners: set[int] = field(default_factory=set[int])
    """Ranks that made that value."""
    held: object = None
    """An object that a mark stands for, held so that its id is not reused."""
    definition: weakref.ref[Any] | None = None
    sent_in: int = 0
    """The number of the run with which it was sent last."""

    def saw(self, unit: Unit) -> None:
        """Have no mark stand for objects that are no more in a value equal to what was sent: their ids may be reused."""
        if unit.whole.pickler is None or unit.ids is None:
            return  # as it was packed before, or of too many objects to know them
        for old in set(self.marks.values()):
            if old.ids is not None and old.content == unit.content and old.ids - unit.ids:
                mark = replace(old, ids=old.ids & unit.ids)
                self.marks = {r: mark if each is old else each for r, each in self.marks.items()}
