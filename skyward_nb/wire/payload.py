"""A Python object as bytes with a digest, and back, between the notebook and its ranks.

Pickle protocol 5 by cloudpickle, large buffers out of band. Two things are ours: functions of
the notebook are rebuilt against the namespace they arrive in (so `x = 100` on a rank is seen
by a shipped function), and packing tells which other names the object reads there. Only for
peers who trust one another: unpacking runs code.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
from blake3 import blake3
from cloudpickle import cloudpickle as _cp

from skyward_nb.wire.blobs import BlobStore, Buffer
from skyward_nb.words.errors import PayloadError
from skyward_nb.words.messages import Packed

INLINE_LIMIT = 64 * 1024
_ALIGN = 64
_PARALLEL_HASH = 4 << 20

_home: dict[str, Any] = {}


def set_home(namespace: dict[str, Any]) -> None:
    """Say which namespace functions of the notebook belong to in this process."""
    global _home
    _home = namespace


def home() -> dict[str, Any]:
    """The namespace functions of the notebook are rebuilt against."""
    return _home


class _Home:
    """Stands for the home namespace in a pickle."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return home, ()


@dataclass
class Bundle:
    """A packed object: its bytes in parts, what it reads, which code files it came from."""

    parts: list[Buffer]
    size: int
    digest: str
    reads: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)

    def stow(self, store: BlobStore) -> Packed:
        """As a message: small ones inline, large ones by way of the machine's store."""
        if self.size <= INLINE_LIMIT:
            return Packed(self.digest, self.size, b"".join(self.parts))
        store.put(self.digest, self.parts)
        return Packed(self.digest, self.size)


class _Pickler(cloudpickle.Pickler):
    """cloudpickle's, with functions of the home namespace tied to it by reference."""

    def __init__(
        self, file: io.BytesIO, buffer_callback: Callable[[pickle.PickleBuffer], Any]
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.reads: set[str] = set()
        self.files: set[str] = set()

    def _dynamic_function_reduce(self, func: types.FunctionType) -> tuple[Any, ...]:
        """Reduce a function; cloudpickle's own way but for the globals of notebook functions."""
        reduced = super()._dynamic_function_reduce(func)
        if func.__globals__ is not _home:
            return reduced
        make, (code, _, *rest), (state, slots), *others = reduced
        self.reads.update(_cp._extract_code_globals(code))
        self.files.add(code.co_filename)
        slots["__globals__"] = {}
        return make, (code, _Home(), *rest), (state, slots), *others


def pack(name: str, value: object) -> Bundle:
    """Pickle `value`, the content of the variable `name`.

    Raises `PayloadError` saying which part of it cannot travel.
    """
    buffers: list[memoryview] = []
    file = io.BytesIO()
    pickler = _Pickler(file, lambda buffer: buffers.append(buffer.raw()))
    try:
        pickler.dump(value)
    except Exception as error:
        raise _explain(name, value, error) from error
    # Not getbuffer(): its view, collected in a cycle, crashes CPython 3.12.1. No copy either way.
    bundle = _bundle(memoryview(file.getvalue()), buffers)
    bundle.reads, bundle.files = pickler.reads, pickler.files
    return bundle


def unpack(packed: Packed, store: BlobStore) -> Any:
    """Rebuild a packed object; its large buffers are writable and private to this process."""
    data = store.map(packed.digest) if packed.data is None else memoryview(bytearray(packed.data))
    count = int.from_bytes(data[:4], "little")
    sizes = struct.unpack_from(f"<{count}Q", data, 4)
    pieces: list[memoryview] = []
    at = 4 + 8 * count
    for size in sizes:
        at += -at % _ALIGN
        pieces.append(data[at : at + size])
        at += size
    return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301 - between kernel and its ranks


def _bundle(header: memoryview, buffers: list[memoryview]) -> Bundle:
    pieces = [header, *buffers]
    table = struct.pack(f"<I{len(pieces)}Q", len(pieces), *(piece.nbytes for piece in pieces))
    parts: list[Buffer] = [table]
    at = len(table)
    for piece in pieces:
        gap = -at % _ALIGN
        parts += [bytes(gap), piece] if gap else [piece]
        at += gap + piece.nbytes
    threads = blake3.AUTO if at > _PARALLEL_HASH else 1
    hasher = blake3(max_threads=threads)
    for part in parts:
        hasher.update(part)
    return Bundle(parts, at, hasher.hexdigest())


# ── why something cannot travel ─────────────────────────────────────────────────────────

_DEEPEST = 12


def _explain(name: str, value: object, error: Exception) -> PayloadError:
    path, culprit, reason = _locate(name, value, error, _DEEPEST, set())
    kind = type(culprit)
    type_name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    advice = (
        f"Make it inside the cell that runs on the ranks, or leave it out of {name}."
        if path == name
        else f"Take it out of {name} before sending, or give its class a __getstate__ without it."
    )
    return PayloadError(name, path, type_name, str(reason) or type(reason).__name__, advice)


def _locate(
    path: str, value: object, error: Exception, depth: int, seen: set[int]
) -> tuple[str, object, Exception]:
    """Walk into the first part of `value` that cannot be pickled by itself."""
    seen.add(id(value))
    for step, part in _parts(value) if depth else ():
        if id(part) in seen:
            continue
        try:
            _Pickler(io.BytesIO(), lambda _: None).dump(part)
        except Exception as inner:  # noqa: BLE001 - whatever a user's __reduce__ raises is the answer
            return _locate(path + step, part, inner, depth - 1, seen)
    return path, value, error


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The parts of an object that a person can name: items, attributes, closed-over names."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):  # a cell that is empty so far
                yield f".<{name}>", cell.cell_contents
    else:
        yield from ((f".{name}", item) for name, item in getattr(value, "__dict__", {}).items())
