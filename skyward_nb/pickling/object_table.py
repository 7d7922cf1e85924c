"""What arrived on a rank, object by object, so that what comes later can point at it.

Pickler and unpickler number the objects they come across alike. An address is the number of the
parcel in which an object came, and its number there; it stays true wherever the object is now,
whatever was done to it. An object lives no longer for having arrived.
"""

from __future__ import annotations

import io
import pickle
import sys
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

Address = tuple[int, int]
_MOST = 4 << 20
_OURS = 3  # what getrefcount counts of an object that only a table of ours holds, in a loop over it


class ObjectMissing(LookupError):
    """What a value points at is not on this rank."""


class Unpickler(pickle.Unpickler):
    """Reads one value, and knows every object of it afterwards."""

    def __init__(self, data: memoryview, buffers: list[memoryview]) -> None:
        self._file = io.BytesIO(data)
        super().__init__(self._file, buffers=buffers)

    def persistent_load(self, pid: Address) -> object:
        """An object that is there already; raises `ObjectMissing` when it is not."""
        parcel, number = pid
        arrival = _parcels.get(parcel)
        if arrival is None:
            raise ObjectMissing("an object that it shares with another name is not on this rank")
        return arrival.find(number)

    def forget_bytes(self) -> None:
        """Let go of what was read."""
        self._file.seek(0)
        self._file.truncate()

    def find(self, number: int) -> Any:
        """The object with this number."""
        self.forget_bytes()
        self._file.write(b"\x80\x05j" + number.to_bytes(4, "little") + b".")
        self._file.seek(0)
        return self.load()


class ParcelObjects:
    """The objects of one parcel, by their numbers, kept alive as little as can be.

    Most are held weakly. Lists and dictionaries cannot be; `prune` drops those that nobody else
    holds any more.
    """

    def __init__(self, objects: Mapping[int, object]) -> None:
        self._weak: dict[int, weakref.ref[Any]] = {}
        self._strong: dict[int, object] = {}
        for number, value in objects.items():
            if type(value) in _CONSTANT:
                continue
            try:
                self._weak[number] = weakref.ref(value)
            except TypeError:
                self._strong[number] = value

    def find(self, number: int) -> object:
        """The object with this number; raises `ObjectMissing` when it is gone."""
        reference = self._weak.get(number)
        value = self._strong.get(number) if reference is None else reference()
        if value is None:
            raise ObjectMissing("an object that it shares with another name is gone from this rank")
        return value

    def prune(self) -> None:
        """Drop what only we hold."""
        gone = [n for n, value in self._strong.items() if sys.getrefcount(value) <= _OURS]
        for number in gone:
            del self._strong[number]


_CONSTANT = (str, bytes, int, float, complex, bool, type(None), tuple)
_parcels: dict[int, ParcelObjects | Unpickler] = {}


def keep(parcel: int, reader: Unpickler, size: int) -> None:
    """Keep what arrived in a parcel of `size` bytes of pickle.

    One of a great many objects is kept as it is: to list them takes longer than to read them.
    """
    reader.forget_bytes()
    _parcels[parcel] = reader if size > _MOST else ParcelObjects(reader.memo.copy())


def let_go(parcels: Iterable[int]) -> None:
    """Nothing will point at what came in these any more."""
    for parcel in parcels:
        _parcels.pop(parcel, None)


def let_go_before(parcel: int) -> None:
    """Nothing will point any more at what came in parcels with lower numbers."""
    let_go([number for number in _parcels if number < parcel])


def prune() -> None:
    """Drop what arrived and is of no use to anybody any more."""
    for arrival in _parcels.values():
        if isinstance(arrival, ParcelObjects):
            arrival.prune()
