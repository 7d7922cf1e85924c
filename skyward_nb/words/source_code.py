"""Source text as a tree, parsed by one thread at a time."""

from __future__ import annotations

import ast
import re
import threading

_parsing = threading.Lock()
"""Two threads that parse at once fail now and then up to Python 3.12: SystemError."""


def parse(text: str, mode: str = "exec") -> ast.AST:
    """What `ast.parse` gives; SyntaxError and ValueError as there."""
    with _parsing:
        return ast.parse(text, mode=mode)


_LIBRARY = re.compile(r"[\\/](site|dist)-packages[\\/]|[\\/]lib[\\/]python3|^<frozen|^<string>")


def is_library(file: str) -> bool:
    """Whether a file is the standard library's or an installed package's."""
    return _LIBRARY.search(file) is not None
