"""A unit of travel: a name's value, a definition, or definitions that form a circle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from skyward_nb.pickling.definitions import is_label
from skyward_nb.pickling.object_table import Address
from skyward_nb.pickling.payload import Bundle

_FEW = 50_000


@dataclass(frozen=True, eq=False)
class ContentMark:
    """The mark of a rank under a label: the notebook's content from which the rank's value was made.

    `content` is a digest, or a word for an object without one. The objects of the value are in `parcel`,
    under their numbers in the whole value, or at their `addresses`; without a parcel, their places on the
    rank are unknown.
    """

    content: str
    parcel: int = 0
    addresses: Mapping[int, Address] | None = None

    def address_of(self, number: int) -> Address | None:
        """The address of an object on the ranks."""
        if self.addresses is None:
            return (self.parcel, number) if self.parcel else None
        return self.addresses.get(number)

    @cached_property
    def parcels(self) -> frozenset[int]:
        """The parcels that must be kept for it."""
        held = {parcel for parcel, _ in (self.addresses or {}).values()}
        return frozenset(held | {self.parcel} if self.parcel else held)


@dataclass
class Unit:
    """A value that travels as one, under one or several labels.

    `whole` is all of it, packed, and `content` identifies it. `objects` are those that other units could
    share, by id, with their numbers in the whole; None if there are very many. If it is sent, it goes as
    `bundle` in `parcel`; its objects are then at their `addresses`, and it `points_at` the parcels of objects
    that ranks have.
    """

    labels: tuple[str, ...]
    values: tuple[object, ...]
    whole: Bundle
    content: str
    seconds: float
    bundle: Bundle
    objects: dict[int, tuple[int, object]] | None = None
    parcel: int = 0
    addresses: dict[int, Address] | None = None
    points_at: set[int] = field(default_factory=set)

    @property
    def value(self) -> object:
        """The packed value."""
        return self.values[0] if len(self.values) == 1 else self.values

    @property
    def mark(self) -> ContentMark:
        """The mark of ranks that got it."""
        return ContentMark(self.content, self.parcel, self.addresses)

    @property
    def is_definition(self) -> bool:
        """Whether it is a definition, or several."""
        return is_label(self.labels[0])

    @property
    def shown(self) -> str:
        """Its name for a person."""
        return shown(self.labels[0], self.values[0])

    def list_objects(self) -> dict[int, tuple[int, object]]:
        """Its objects, listed once; very many only if there is no other way."""
        if self.objects is None:
            self.objects = self.whole.objects()
        return self.objects

    def numbers_of(self, other: Unit) -> dict[int, int]:
        """By id, the numbers in this unit of the objects that it shares with another one."""
        small, large = (self, other) if self.objects is not None else (other, self)
        if large.objects is None and (small.objects is None or len(small.objects) > _FEW):
            small.list_objects()
            large.list_objects()
        if self.objects is not None and other.objects is not None:
            both = self.objects.keys() & other.objects.keys()
            return {key: self.objects[key][0] for key in both}
        theirs = [each for _, each in small.list_objects().values()]
        if not theirs:
            return {}
        try:
            held = large.whole.numbers_of(small.whole, small.value, theirs)
        except Exception:  # noqa: BLE001 - the one's pickler cannot take the other's objects
            return {}
        return held if large is self else {key: small.list_objects()[key][0] for key in held}


def shown(label: str, value: object) -> str:
    """The name for a person of what has this label."""
    return value.__qualname__ if is_label(label) else label  # type: ignore[attr-defined]
