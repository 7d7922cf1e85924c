"""HTML cut into tags and text as browsers cut it. Pure.

Source: the HTML standard, "Tokenization", html.spec.whatwg.org. Python's own `html.parser` cuts
in other places, and in different ones from version to version.
"""

from __future__ import annotations

import re

import msgspec

# A space as HTML knows it; carriage returns are line feeds by then.
_SPACE = r"[\t\n\f ]"
_SIMPLE = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*+)>")
_NAME = re.compile(r"</?([a-zA-Z][^\t\n\f />]*)")
_ATTRIBUTE = re.compile(
    rf"""[\t\n\f /]*+
    (=[^\t\n\f />=]*+ | [^\t\n\f />=]++)
    (?:{_SPACE}*+ = {_SPACE}*+
        (?: "([^"]*+)" | '([^']*+)' | (?!["']) ([^\t\n\f >]*+) ))?+""",
    re.VERBOSE,
)
_TAG_END = re.compile(r"[\t\n\f /]*+>")
_COMMENT_END = re.compile(r"--!?>")
_SCRIPT_STEP = re.compile(r"<!--|-->|<(/?)script(?=[\t\n\f />])", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9:._-]*", re.IGNORECASE)
_PLAIN_KEY = re.compile(r"[^\s\"'<>/=\x00-\x1f]+")
_OPENS = re.compile(rf"{_SPACE}*+={_SPACE}*+[\"']")


class Text(msgspec.Struct, frozen=True):
    """Characters between tags, references to characters in them as they were written."""

    raw: str


class Tag(msgspec.Struct, frozen=True):
    """A tag; `name` is in lower case, `spelt` as it was written.

    Values of `attributes` have their references to characters as they were written, too.
    """

    name: str
    spelt: str
    is_end: bool = False
    is_closed: bool = False
    attributes: tuple[tuple[str, str | None], ...] = ()

    def start(self) -> str:
        """The start tag, written so that everybody reads the same."""
        if not self.attributes:
            return f"<{self.spelt}>"
        parts = [
            key if value is None else f'{key}="{value.replace(chr(34), "&quot;")}"'
            for key, value in self.attributes
            if _PLAIN_KEY.fullmatch(key)
        ]
        return f"<{' '.join([self.spelt, *parts])}>"


class Cursor:
    """Goes through HTML token by token; comments and declarations are passed over."""

    def __init__(self, text: str) -> None:
        text = text.replace("\0", "\ufffd")
        self._text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._at = 0
        self._simple: dict[str, Tag] = {}

    def next(self, *, foreign: bool = False) -> Text | Tag | None:
        """The next token, or None at the end; a tag that does not end is none.

        In `foreign` elements, those of SVG and MathML, there are CDATA sections.
        """
        while self._at < len(self._text):
            at = self._text.find("<", self._at)
            if at != self._at:
                return Text(self._to(at))
            if simple := _SIMPLE.match(self._text, at):
                self._at = simple.end()
                return self._simple.get(simple[0]) or self._simple_tag(simple)
            if name := _NAME.match(self._text, at):
                return self._tag(name)
            if foreign and self._text.startswith("<![CDATA[", at):
                self._at += 9
                inside = self._until("]]>")
                return Text(inside.replace("&", "&amp;").replace("<", "&lt;"))
            if not self._skip(at):
                self._at += 1
                return Text("&lt;")
        return None

    def _to(self, end: int) -> str:
        end = end if end >= 0 else len(self._text)
        start, self._at = self._at, end
        return self._text[start:end]

    def _until(self, mark: str) -> str:
        found = self._to(self._text.find(mark, self._at))
        self._at = min(self._at + len(mark), len(self._text))
        return found

    def _skip(self, at: int) -> bool:
        """Pass over a comment, or what browsers take for one; whether it was."""
        follows = self._text[at + 1 : at + 4]
        if follows == "!--":
            self._at = _comment_end(self._text, at + 4)
        elif follows[:1] in ("!", "?") or (follows[:1] == "/" and len(follows) > 1):
            self._until(">")
        else:
            return False
        return True

    def _simple_tag(self, found: re.Match[str]) -> Tag:
        """A tag without attributes; most are of this kind, and there are few different ones."""
        tag = Tag(name=found[2].lower(), spelt=found[2], is_end=bool(found[1]))
        self._simple[found[0]] = tag
        return tag

    def _tag(self, name: re.Match[str]) -> Tag | None:
        attributes: list[tuple[str, str | None]] = []
        at = name.end()
        while (end := _TAG_END.match(self._text, at)) is None:
            attribute = _ATTRIBUTE.match(self._text, at)
            if attribute is None or self._is_open(attribute):
                self._at = len(self._text)
                return None
            value = next((each for each in attribute.groups()[1:] if each is not None), None)
            attributes.append((attribute[1], value))
            at = attribute.end()
        self._at = end.end()
        spelt = name[1] if _PLAIN_NAME.fullmatch(name[1]) else ""
        return Tag(
            name=spelt.lower(),
            spelt=spelt,
            is_end=name[0].startswith("</"),
            is_closed=end[0].endswith("/>"),
            attributes=tuple(attributes),
        )

    def _is_open(self, attribute: re.Match[str]) -> bool:
        """Whether what was taken for an attribute has a quote that is closed nowhere."""
        has_value = attribute.lastindex != 1
        return not has_value and _OPENS.match(self._text, attribute.end()) is not None

    def raw(self, name: str) -> str:
        """What follows up to the end tag `name`, or to the end: no tags count in it.

        The end tag is passed over.
        """
        end = re.compile(rf"</{re.escape(name)}(?=[\t\n\f />])", re.IGNORECASE)
        found = end.search(self._text, self._at)
        inside = self._to(found.start() if found else -1)
        if found:
            self.next()
        return inside

    def script(self) -> str | None:
        """The text of a script, its end tag passed over; None if it does not end."""
        escaped = doubly = False
        at = start = self._at
        while step := _SCRIPT_STEP.search(self._text, at):
            at = step.end()
            if step[0] == "<!--":
                escaped = True
                # Its dashes may be those of the end, too: <!-->
                at = step.start() + 2
            elif step[0] == "-->":
                escaped = doubly = False
            elif not step[1]:
                doubly = doubly or escaped
            elif doubly:
                doubly = False
            else:
                self._at = step.start()
                self.next()
                return self._text[start : step.start()]
        self._at = len(self._text)
        return None

    def rest(self) -> str:
        """All that follows."""
        return self._to(-1)


def _comment_end(text: str, at: int) -> int:
    """Where a comment ends whose text begins at `at`."""
    for short in (">", "->"):
        if text.startswith(short, at):
            return at + len(short)
    end = _COMMENT_END.search(text, at)
    return end.end() if end else len(text)
