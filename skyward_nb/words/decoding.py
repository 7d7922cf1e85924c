"""Documents and messages of a kind, from JSON and msgpack, whichever thread asks first.

msgspec prepares a class when something is decoded as it for the first time, and takes what another
thread has half prepared for ready: both threads at once end the process with SIGSEGV (seen with msgspec 0.22.0,
in a Jupyter server that answered two requests). Here one thread prepares, and the others wait.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
Decoder = msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any]

_ready: dict[tuple[type[Decoder], Any, bool], Any] = {}
_preparing = threading.Lock()
# A child of a fork has no other thread that would end what it has begun.
os.register_at_fork(
    before=_preparing.acquire,
    after_in_parent=_preparing.release,
    after_in_child=_preparing.release,
)


def _decoder(form: Any, kind: Any, strict: bool = True) -> Any:
    key = (form, kind, strict)
    if (known := _ready.get(key)) is None:
        with _preparing:
            known = _ready.setdefault(key, form(kind, strict=strict))
    return known


@overload
def from_json(data: bytes | str | msgspec.Raw, kind: type[T], strict: bool = True) -> T: ...
@overload
def from_json(data: bytes | str | msgspec.Raw, kind: Any, strict: bool = True) -> Any: ...
def from_json(data: bytes | str | msgspec.Raw, kind: Any, strict: bool = True) -> Any:
    """A value of `kind` from JSON text; raises msgspec.DecodeError. Not `strict`: "3" is a number, too."""
    return _decoder(msgspec.json.Decoder, kind, strict).decode(data)


@overload
def from_msgpack(data: bytes, kind: type[T]) -> T: ...
@overload
def from_msgpack(data: bytes, kind: Any) -> Any: ...
def from_msgpack(data: bytes, kind: Any) -> Any:
    """A value of `kind` from msgpack; raises msgspec.DecodeError."""
    return _decoder(msgspec.msgpack.Decoder, kind).decode(data)


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of `kind`, one for all who ask: to make one takes as long as an answer of an agent."""
    return _decoder(msgspec.msgpack.Decoder, kind)


def converted(value: Any, kind: type[T]) -> T:
    """A value of `kind` from plain dicts, lists and numbers; raises msgspec.ValidationError."""
    _decoder(msgspec.msgpack.Decoder, kind)
    return msgspec.convert(value, kind)
