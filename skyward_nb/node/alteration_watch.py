"""Which containers a cell changed in place, of the names that its text says it may change."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any

from skyward_nb.pickling.sizes import looks_big, measure

_CONTAINERS = (
    list, dict, set, bytearray, deque, Counter, OrderedDict, defaultdict,
)  # fmt: skip
_MOST = 100_000
"""Bytes of a container that is compared as a whole; of a larger one, its length is."""


def prints_of(names: Iterable[str], namespace: Mapping[str, Any]) -> dict[str, object]:
    """What tells of each of these names whether its container has changed; others are left out."""
    return {
        name: _print_of(namespace[name])
        for name in names
        if type(namespace.get(name)) in _CONTAINERS
    }


def altered(before: Mapping[str, object], namespace: Mapping[str, Any]) -> tuple[str, ...]:
    """The names whose containers have changed since."""
    now = prints_of(before, namespace)
    return tuple(name for name in before if name in now and now[name] != before[name])


def _print_of(value: Any) -> object:
    if looks_big(value) or measure(value)[0] > _MOST:
        return len(value)
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - a user's objects may refuse
        return len(value)
