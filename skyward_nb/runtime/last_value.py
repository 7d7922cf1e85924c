"""How the value of a cell is shown where it cannot travel."""

from __future__ import annotations

import reprlib
from typing import Any

from skyward_nb.pickling.home_namespace import home
from skyward_nb.words.bounds import SHOWN, SHOWN_LINES, cut

_MOST_OF_A_TEXT = 200
_MOST_ITEMS = 1000
_CONTAINERS = (list, tuple, dict, set, frozenset)


def shown_last() -> str:
    """The value of this rank's last cell, as `shown`."""
    return shown(home().get("_"))


def shown(value: Any) -> str:
    """A value as a cell shows it, in a few lines; one that cannot be shown is named by its class."""
    if type(value) in (str, bytes) and len(value) > SHOWN:
        return f"{value[:_MOST_OF_A_TEXT]!r} …"
    try:
        is_long = isinstance(value, _CONTAINERS) and len(value) > _MOST_ITEMS
        text = reprlib.repr(value) if is_long else repr(value)
        return cut(text, SHOWN // 2, SHOWN_LINES - 2)
    except Exception as error:  # noqa: BLE001 - a user's broken __repr__
        return f"<{type(value).__name__}, its repr raises {type(error).__name__}>"
