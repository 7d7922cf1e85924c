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
_LARGE = 1 << 20
_LINE = 1 << 12
"""Bytes that are looked at first for the end of a line."""
_OURS = 3  # what getrefcount counts of an object that only such a table holds, in a loop over it


class ObjectMissing(LookupError):
    """What a value points at is not on this rank."""


class _LargeFile:
    """Bytes to be read where they lie: `io.BytesIO` begins with a copy."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        found = bytes(self._data[self._at : self._at + size])
        self._at += len(found)
        return found

    def readinto(self, into: bytearray) -> int:
        """Put the next bytes there; how many came."""
        room = memoryview(into).cast("B")
        part = self._data[self._at : self._at + len(room)]
        room[: len(part)] = part
        self._at += len(part)
        return len(part)

    def readline(self) -> bytes:
        """The bytes to the end of a line."""
        line = io.BytesIO(self._data[self._at : self._at + _LINE]).readline()
        if len(line) == _LINE:
            line = io.BytesIO(self._data[self._at :]).readline()
        self._at += len(line)
        return line

    def put(self, data: bytes) -> None:
        """Have these bytes be read next, and nothing else."""
        self._data, self._at = memoryview(data), 0


class _SmallFile(io.BytesIO):
    def put(self, data: bytes) -> None:
        """Have these bytes be read next, and nothing else."""
        self.seek(0)
        self.truncate()
        self.write(data)
        self.seek(0)


class Unpickler(pickle.Unpickler):
    """Reads one value, and knows every object of it afterwards."""

    def __init__(self, data: memoryview, buffers: list[memoryview]) -> None:
        self._file = (_SmallFile if data.nbytes < _LARGE else _LargeFile)(data)
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
        self._file.put(b"")

    def find(self, number: int) -> Any:
        """The object with this number."""
        self._file.put(b"\x80\x05j" + number.to_bytes(4, "little") + b".")
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
