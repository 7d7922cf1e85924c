"""What arrived on a rank, object by object, so that what comes later can point at it.

Pickler and unpickler number the objects they come across alike. An address is the number of the
parcel in which an object came, and its number there; it stays true wherever the object is now,
whatever was done to it. A parcel's objects live until the notebook lets go of the parcel.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from typing import Any

Address = tuple[int, int]


class NotThere(LookupError):
    """What a value points at is not on this rank."""


class Unpickler(pickle.Unpickler):
    """Reads one value, and knows every object of it afterwards."""

    def __init__(self, data: memoryview, buffers: list[memoryview]) -> None:
        self._file = io.BytesIO(data)
        super().__init__(self._file, buffers=buffers)

    def persistent_load(self, pid: Address) -> object:
        """An object that is there already; raises `NotThere` when it is not."""
        parcel, number = pid
        reader = _parcels.get(parcel)
        if reader is None:
            raise NotThere("an object that it shares with another name is not on this rank")
        return reader.find(number)

    def find(self, number: int) -> Any:
        """The object with this number."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(b"\x80\x05j" + number.to_bytes(4, "little") + b".")
        self._file.seek(0)
        return self.load()


_parcels: dict[int, Unpickler] = {}


def keep(parcel: int, reader: Unpickler) -> None:
    """Keep what arrived in a parcel."""
    _parcels[parcel] = reader


def let_go(parcels: Iterable[int]) -> None:
    """Nothing will point at what came in these any more."""
    for parcel in parcels:
        _parcels.pop(parcel, None)
