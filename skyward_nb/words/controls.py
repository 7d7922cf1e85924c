"""Text of others without what a terminal would obey: it may set titles, clipboards and what was written before.

Colours stay (`ESC [ ... m`), and so do lines and tabs. Pure.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")
_OBEYED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]|\r(?!\n)|\x1b(?!\[[0-9;:]*m)")


def shown(text: str) -> str:
    """The text with such characters spelt, as `repr` spells them."""
    return text if text.isprintable() else _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)


def with_texts_shown(value: T) -> T:
    """A struct with all text in it `shown`; the same where there is nothing to change."""
    made: Any = _changed(value)
    return made


def _changed(value: Any) -> Any:
    if type(value) is str:
        return shown(value)
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changes = {
            name: made for name, each in fields.items() if (made := _changed(each)) is not each
        }
        return replace(value, **changes) if changes else value
    if type(value) is tuple:
        made = tuple(map(_changed, value))
        return made if any(new is not old for new, old in zip(made, value, strict=True)) else value
    if type(value) is dict:
        pairs = {_changed(key): _changed(each) for key, each in value.items()}
        return pairs if any(pairs.get(key) is not each for key, each in value.items()) else value
    return value
