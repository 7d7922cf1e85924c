"""HTML of anybody made whole, so that it stays within the element it is put into. Pure.

What goes out has every tag closed that is opened, and none closed that is not, by the rules that
browsers go by; what a browser reads in different ways in different places is not let through.
Scripts, styles and attributes stay as they are: this keeps a box a box, and guards against nobody.

Source: the HTML standard, "Tree construction", html.spec.whatwg.org.
"""

from __future__ import annotations

from skyward_nb.picture.elements import (
    BREAKS_OUT,
    BUTTON_SCOPE,
    CELL_SCOPE,
    DISPUTED,
    END_SCOPES,
    ENDED_AT_ONCE,
    ENDS_PARAGRAPH,
    ENDS_SAME,
    FORM,
    FORMATTING,
    HEADINGS,
    HIDDEN,
    HOLDS_ITEMS,
    IN_SELECT,
    INTEGRATION,
    LISTS,
    NOTHING,
    PAGE,
    PARAGRAPH,
    PARENTS,
    RAW,
    SCOPE,
    SPECIAL,
    TABLE,
    TABLE_END,
    TABLE_PARTS,
    TABLE_SCOPE,
    TEMPLATE,
    VOID,
)
from skyward_nb.picture.markup import Cursor, Tag, Text

DEEPEST = 200


class _Open:
    """An element that is open; `holds_html` unless what is in it is SVG or MathML.

    One that ended too `early`, before others in it did, ends with the last of these.
    """

    __slots__ = ("early", "holds_html", "name", "spelt")

    def __init__(self, tag: Tag, *, is_foreign: bool) -> None:
        self.name = _foreign_name(tag) if is_foreign else tag.name
        self.spelt = tag.spelt
        self.holds_html = not is_foreign or self.name in INTEGRATION
        self.early = False


def _foreign_name(tag: Tag) -> str:
    if tag.name == "annotation-xml":
        encodings = [(value or "").lower() for key, value in tag.attributes if key == "encoding"]
        if "text/html" in encodings or "application/xhtml+xml" in encodings:
            return ":annotation-html"
    return f":{tag.name}"


def _breaks_out(tag: Tag) -> bool:
    """Whether this ends the SVG or MathML that it is in."""
    if tag.name == "font":
        return any(key.lower() in ("color", "face", "size") for key, _ in tag.attributes)
    return tag.name in BREAKS_OUT


def balanced(text: str) -> str:
    """The HTML made whole."""
    return _Balancer(text).run()


class _Balancer:
    def __init__(self, text: str) -> None:
        self._cursor = Cursor(text)
        self._out: list[str] = []
        self._stack: list[_Open] = []
        self._foreign = 0

    def run(self) -> str:
        while (token := self._cursor.next(foreign=not self._in_html())) is not None:
            if isinstance(token, Text):
                self._out.append(token.raw)
            elif token.is_end:
                self._end(token)
            elif token.name:
                self._start(token)
        self._close_to(0)
        return "".join(self._out)

    # ── the stack ───────────────────────────────────────────────────────────────────────

    def _in_html(self) -> bool:
        return not self._stack or self._stack[-1].holds_html

    def _push(self, tag: Tag, *, is_foreign: bool = False) -> None:
        """Open an element; one that is nested too deep is passed over, what is in it stays."""
        if len(self._stack) >= DEEPEST:
            return
        self._out.append(tag.start())
        self._stack.append(_Open(tag, is_foreign=is_foreign))
        self._foreign += is_foreign

    def _close_to(self, size: int) -> None:
        """Close elements until so many are open, and those that were to end before."""
        while len(self._stack) > size or (self._stack and self._stack[-1].early):
            element = self._stack.pop()
            self._foreign -= element.name.startswith(":")
            self._out.append(f"</{element.spelt}>")

    def _find(self, names: frozenset[str], barrier: frozenset[str]) -> int | None:
        """Where the innermost of these is open, if nothing of `barrier` is in it."""
        for at in range(len(self._stack) - 1, -1, -1):
            name = self._stack[at].name
            if name in names:
                return at
            if name in barrier:
                return None
        return None

    def _close(self, names: frozenset[str], barrier: frozenset[str]) -> None:
        """Close the innermost of these that is open, with all in it."""
        if (at := self._find(names, barrier)) is not None:
            self._close_to(at)

    # ── start tags ──────────────────────────────────────────────────────────────────────

    def _start(self, tag: Tag) -> None:
        if not self._in_html():
            if not _breaks_out(tag):
                self._start_foreign(tag)
                return
            while not self._in_html():
                self._close_to(len(self._stack) - 1)
        if self._in_select() and not self._may_be_in_select(tag):
            return
        if tag.name in RAW:
            self._raw(tag)
        elif tag.name in TABLE_PARTS:
            self._table_part(tag)
        elif tag.name not in PAGE:
            self._start_html(tag)

    def _start_html(self, tag: Tag) -> None:
        self._end_implied(tag.name)
        if tag.name in VOID:
            self._out.append(tag.start())
        elif tag.name in ("svg", "math"):
            self._start_foreign(tag)
        elif tag.name != "form" or self._find(FORM, TEMPLATE) is None:
            self._push(tag)

    def _end_implied(self, name: str) -> None:
        """Close what ends where this begins."""
        if name in ENDS_PARAGRAPH:
            self._close(PARAGRAPH, BUTTON_SCOPE)
        if (same := ENDS_SAME.get(name)) is not None:
            self._close(*same)
            if name in LISTS and self._find(HOLDS_ITEMS, DISPUTED) is None:
                # It would end one that the box is in.
                self._push(Tag(LISTS[name], LISTS[name]))
        elif name in HEADINGS or name in IN_SELECT:
            while self._stack and self._stack[-1].name in ENDED_AT_ONCE[name]:
                self._close_to(len(self._stack) - 1)
        elif name == "table":
            # A table right in a table, and not in one of its cells, ends it.
            self._close(TABLE, CELL_SCOPE)

    def _in_select(self) -> bool:
        at = len(self._stack) - 1
        while at >= 0 and self._stack[at].name in IN_SELECT:
            at -= 1
        return at >= 0 and self._stack[at].name == "select"

    def _may_be_in_select(self, tag: Tag) -> bool:
        """Whether all browsers let it into a list to choose from; if not it is passed over."""
        if tag.name in ("input", "keygen", "textarea", "select"):
            self._close(frozenset({"select"}), NOTHING)
            return tag.name != "select"
        if tag.name in RAW:
            self._skip_raw(tag)
        return tag.name in IN_SELECT or tag.name in ("hr", "template")

    def _table_part(self, tag: Tag) -> None:
        """A part of a table where it can be one; elsewhere it is passed over."""
        table = self._find(TABLE, TABLE_END)
        if table is None:
            return
        inner = self._find(PARENTS.get(tag.name, NOTHING), TABLE)
        self._close_to((table if inner is None else inner) + 1)
        if tag.name in VOID:
            self._out.append(tag.start())
        else:
            self._push(tag)

    def _start_foreign(self, tag: Tag) -> None:
        if tag.name in RAW and tag.name != "plaintext":
            # Text for some readers, tags for others: so there are none in it.
            inside = "" if tag.is_closed else self._cursor.raw(tag.name)
            inside = inside.replace("<![CDATA[", "").replace("]]>", "")
            self._whole(tag, inside.replace("<", "&lt;"))
        elif tag.is_closed:
            self._whole(tag, "")
        else:
            self._push(tag, is_foreign=True)

    # ── text that has no tags ───────────────────────────────────────────────────────────

    def _whole(self, tag: Tag, inside: str) -> None:
        self._out.append(f"{tag.start()}{inside}</{tag.spelt}>")

    def _skip_raw(self, tag: Tag) -> str | None:
        """Take what is in an element without tags; None for a script that does not end."""
        if tag.name == "plaintext":
            return self._cursor.rest()
        if tag.name == "script":
            return self._cursor.script()
        return self._cursor.raw(tag.name)

    def _raw(self, tag: Tag) -> None:
        inside = self._skip_raw(tag)
        if inside is None or tag.name in HIDDEN:
            return
        if tag.name in ("plaintext", "xmp"):
            self._end_implied("pre")
            self._whole(Tag("pre", "pre"), inside.replace("&", "&amp;").replace("<", "&lt;"))
        elif tag.name == "iframe":
            self._whole(tag, "")
        elif tag.name == "textarea" or self._foreign:
            self._whole(tag, inside.replace("<", "&lt;"))
        else:
            self._whole(tag, inside)

    # ── end tags ────────────────────────────────────────────────────────────────────────

    def _end(self, tag: Tag) -> None:
        name = tag.name
        if self._stack and self._stack[-1].name == name:
            self._close_to(len(self._stack) - 1)
            return
        if self._in_select() and name not in IN_SELECT and name not in ("select", "template"):
            return
        either = frozenset({name, f":{name}"})
        if name == "annotation-xml":
            either |= {":annotation-html"}
        if name in FORMATTING and self._in_html():
            self._end_formatting(name)
        elif name == "br":
            self._start(Tag("br", "br"))
        elif name in HEADINGS:
            self._close(HEADINGS, SCOPE)
        elif name in ("table", *TABLE_PARTS):
            self._close(either, TABLE_SCOPE)
        elif name in END_SCOPES:
            self._close(either, END_SCOPES[name])
        else:
            self._close(either, SCOPE if name in SPECIAL else SPECIAL | SCOPE)

    def _end_formatting(self, name: str) -> None:
        for at in range(len(self._stack) - 1, -1, -1):
            element = self._stack[at]
            if element.name == name and not element.early:
                element.early = True
                self._close_to(len(self._stack))
                return
            if element.name in SCOPE:
                return
