"""What a rank knows of its names, for Tab and for tooltips. Nothing is called to find it out.

But for properties on the way to an attribute, which are read as a person would read them.
"""

from __future__ import annotations

import builtins
import re
from typing import Any

from skyward_nb.pickling.home_namespace import home

_MOST = 1000
_KEY = re.compile(r"(?P<path>[^\W\d][\w.]*)\[(?P<quote>[\"'])(?P<begun>[^\"']*)$")


def completions(line: str, token: str) -> tuple[str, ...]:
    """What may stand in place of `token`, the word at the end of `line`: attributes, or keys of a mapping or table.

    `token` is as IPython cuts it: letters, digits and dots, or the part of a key behind its last
    delimiter.
    """
    try:
        if found := _KEY.search(line):
            kept = found["begun"][: len(found["begun"]) - len(token)]
            keys = _keys(_value(found["path"]))
            fitting = (key for key in keys if key.startswith(found["begun"]))
            return tuple(key[len(kept) :] for key in fitting)[:_MOST]
        path, dot, begun = token.rpartition(".")
        if not dot:
            return ()
        names = [name for name in dir(_value(path)) if name.startswith(begun)]
        shown = [name for name in names if begun or not name.startswith("_")]
        return tuple(f"{path}.{name}" for name in shown)[:_MOST]
    except Exception:  # noqa: BLE001 - no such name, or an object whose own code fails
        return ()


def inspected(name: str, detail: int) -> dict[str, str] | None:
    """What IPython tells of a name, by MIME type; None where there is no such name."""
    shell: Any = vars(builtins)["get_ipython"]()
    try:
        found = shell.object_inspect_mime(name, detail_level=detail)
    except KeyError:
        return None
    return {mime: text for mime, text in found.items() if isinstance(text, str)}


def _value(path: str) -> Any:
    root, *attributes = path.split(".")
    names = home()
    value = names[root] if root in names else vars(builtins)[root]
    for each in attributes:
        value = getattr(value, each)
    return value


def _keys(value: Any) -> list[str]:
    keys = value.keys() if hasattr(value, "keys") else getattr(value, "columns", ())
    return [key for key in keys if isinstance(key, str)]
