"""A permutation of `range(size)` by a seed, evaluated only at the places that are asked for.

The same numbers with and without NumPy, for every version of it and of Python, on every machine:
what it draws on is SHAKE-128 (FIPS 202) and whole numbers.

Large sizes: a generalised Feistel network over a·b ≥ size places with cycle walking, by J. Black
and P. Rogaway, "Ciphers with Arbitrary Finite Domains" (CT-RSA 2002), its round functions tables
of random numbers: they have about √size entries each. A place is x = right·a + left; rounds take
turns to change one half by a function of the other. Small sizes: Fisher-Yates, as the network
mixes few places less well.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

SMALL = 1024
"""Up to this size the whole permutation is made."""
_ROUNDS = 6
_BLOCK = 1 << 15
"""So many places at a time, so that what is computed stays in the processor's cache."""


def permuted(places: range, size: int, seed: int) -> list[int]:
    """The images of `places` under the permutation of `range(size)` by `seed`, in plain Python."""
    if size <= SMALL:
        everything = _small(size, seed)
        return [everything[place] for place in places]
    network = _Network.of(size, seed)
    return [network.send(place) for place in places]


def permuted_array(places: range, size: int, seed: int) -> Any:
    """The same as a NumPy array of int64."""
    import numpy as np

    if size <= SMALL:
        everything = np.array(_small(size, seed), dtype=np.int64)
        return everything[places.start : places.stop : places.step]
    network = _Vectors(_Network.of(size, seed))
    found = np.empty(len(places), dtype=np.int64)
    for start in range(0, len(places), _BLOCK):
        block = places[start : start + _BLOCK]
        found[start : start + len(block)] = network.send(
            np.arange(block.start, block.stop, block.step, dtype=np.int64)
        )
    return found


def _draw(label: str, count: int) -> tuple[int, ...]:
    """`count` random numbers below 2³² that belong to this label."""
    return struct.unpack(f"<{count}I", hashlib.shake_128(label.encode()).digest(4 * count))


@lru_cache(maxsize=8)
def _small(size: int, seed: int) -> tuple[int, ...]:
    """The whole permutation: Fisher-Yates in Durstenfeld's form."""
    order = list(range(size))
    draws = _draw(f"{seed}/{size}", size)
    for last in range(size - 1, 0, -1):
        other = draws[last] * (last + 1) >> 32
        order[last], order[other] = order[other], order[last]
    return tuple(order)


@dataclass(frozen=True)
class _Network:
    """The network for one size and seed: `left` has `bits` bits, `right` is below `height`."""

    size: int
    bits: int
    height: int
    tables: tuple[tuple[int, ...], ...]

    @staticmethod
    @lru_cache(maxsize=4)
    def of(size: int, seed: int) -> _Network:
        bits = size.bit_length() // 2
        height = -(-size >> bits)
        width = 1 << bits
        tables: list[tuple[int, ...]] = []
        for turn in range(_ROUNDS):
            domain, values = (height, width) if turn % 2 == 0 else (width, height)
            draws = _draw(f"{seed}/{size}/{turn}", domain)
            tables.append(tuple(draw * values >> 32 for draw in draws))
        return _Network(size, bits, height, tuple(tables))

    def send(self, place: int) -> int:
        """The image of a place: it passes the network until it is below `size`."""
        while (place := self._once(place)) >= self.size:
            pass
        return place

    def _once(self, place: int) -> int:
        left, right = place & (1 << self.bits) - 1, place >> self.bits
        for turn, table in enumerate(self.tables):
            if turn % 2 == 0:
                left ^= table[right]
            else:
                right = (right + table[left]) % self.height
        return right << self.bits | left


class _Vectors:
    """The network for many places at once.

    `right` is reduced at the end alone: until then it grows by less than `height` in each of its
    rounds, and the tables that read it are repeated as far as it may get.
    """

    def __init__(self, network: _Network) -> None:
        import numpy as np

        self._network = network
        height = network.height
        self._tables = [
            np.resize(np.array(table, dtype=np.int64), (turn // 2 + 1) * height)
            if turn % 2 == 0
            else np.array(table, dtype=np.int64)
            for turn, table in enumerate(network.tables)
        ]
        most = (_ROUNDS // 2 + 1) * height
        self._reduced = np.resize(np.arange(height, dtype=np.int64), most) << network.bits

    def send(self, places: Any) -> Any:
        """The images of places, written into the same array."""
        found = self._once(places)
        late = (found >= self._network.size).nonzero()[0]
        while late.size:
            again = self._once(found[late])
            found[late] = again
            late = late[again >= self._network.size]
        return found

    def _once(self, places: Any) -> Any:
        left, right = places & (1 << self._network.bits) - 1, places >> self._network.bits
        drawn = places
        for turn, table in enumerate(self._tables):
            # No entry is out of bounds; "clip" spares looking whether one is, and a buffer.
            if turn % 2 == 0:
                left ^= table.take(right, out=drawn, mode="clip")
            else:
                right += table.take(left, out=drawn, mode="clip")
        left |= self._reduced.take(right, out=drawn, mode="clip")
        return left
