"""What travels as one: a name's value, a definition, or definitions that form a circle."""

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
    """What a rank has under a label: the notebook-side content that its own is newer than.

    `content` is a digest, or what stands for an object without one. Its objects, as numbered
    when all of it is packed, are in `parcel` under the same numbers, or where `homes` says;
    without a parcel nobody knows which of the rank's objects they are.
    """

    content: str
    parcel: int = 0
    homes: Mapping[int, Address] | None = None

    def home(self, number: int) -> Address | None:
        """Where an object is on the ranks."""
        if self.homes is None:
            return (self.parcel, number) if self.parcel else None
        return self.homes.get(number)

    @cached_property
    def parcels(self) -> frozenset[int]:
        """Parcels that must be kept for it."""
        held = {parcel for parcel, _ in (self.homes or {}).values()}
        return frozenset(held | {self.parcel} if self.parcel else held)


@dataclass
class Unit:
    """What travels as one, under one label or several.

    `whole` is all of it, packed, and `content` stands for what is in it. `objects` are those that
    others could share, with their numbers in the whole, by id; None for one of a great many.
    Where it is sent, `bundle` is what is sent, in `parcel`; its objects are then where `homes`
    says, and it `points_at` the parcels of objects that ranks have.
    """

    labels: tuple[str, ...]
    values: tuple[object, ...]
    whole: Bundle
    content: str
    seconds: float
    bundle: Bundle
    objects: dict[int, tuple[int, object]] | None = None
    parcel: int = 0
    homes: dict[int, Address] | None = None
    points_at: set[int] = field(default_factory=set)

    @property
    def value(self) -> object:
        """What was packed."""
        return self.values[0] if len(self.values) == 1 else self.values

    @property
    def mark(self) -> ContentMark:
        """What ranks have once it is sent."""
        return ContentMark(self.content, self.parcel, self.homes)

    @property
    def is_definition(self) -> bool:
        """Whether it is a definition, or several."""
        return is_label(self.labels[0])

    @property
    def shown(self) -> str:
        """What a person calls it."""
        return shown(self.labels[0], self.values[0])

    def list_objects(self) -> dict[int, tuple[int, object]]:
        """Its objects, listed once; those of a great many only when there is no other way."""
        if self.objects is None:
            self.objects = self.whole.objects()
        return self.objects

    def numbers_of(self, other: Unit) -> dict[int, int]:
        """The numbers here, by id, of the objects of another unit that are in this one, too."""
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
    """What a person calls what has this label: a name is its own, a definition has one."""
    return value.__qualname__ if is_label(label) else label  # type: ignore[attr-defined]
