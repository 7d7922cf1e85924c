"""MIME bundles of ranks' displays: the parts that are small enough to travel. Pure."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping

from skyward_nb.words.controls import spelt
from skyward_nb.words.errors import spell_size

LARGEST_PART = 10_000_000
LONGEST_TEXT = 100_000
HTML = "text/html"
SVG = "image/svg+xml"
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
WIDGET = "application/vnd.jupyter.widget-view+json"

_FRAME = 'style="width:100%;height:24em;border:0;resize:vertical;background:#fff"'
_BINARY = ("image/", "audio/", "video/", "application/pdf", "application/octet-stream")
_WORDS = {
    "image": "a figure",
    "video": "a video",
    "audio": "a sound",
    HTML: "HTML",
    "application/json": "JSON",
}


def fitting(data: Mapping[str, str], limit: int = LARGEST_PART) -> dict[str, str]:
    """The bundle without its parts of more than `limit` bytes; if all are too large, its text says so.

    The size of a part is that of its decoded base64, or of its text in UTF-8. `text/plain` always stays, and
    is cut if it is long.
    """
    sizes = {mime: part_size(mime, text) for mime, text in data.items() if mime != "text/plain"}
    kept = {mime: data[mime] for mime, size in sizes.items() if size <= limit}
    text = data.get("text/plain")
    told = "" if kept else "\n".join(_refusal(mime, sizes[mime], limit) for mime in sizes)
    if text is not None:
        text = shortened(text, LONGEST_TEXT)
        told = f"{text}\n{told}" if told else text
    if text is not None or told:
        kept["text/plain"] = told
    return kept


def framed(text: str) -> str:
    """HTML in a frame, where its scripts reach neither the page nor its origin."""
    return f'<iframe sandbox="allow-scripts" {_FRAME} srcdoc="{html.escape(text)}"></iframe>'


def boxed(data: Mapping[object, object]) -> dict[str, str]:
    """The text and images of a bundle that a page trusts, its HTML or SVG in a frame; nothing else of it.

    Images may be bytes, as IPython's formatter makes them, or base64.
    """
    kept: dict[str, str] = {}
    for mime, part in data.items():
        if mime in IMAGES and isinstance(part, str | bytes):
            kept[mime] = part if isinstance(part, str) else base64.b64encode(part).decode()
    for mime in (HTML, SVG):
        part = data.get(mime)
        if isinstance(part, str) and HTML not in kept:
            kept[HTML] = framed(part)
    text = data.get("text/plain")
    if isinstance(text, str):
        kept["text/plain"] = shortened(spelt(text), LONGEST_TEXT)
    return kept


def part_size(mime: str, text: str) -> int:
    """The bytes of one part of a bundle."""
    if is_binary(mime):
        return len(text) * 3 // 4 - text[-2:].count("=")
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def is_binary(mime: str) -> bool:
    """Whether bundles have parts of this type as base64."""
    return mime.startswith(_BINARY) and not mime.endswith("+xml")


def shortened(text: str, most: int) -> str:
    """The text cut after so many characters, with the number of those left out."""
    more = len(text) - most
    return f"{text[:most]}\n… {more:,} more characters" if more > 0 else text


def _refusal(mime: str, size: int, limit: int) -> str:
    what = _WORDS.get(mime) or _WORDS.get(mime.partition("/")[0]) or "something"
    return (
        f"{what} of {spell_size(size)} ({mime}) is not shown: more than {spell_size(limit)}. "
        f"Save it to a file there, or {'draw' if what == 'a figure' else 'make'} it smaller."
    )
