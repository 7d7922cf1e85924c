"""Messages on a machine's second line, which carries values; among them, which machine lacks which bytes.

A message is 4 bytes of length and msgpack. Behind `StoreBytes`, and behind `BytesFollow`, follow as many bytes of
the value as it says. Each ask has one answer, in order. No IO here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from skyward_nb.words.decoding import msgpack_decoder
from skyward_nb.words.folder_entry import FilePart, FolderEntry, PackedContents

LARGEST = 1 << 26
HEAD = 4

Span = tuple[int, int]
"""From one byte of a value to before another one."""


Address = tuple[str, int]
"""A host and a port."""


class PoolKey(msgspec.Struct, frozen=True):
    """What agents of one pool know each other by, as PEM: a certificate, and the key that signed it."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "PoolKey(…)"


class SpreadBranch(msgspec.Struct, frozen=True):
    """A machine that is to get a value from another one, and those that get it from there in turn."""

    name: str
    addresses: tuple[Address, ...]
    branches: tuple[SpreadBranch, ...] = ()

    def names(self) -> tuple[str, ...]:
        """It and all those behind it."""
        return (self.name, *(name for each in self.branches for name in each.names()))


class StoreBytes(msgspec.Struct, frozen=True, tag=True):
    """Keep these bytes of a value: `length` from `offset` on, which follow. Answered by `BytesStored`."""

    digest: str
    size: int
    offset: int
    length: int


class MissingQuery(msgspec.Struct, frozen=True, tag=True):
    """Which bytes of a value are not there, and is there room for it? Answered by `MissingRanges`."""

    digest: str
    size: int


class FetchBytes(msgspec.Struct, frozen=True, tag=True):
    """Give bytes of a value, as many as there are up to `length`. Answered by `BytesFollow`."""

    digest: str
    offset: int
    length: int


class DropValues(msgspec.Struct, frozen=True, tag=True):
    """Forget these values. Answered by `Done`; what was asked by the same `word` before is not done again."""

    digests: tuple[str, ...]
    word: str = ""


class TrimStore(msgspec.Struct, frozen=True, tag=True):
    """Forget what is not needed beyond the spare room; `word` as in `DropValues`. Answered by `Done`."""

    needed: tuple[str, ...]
    word: str = ""


class BytesStored(msgspec.Struct, frozen=True, tag=True):
    """These bytes are there; with them, or without, the whole value is. `is_new`: it was not before."""

    is_whole: bool
    is_new: bool = False
    on_disk: bool = False


class MissingRanges(msgspec.Struct, frozen=True, tag=True):
    """These bytes are not there; none: all of it is."""

    spans: tuple[Span, ...]
    on_disk: bool = False


class BytesFollow(msgspec.Struct, frozen=True, tag=True):
    """Of a value of `size` bytes, `length` follow."""

    size: int
    length: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """It is done."""


class ValueRefused(msgspec.Struct, frozen=True, tag=True):
    """It cannot be done: the number of an `errno`, and why in words."""

    code: int
    why: str


class AdmitPeers(msgspec.Struct, frozen=True, tag=True):
    """Take agents of the same pool that come with this key, at `hosts`; answered by `PeersAdmitted`.

    Without `hosts`, at all private addresses of the machine. `name` is what the machine is called. `is_client`: not
    agents come with this key, but the client that made it, by another way, and it may ask for all that it may here, and
    command the agent as over its socket. `other` is the certificate that it comes with, where that is another one: an
    eavesdropper on this message has the agent's key, and not the client's.
    """

    name: str
    key: PoolKey
    hosts: tuple[str, ...] = ()
    is_client: bool = False
    other: str = ""


class PeersAdmitted(msgspec.Struct, frozen=True, tag=True):
    """Where agents of the same pool are taken; nowhere: this machine has no private address.

    `commands`: where a client is taken that comes to command the agent.
    """

    addresses: tuple[Address, ...]
    commands: tuple[Address, ...] = ()


class IdentifyMachine(msgspec.Struct, frozen=True, tag=True):
    """To an agent that was reached by another one: is it this machine? `Done`, or `ValueRefused`."""

    name: str


class SpreadValue(msgspec.Struct, frozen=True, tag=True):
    """Give a value to these machines as it comes; answered by `SpreadFailures` when all have it, or never will."""

    digest: str
    size: int
    branches: tuple[SpreadBranch, ...]


class SpreadFailures(msgspec.Struct, frozen=True, tag=True):
    """These machines did not get it: by name, why."""

    machines: dict[str, str]


class FolderQuery(msgspec.Struct, frozen=True, tag=True):
    """Which contents does the copy `key` of a working folder lack for these entries? Answered by `MissingContents`."""

    key: str
    entries: tuple[FolderEntry, ...]


class MissingContents(msgspec.Struct, frozen=True, tag=True):
    """The digests of these contents have to be sent; the copy `is_current` where nothing has to be changed."""

    contents: tuple[str, ...]
    is_current: bool = False


class FolderUpdate(msgspec.Struct, frozen=True, tag=True):
    """Bring the copy of a working folder up to date, with contents in the store. Answered by `FolderUpdated`."""

    key: str
    entries: tuple[FolderEntry, ...]
    packed: tuple[PackedContents, ...]


class FolderUpdated(msgspec.Struct, frozen=True, tag=True):
    """The copy is up to date, for which so many entries were written or removed."""

    changes: int


class FolderSearch(msgspec.Struct, frozen=True, tag=True):
    """What in the copy of a working folder do these patterns match? Answered by `FolderFound`."""

    key: str
    patterns: tuple[str, ...]


class FolderFound(msgspec.Struct, frozen=True, tag=True):
    """These entries match; `sent` are those of their paths as they were sent to the machine."""

    entries: tuple[FolderEntry, ...]
    sent: tuple[FolderEntry, ...] = ()


class FolderBrought(msgspec.Struct, frozen=True, tag=True):
    """These entries of the copy of a working folder are in that folder now. Answered by `FolderUpdated`."""

    key: str
    entries: tuple[FolderEntry, ...]


class FolderPack(msgspec.Struct, frozen=True, tag=True):
    """Put parts of files of the copy of a working folder into the store. Answered by `ValuePacked`."""

    key: str
    parts: tuple[FilePart, ...]


class ValuePacked(msgspec.Struct, frozen=True, tag=True):
    """They are a value in the store; `sizes` tells how many bytes of each part there were."""

    digest: str
    sizes: tuple[int, ...]


FolderAsk = FolderQuery | FolderUpdate | FolderSearch | FolderBrought | FolderPack
Ask = (
    StoreBytes
    | MissingQuery
    | FetchBytes
    | DropValues
    | TrimStore
    | AdmitPeers
    | IdentifyMachine
    | SpreadValue
    | FolderAsk
)
Answer = (
    BytesStored
    | MissingRanges
    | BytesFollow
    | Done
    | ValueRefused
    | PeersAdmitted
    | SpreadFailures
    | MissingContents
    | FolderUpdated
    | FolderFound
    | ValuePacked
)

ASKS: msgspec.msgpack.Decoder[Ask] = msgpack_decoder(Ask)
ANSWERS: msgspec.msgpack.Decoder[Answer] = msgpack_decoder(Answer)
_encode = msgspec.msgpack.Encoder().encode


def framed(message: Ask | Answer) -> bytes:
    """A message as bytes on the wire."""
    body = _encode(message)
    return len(body).to_bytes(HEAD, "big") + body


class ByteGaps:
    """The bytes of a value that are not there."""

    def __init__(self, size: int) -> None:
        self._edges: list[int] = [0, size] if size else []
        # Where a gap begins, where it ends, and so on, ascending.

    def __bool__(self) -> bool:
        return bool(self._edges)

    def __iter__(self) -> Iterator[Span]:
        return iter(list(zip(self._edges[::2], self._edges[1::2], strict=True)))

    @property
    def size(self) -> int:
        """How many there are."""
        return sum(stop - start for start, stop in self)

    def first(self, size: int) -> int:
        """The first of them; where there is none, the `size` of the value."""
        return self._edges[0] if self._edges else size

    def has(self, start: int, stop: int) -> bool:
        """Whether one of these bytes is missing."""
        after = bisect_right(self._edges, start)
        return after % 2 == 1 or (after < len(self._edges) and self._edges[after] < stop)

    def fill(self, start: int, stop: int) -> None:
        """These bytes are there now."""
        if start >= stop:
            return
        first, last = bisect_left(self._edges, start), bisect_right(self._edges, stop)
        # Within a gap, an edge of what is left of it comes in place of those in between.
        new = [start] * (first % 2) + [stop] * (last % 2)
        self._edges[first:last] = new


def pieces(spans: Iterable[Span], most: int) -> Iterator[Span]:
    """The same bytes in spans of at most so many."""
    for start, stop in spans:
        for at in range(start, stop, most):
            yield at, min(stop, at + most)
