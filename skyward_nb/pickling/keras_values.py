"""What attributes of Keras's objects hold: as it was given, and whether two are the same."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from skyward_nb.compat import keras_private

UNKNOWN = object()
_COMPARED = (int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


@dataclass(frozen=True)
class Since:
    """Arguments that Keras has noted: containers as `given`, for Keras writes lists for tuples; attributes as they are `now`."""

    given: dict[str, Any]
    now: dict[str, Any]


def value_of(made: Any, name: str) -> Any:
    """An attribute; `UNKNOWN` where it is not there, or a property that cannot tell."""
    with contextlib.suppress(Exception):
        return plain(getattr(made, name))
    return UNKNOWN


def is_data(value: Any) -> bool:
    """Whether this is a number, a text or None, or a list, tuple or dictionary of such."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        return all(map(is_data, value))
    return value is None or isinstance(value, (int, float, str))


def plain(value: Any) -> Any:
    """Lists, dictionaries and sets that Keras watches, as they were given, at any depth."""
    if type(value) is tuple:
        return tuple(plain(each) for each in value)
    if not keras_private.is_kerass(type(value)):
        return value
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return set(value) if isinstance(value, set) else value


def as_lists(value: Any) -> Any:
    """Tuples as lists, at any depth: Keras writes either."""
    return [as_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


def is_kept(kept: Any, given: Any) -> bool:
    """Whether what was given is kept as it is."""
    # Arrays in a list do not say whether they are equal.
    with contextlib.suppress(Exception):
        return kept is given or (isinstance(given, _COMPARED) and bool(kept == given))
    return False
