"""The names that code of a notebook, or of a script, may read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from skyward_nb.pickling.home_namespace import home, set_home

_IPYTHONS_OWN = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[ido]h|In|Out|exit|quit|get_ipython")


def namespace_of(shell: InteractiveShell | None) -> Mapping[str, Any]:
    """Those of a notebook, or of the script that runs, whose namespace is its functions' home."""
    if shell is not None:
        if not home():
            set_home(shell.user_ns)
        return NotebookNames(shell.user_ns)
    script = vars(sys.modules["__main__"])
    if not home():
        set_home(script)
    return script


class NotebookNames(Mapping[str, Any]):
    """The notebook's own names, without those IPython keeps there."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def __getitem__(self, name: str) -> Any:
        if _IPYTHONS_OWN.fullmatch(name):
            raise KeyError(name)
        value = self._namespace[name]
        if name == "open" and _is_ipythons(value):
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        if name == "open" and _is_ipythons(self._namespace.get("open")):
            return False
        return name in self._namespace and not _IPYTHONS_OWN.fullmatch(str(name))

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._namespace if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_ipythons(value: object) -> bool:
    """Whether a function is IPython's own: it puts an `open` of its own into the namespace."""
    return getattr(value, "__globals__", {}).get("__name__", "").startswith("IPython.")
