"""Whether HTML is closed in itself, so that it stays within the element it is put into. Pure.

Each tag is closed where it was opened, as `html.parser` reads it; what browsers read in another way
in some places counts as not well-formed. This keeps a box a box, and guards against nobody.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BOX = "skyward-box"
_DEEPEST = 200
"""Browsers close elements that are nested deeper than about 500."""
_VOID = _names("area br col embed hr img input link meta param source track wbr")
# They change the page around them, or take all that follows for their text.
_REFUSED = _names("base frame frameset plaintext")
# Browsers give their attributes to the page, and pass over the rest.
_PAGE = _names("html head body")
# Tags in them count for some readers only.
_RAW = _names("iframe noembed noframes noscript script style textarea title xmp")

# Where a comment ends that has one of these is read in two ways, by releases of html.parser, too.
_TWO_WAYS = re.compile(r"--!>|<!---?>")


def is_well_formed(text: str) -> bool:
    """Whether the HTML may stand as it is within an element."""
    if _TWO_WAYS.search(text):
        return False
    reader = _Reader()
    try:
        reader.feed(f"<{_BOX}>{text}</{_BOX}>")
    except AssertionError:  # what html.parser says of some declarations
        return False
    return reader.is_whole and not reader.open


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.open: list[str] = []
        self.is_whole = True
        self._has_escaped = False

    def _refuse_if(self, is_wrong: bool) -> None:
        self.is_whole = self.is_whole and not is_wrong

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._refuse_if(tag in _REFUSED or len(self.open) > _DEEPEST or self._in_raw())
        self._refuse_if((tag in _PAGE and bool(attrs)) or "http-equiv" in dict(attrs))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            # HTML knows no such tags; drawings and formulas do.
            self._refuse_if(not {"svg", "math"} & set(self.open))
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        self._refuse_if(not self.open or self.open.pop() != tag)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] in (["script"], ["style"]):
            lower = data.lower()
            # A script begun within a comment in a script hides the end that follows.
            self._has_escaped |= "<!--" in data
            self._refuse_if(self._has_escaped and "<script" in lower)
            self._refuse_if(f"</{self.open[-1]}" in lower)
        else:
            self._refuse_if("<" in data)

    def handle_comment(self, data: str) -> None:
        self._refuse_if(self._in_raw())

    def handle_decl(self, decl: str) -> None:
        self.is_whole = False

    def unknown_decl(self, data: str) -> None:
        self.is_whole = False

    def handle_pi(self, data: str) -> None:
        self.is_whole = False

    def _in_raw(self) -> bool:
        return bool(self.open) and self.open[-1] in _RAW
