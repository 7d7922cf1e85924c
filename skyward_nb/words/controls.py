"""Text of others without what a terminal would obey: it may set titles, clipboards and what was written before.

Colours stay (`ESC [ ... m`), and so do lines and tabs. Pure.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")
_OBEYED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]|\r(?!\n)|\x1b(?!\[[0-9;:]*m)")


def spelt(text: str) -> str:
    """The text with such characters spelt, as `repr` spells them."""
    return text if text.isprintable() else _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)


def with_texts_spelt(value: T) -> T:
    """A struct with all text in it `spelt`; the same where there is nothing to change."""
    made: Any = _changed(value)
    return made


def _changed(value: Any) -> Any:
    if type(value) is str:
        return spelt(value)
    if isinstance(value, Struct):
        names, texts = _texts_of(type(value))
        changes: dict[str, Any] = {}
        for name, each in zip(names, texts(value), strict=True):
            if not each or (type(each) is str and each.isprintable()) or _are_plain(each):
                continue
            if (made := _changed(each)) is not each:
                changes[name] = made
        return replace(value, **changes) if changes else value
    if type(value) is tuple:
        made = tuple(map(_changed, value))
        return made if any(new is not old for new, old in zip(made, value, strict=True)) else value
    if type(value) is dict:
        pairs = {_changed(key): _changed(each) for key, each in value.items()}
        return pairs if any(pairs.get(key) is not each for key, each in value.items()) else value
    return value


def _are_plain(texts: object) -> bool:
    """Whether this is a tuple of texts in which there is nothing to change, as nearly always."""
    if type(texts) is not tuple:
        return False
    if len(texts) == 1:
        return type(texts[0]) is str and texts[0].isprintable()
    return all(type(each) is str and each.isprintable() for each in texts)


@functools.cache
def _texts_of(kind: type[Struct]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields that may hold text, and what reads them all: many messages pass here for one cell."""
    names = _with_text(kind)
    if len(names) > 1:
        return names, operator.attrgetter(*names)
    return names, lambda value: tuple(getattr(value, name) for name in names)


@functools.cache
def _with_text(kind: type[Struct]) -> tuple[str, ...]:
    """The fields that may hold text, by the types that decoding has checked: a message is looked at each time."""
    from msgspec import inspect

    def may_hold(wanted: Any) -> bool:
        if isinstance(wanted, inspect.StructType):
            return bool(_with_text(wanted.cls))
        if isinstance(wanted, inspect.UnionType):
            return any(map(may_hold, wanted.types))
        if isinstance(wanted, inspect.VarTupleType):
            return may_hold(wanted.item_type)
        return not isinstance(wanted, without)

    without = (
        inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.NoneType, inspect.BytesType,
        inspect.LiteralType,
    )  # fmt: skip
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return tuple(each.name for each in info.fields if may_hold(each.type))
