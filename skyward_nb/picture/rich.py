"""A rank's displayed object as HTML within the picture. Pure.

A bundle maps MIME types to text: what is binary stands in it as base64, what is no text as JSON.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping
from xml.parsers import expat

from skyward_nb.picture.wellformed import is_well_formed
from skyward_nb.words.bundles import IMAGES, SVG, WIDGET, framed, shortened

MOST_JSON = 20_000
_PARSED_JSON = 1_000_000
_SVG_NAME = "http://www.w3.org/2000/svg"
_PROLOG = re.compile(r"\s*<\?xml[^>]*\?>")
_SVG_START = re.compile(r"<svg(?=[\s/>])")
_WIDGET_WORDS = 200
_PRE = (
    "margin:0;padding:0;background:transparent;color:inherit;white-space:pre-wrap;"
    "font:12.5px/1.45 var(--jp-code-font-family,ui-monospace,SFMono-Regular,Menlo,monospace)"
)
_FRAMED = (
    "This HTML has tags that are not closed, or closed and not opened: it is shown in a frame."
)
_NOTE = "color:var(--jp-ui-font-color2,#656d76);font-size:12.5px"


def rich_html(data: Mapping[str, str], what: str) -> str:
    """The best of a bundle as HTML that stays within the element it is put into.

    `what` says what it is, as in `figure of rank 3`, to those who do not see it. What cannot be
    shown here is told, with its text if it has one.
    """
    for mime in IMAGES:
        if mime in data:
            return _image(mime, "".join(data[mime].split()), what)
    notes: list[str] = []
    if SVG in data:
        try:
            return _image(SVG, base64.b64encode(_svg(data[SVG])).decode(), what)
        except expat.ExpatError as error:
            notes.append(f"This SVG image cannot be shown, it is not well-formed: {error}.")
    for mime, draw in _DRAWN.items():
        if mime in data:
            return "".join(map(_note, notes)) + draw(data[mime])
    notes += _notes(data)
    text = data.get("text/plain")
    if text is not None and WIDGET not in data:
        return "".join(map(_note, notes)) + _pre(text)
    return "".join(map(_note, notes or ["It contains nothing to show."]))


def _image(mime: str, data: str, what: str) -> str:
    source = f"data:{mime};base64,{html.escape(data)}"
    return f'<img alt="{html.escape(what)}" style="max-width:100%" src="{source}">'


def _svg(text: str) -> bytes:
    """An SVG image as a file of its own; raises `ExpatError` for what no browser shows as one.

    In HTML it needs neither a namespace nor a name for its encoding, as a file it does.
    """
    text = _PROLOG.sub("", text, count=1).strip()
    root = _SVG_START.search(text)
    if root and "xmlns=" not in text[root.start() : text.find(">", root.start())]:
        text = f'{text[: root.end()]} xmlns="{_SVG_NAME}"{text[root.end() :]}'
    data = text.encode("utf-8", "replace")
    expat.ParserCreate(namespace_separator=" ").Parse(data, True)
    return data


def _html(text: str) -> str:
    """HTML as it is where it stays within its element; in a frame where it might not."""
    if is_well_formed(text):
        return text
    return _note(_FRAMED) + framed(text)


def _latex(text: str) -> str:
    """Formulas between dollar signs, which the notebook's own MathJax finds."""
    return f"<div>{html.escape(text)}</div>"


def _markdown(text: str) -> str:
    return f'<div style="white-space:pre-wrap">{html.escape(text)}</div>'


def _json(text: str) -> str:
    # What is very long is cut before it is read.
    if len(text) <= _PARSED_JSON:
        try:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            """It is shown as it is."""
    return _pre(shortened(text, MOST_JSON))


def _pre(text: str) -> str:
    return f'<pre style="{_PRE}">{html.escape(text)}</pre>'


def _note(text: str) -> str:
    return f'<div style="{_NOTE}">{html.escape(text)}</div>'


_DRAWN = {
    "text/html": _html,
    "text/latex": _latex,
    "text/markdown": _markdown,
    "application/json": _json,
}


def _notes(data: Mapping[str, str]) -> list[str]:
    """Sentences on what a bundle has that cannot be shown."""
    if WIDGET in data:
        name = " ".join(data.get("text/plain", "").split())
        name = f"{name[:_WIDGET_WORDS]}…" if len(name) > _WIDGET_WORDS else name
        return [
            f"{name or 'This'} is a widget of a rank. Such widgets cannot be shown: clicks "
            "on them here would not reach the rank. Show its value instead, or make the widget in "
            "the notebook."
        ]
    others = [mime for mime in data if mime not in ("text/plain", SVG)]
    if not others:
        return []
    if others == ["application/javascript"]:
        return ["JavaScript that a rank displays is not run here: display HTML or an image."]
    names = ", ".join(others)
    return [f"What a rank displays as {names} cannot be shown here: display HTML or an image."]
