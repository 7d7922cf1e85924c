"""Colours. (Being built.)"""

import html
import re


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text) if "\x1b" in text else text


def coloured(text: str) -> str:
    return html.escape(plain(text), quote=False)
