"""Whose a file is, by its name."""

from __future__ import annotations

import re

_LIBRARY = re.compile(r"[\\/](site|dist)-packages[\\/]|[\\/]lib[\\/]python3|^<frozen|^<string>")


def is_library(file: str) -> bool:
    """Whether a file is the standard library's or an installed package's."""
    return _LIBRARY.search(file) is not None
