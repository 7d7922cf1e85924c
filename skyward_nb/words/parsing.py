"""Source text as a tree, parsed by one thread at a time."""

from __future__ import annotations

import ast
import threading

_parsing = threading.Lock()
"""Two threads that parse at once fail now and then up to Python 3.12: SystemError."""


def parse(text: str, mode: str = "exec") -> ast.AST:
    """What `ast.parse` gives; SyntaxError and ValueError as there."""
    with _parsing:
        return ast.parse(text, mode=mode)
