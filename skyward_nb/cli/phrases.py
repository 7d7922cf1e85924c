"""Words of the magics as words of a terminal."""

from __future__ import annotations

import re

_OF_THE_MAGIC = re.compile(r"%sky (?=(?:status|logs|down|sweep|bake|check|help)\b)")


def at_terminal(text: str) -> str:
    """Words on a verb of `%sky` as words on the command that does the same."""
    return _OF_THE_MAGIC.sub("skyward-nb ", text)
