"""A Python object as bytes with a digest, and back, between the notebook and its ranks.

Pickle protocol 5 by cloudpickle, large buffers out of band; where cloudpickle fails, dill.
Only for peers who trust one another: unpacking runs code, unless it takes `plain_values` alone.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import struct
import types
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from skyward_nb.pickling import definitions, object_table, reducers
from skyward_nb.pickling.constant_types import is_constant_type
from skyward_nb.pickling.diagnosis import explain
from skyward_nb.pickling.object_table import Address
from skyward_nb.pickling.pickle_scan import NotPlain
from skyward_nb.pickling.pickler import CuttingPickler, LenientPickler, Pickler
from skyward_nb.pickling.plain_values import ValueUnpickler
from skyward_nb.pickling.value_pickler import ValuePickler, check_readable
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.store.blobs import Buffer, CorruptValue, digest_of
from skyward_nb.store.content_store import ContentStore

INLINE_LIMIT = 64 * 1024
_ALIGN = 64
_LARGE = 4 << 20
_AGAIN = (LenientPickler, LenientPickler)  # twice: what changes meanwhile may have come to rest


@dataclass
class Bundle:
    """A packed object: its bytes in parts, and what else it needs to be of use.

    `reads` are names that its code looks up, `tokens` all that its code mentions, `files` what
    its code objects are called, `modules` those it refers to, `definitions` the functions and
    classes that must be there before it.
    """

    parts: list[Buffer]
    size: int
    digest: str
    reads: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    definitions: dict[str, object] = field(default_factory=dict)
    pickler: Pickler | None = None
    in_band: int = 0
    own_objects: int | None = None
    """How many objects its pickler had come across when it was done; None: not looked at."""

    def stow(self, store: ContentStore, tick: Callable[[], None] = lambda: None) -> Packed:
        """As a message: small ones inline, large ones by way of the machine's store.

        `tick` is called now and then while that is written. Raises OSError when it does not fit.
        """
        if self.is_stowed:
            store.put(self.digest, self.parts, tick)
        return self.stowed(store)

    def stowed(self, store: ContentStore) -> Packed:
        """As a message to a reader that finds large values in this store."""
        if not self.is_stowed:
            return Packed(self.digest, self.size, b"".join(self.parts))
        return Packed(self.digest, self.size, on_disk=store.on_disk(self.digest))

    @property
    def is_stowed(self) -> bool:
        """Whether it goes by way of the machine's store."""
        return self.size > INLINE_LIMIT

    @property
    def is_large(self) -> bool:
        """Whether it is made of so many objects that listing them takes a while."""
        return self.in_band > _LARGE

    def objects(self) -> dict[int, tuple[int, object]]:
        """The objects in it that another name could share, by id, each with its number."""
        assert self.pickler is not None
        with _no_collection():
            memo = self.pickler.memo.copy()
            constant: dict[type, bool] = {}
            found: dict[int, tuple[int, object]] = {}
            for number, value in memo.values():
                if self.own_objects is not None and number >= self.own_objects:
                    continue
                kind = type(value)
                if (is_constant := constant.get(kind)) is None:
                    is_constant = constant[kind] = is_constant_type(kind)
                if not is_constant and not (kind is types.FunctionType and _is_named(value)):
                    found[id(value)] = number, value
            return found

    def numbers_of(self, other: Bundle, value: object, objects: Iterable[object]) -> dict[int, int]:
        """The numbers here, by id, of those `objects` of `other` that are in this one, too.

        `value` is what `other` packs. Without a list of this one's objects: its pickler says of
        each whether it came across it before, by the number it gives it.
        """
        pickler = self.pickler
        assert pickler is not None and other.pickler is not None
        pickler.roots |= other.pickler.roots
        if isinstance(pickler, CuttingPickler):
            pickler.cuts = {}  # they are no objects of this one
        if self.own_objects is None:
            self.own_objects = _number(pickler, _Mark())
        _number(pickler, value)
        numbers = ((id(each), _number(pickler, each)) for each in objects)
        return {key: number for key, number in numbers if number < self.own_objects}


class _Mark:
    """An object that no pickler has come across."""

    def __reduce__(self) -> tuple[Any, ...]:
        return object, ()


def _number(pickler: Pickler, value: object) -> int:
    """Have the pickler come across `value`, and tell the number it has for it then."""
    pickler.file.seek(0)
    pickler.dump(value)
    pickler.file.seek(0)
    pickler.file.truncate()
    pickler.dump(value)
    data = pickler.file.getvalue()
    at = 2 if data[2:3] in b"hj" else 11  # behind the frame's header, if there is one
    return int.from_bytes(data[at + 1 : at + (2 if data[at : at + 1] == b"h" else 5)], "little")


@contextlib.contextmanager
def _no_collection() -> Generator[None]:
    """Without the garbage collector, which looks at each of a million new objects many times."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _is_named(func: types.FunctionType) -> bool:
    return definitions.is_definition(func) or definitions.is_importable(func)


def pack(
    name: str,
    value: object,
    *,
    to_ranks: bool = False,
    roots: Iterable[object] = (),
    cuts: Mapping[int, Address] | None = None,
    compact: Collection[int] | None = None,
    salt: Sequence[int] = (),
) -> Bundle:
    """Pickle `value`, the content of the variable `name`.

    `to_ranks`: definitions of the notebook go as labels, but for the `roots`. `cuts` are objects,
    by id, to point at where they are on the ranks. `compact` is memory, by its id, of which the
    one tensor that looks at it goes without the rest; None: wherever there is such. `salt` makes its
    digest another than that of an equal value with another salt, or with none.
    Raises `PayloadError` saying which part of it cannot travel.
    """
    with _no_collection():
        pickler, data, buffers = _pickle(name, value, to_ranks, roots, cuts, compact or ())
        if compact is None and not to_ranks and (lone := pickler.lone_views()):
            pickler, data, buffers = _pickle(name, value, to_ranks, roots, cuts, lone)
    parts, size = _in_parts(data, buffers, salt)
    return Bundle(
        parts,
        size,
        digest_of(parts),
        pickler.reads,
        pickler.tokens,
        pickler.files,
        pickler.modules,
        pickler.definitions,
        pickler,
        len(data),
    )


def pack_plain(name: str, value: object, *, salt: Sequence[int] = ()) -> Bundle:
    """Pickle `value` as one of `plain_values`; raises `PayloadError` naming the part that is none.

    `salt` is that of `pack`.
    """
    file, buffers = io.BytesIO(), list[memoryview]()
    pickler = ValuePickler(file, lambda buffer: buffers.append(buffer.raw()))
    try:
        with _no_collection():
            pickler.dump(value)
            data = file.getvalue()
            if pickler.repeats:
                check_readable(data, buffers)
    except Exception as error:
        raise explain(name, value, error, pickler.culprit) from error
    parts, size = _in_parts(data, buffers, salt)
    return Bundle(parts, size, digest_of(parts))


def _in_parts(
    data: bytes, buffers: list[memoryview], salt: Sequence[int]
) -> tuple[list[Buffer], int]:
    """A pickle and its buffers, behind a table of their sizes and before the salt; and the size of all."""
    pieces = [memoryview(data), *buffers]
    table = struct.pack(f"<I{len(pieces)}Q", len(pieces), *(piece.nbytes for piece in pieces))
    parts: list[Buffer] = [table]
    at = len(table)
    for piece in pieces:
        gap = -at % _ALIGN
        parts += [bytes(gap), piece] if gap else [piece]
        at += gap + piece.nbytes
    grains = struct.pack(f"<{len(salt)}q", *salt)
    return [*parts, grains] if salt else parts, at + len(grains)


def _pickle(
    name: str,
    value: object,
    to_ranks: bool,
    roots: Iterable[object],
    cuts: Mapping[int, Address] | None,
    compact: Collection[int],
) -> tuple[Pickler, bytes, list[memoryview]]:
    """The pickle, in cloudpickle's way or where that fails with dill's help, and its buffers."""
    first: Exception | None = None
    culprit: object = None
    for kind in (Pickler if cuts is None else CuttingPickler, *_AGAIN):
        buffers: list[memoryview] = []
        file = io.BytesIO()
        pickler = kind(
            file,
            lambda buffer, into=buffers: into.append(buffer.raw()),
            to_ranks=to_ranks,
            roots=roots,
        )
        if isinstance(pickler, CuttingPickler):
            pickler.cuts = cuts or {}
        pickler.compact = compact
        try:
            pickler.dump(value)
        except Exception as error:  # noqa: BLE001 - a user's __reduce__ may raise anything
            first = first or error
            if isinstance(pickler, LenientPickler) and culprit is None:
                culprit, first = pickler.culprit, error
        else:
            # Not getbuffer(): its view, collected in a cycle, crashes CPython 3.12.1.
            return pickler, file.getvalue(), buffers
    assert first is not None
    raise explain(name, value, first, culprit) from first


def unpack(
    packed: Packed,
    store: ContentStore,
    parcel: int = 0,
    mapped: memoryview | None = None,
    *,
    only_values: bool = False,
) -> Any:
    """Rebuild a packed object; its large buffers are writable and private to this process.

    `mapped` are its bytes if they are there already. With `only_values` it runs no code of who packed it,
    and raises `NotPlain` for what is none of the `plain_values`.

    With the number of a parcel, what comes later can point at the objects of this one. Raises
    what rebuilding raises, and `CorruptValue` when the bytes are not those that were packed.
    """
    inline = packed.data
    if mapped is not None:
        data = mapped
    else:
        data = store.map(packed.digest) if inline is None else memoryview(bytearray(inline))
    if inline is not None and digest_of([data]) != packed.digest:
        raise CorruptValue("its bytes are not those that were packed")
    if only_values:
        return _value_of(data)
    pieces = _pieces(data)
    with _no_collection():
        reader = object_table.Unpickler(pieces[0], pieces[1:])
        value = reader.load()
    if parcel:
        object_table.keep(parcel, reader, pieces[0].nbytes)
    return value


def rebuild(data: memoryview) -> Any:
    """Rebuild what lies there as `Bundle.parts`, of this user's own making; raises what rebuilding raises."""
    first, *buffers = _pieces(data)
    with _no_collection():
        return object_table.Unpickler(first, buffers).load()


def _pieces(data: memoryview) -> list[memoryview]:
    """The pickle and its buffers."""
    count = int.from_bytes(data[:4], "little")
    at = 4 + 8 * count
    pieces: list[memoryview] = []
    for size in struct.unpack_from(f"<{count}Q", data, 4):
        at += -at % _ALIGN
        pieces.append(data[at : at + size])
        at += size
    return pieces


def _value_of(data: memoryview) -> Any:
    """What is packed there, of anybody's making; raises `NotPlain`."""
    try:
        first, *buffers = _pieces(data)
        return ValueUnpickler(first, buffers).load()
    except NotPlain:
        raise
    except Exception as error:
        # Bytes of another's making may have any of the reader's errors.
        raise NotPlain(f"it is damaged ({type(error).__name__}: {error})") from error


def map_all(values: Iterable[tuple[Packed, ContentStore]]) -> dict[str, memoryview]:
    """The bytes, by digest, of those values that lie in a store, mapped side by side (and verified, where that is to be done).

    What cannot be is left out: unpacking it says what is wrong.
    """
    digests = {each.digest: store for each, store in values if each.data is None}
    if len(digests) < 2:
        return {}
    found: dict[str, memoryview] = {}

    def take(digest: str) -> None:
        with contextlib.suppress(CorruptValue, OSError):
            found[digest] = digests[digest].map(digest)

    with ThreadPoolExecutor(max_workers=min(len(digests), os.cpu_count() or 1)) as threads:
        list(threads.map(take, digests))
    return found


def spread_parts(value: object) -> tuple[list[Any], bool]:
    """What of a value is spread over ranks, and whether the value can be packed but for that."""
    if not reducers.may_be_spread():
        return [], True
    with reducers.listing_spread() as found:
        try:
            Pickler(io.BytesIO(), lambda _: None).dump(value)
        except Exception:  # noqa: BLE001 - packing it says what is wrong
            return found, False
    return list({id(each): each for each in found}.values()), True
