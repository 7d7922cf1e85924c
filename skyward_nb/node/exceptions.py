"""A rank's exception made ready to be raised in the notebook as itself."""

from __future__ import annotations

from typing import Any

from skyward_nb.node.uplink import encodable
from skyward_nb.pickling.payload import pack, unpack
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.bounds import MESSAGE, bounded
from skyward_nb.words.errors import PayloadError


def pack_exception(error: BaseException, store: BlobStore) -> Packed | None:
    """The exception as it pickles itself if that can be undone, else its portrait.

    One whose text is longer than a notebook should hold has only a portrait, with shorter args.
    """
    is_long = len(text_of(error)) > MESSAGE
    for form in (_Portrait(error, is_long=is_long),) if is_long else (error, _Portrait(error)):
        try:
            packed = pack("the exception", form).stow(store)
            if type(unpack(packed, store)) is type(error):
                return packed
        except Exception:  # noqa: BLE001, S112 - a user's class may raise anything here
            continue
    return None


def text_of(error: BaseException) -> str:
    """An exception's text, which can travel, even if its class cannot say it."""
    try:
        return encodable(str(error))
    except Exception:  # noqa: BLE001 - a user's broken __str__
        return "(its text cannot be shown)"


def _rebuild(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    """An exception without its own `__init__`, which may want other arguments than `args`."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class _Portrait:
    """Pickles as an exception of the same class, with those of its attributes that can travel."""

    def __init__(self, error: BaseException, *, is_long: bool = False) -> None:
        self._error = error
        self._is_long = is_long

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        state = {key: value for key, value in vars(error).items() if _can_travel(value)}
        args = tuple(value if _can_travel(value) else repr(value) for value in error.args)
        return _rebuild, (type(error), tuple(map(_short, args)) if self._is_long else args, state)


def _short(value: object) -> object:
    """An argument of an exception as it is, or text in its place when it would be long to read."""
    text = value if isinstance(value, str) else repr(value)
    is_exceptions = isinstance(value, list | tuple) and all(
        isinstance(each, BaseException) for each in value
    )
    return value if len(text) <= MESSAGE or is_exceptions else bounded(text)


def _can_travel(value: object) -> bool:
    try:
        pack("an attribute", value)
    except PayloadError:
        return False
    return True
