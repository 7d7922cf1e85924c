"""Source text as a tree, parsed by one thread at a time."""

from __future__ import annotations

import ast
import os
import re
import threading

_parsing = threading.Lock()
"""Up to Python 3.12, two threads that parse at once sometimes fail with SystemError."""


def parse(text: str, mode: str = "exec") -> ast.AST:
    """The tree of `ast.parse`; raises the same SyntaxError and ValueError."""
    with _parsing:
        return ast.parse(text, mode=mode)


_LIBRARY = re.compile(r"[\\/](site|dist)-packages[\\/]|[\\/]lib[\\/]python3|^<frozen|^<string>")


def is_library(file: str | os.PathLike[str]) -> bool:
    """Whether a file is of the standard library or an installed package.

    Some packages say their folders by a Path, transformers 5 among them.
    """
    return _LIBRARY.search(os.fspath(file)) is not None
