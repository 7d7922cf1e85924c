"""Printed colours as HTML: escaped, well formed, readable on light and dark pages."""

import re
from html.parser import HTMLParser

import pytest

from skyward_nb.picture.colours import coloured, contrast, plain

PAGES = {"white": (255, 255, 255), "JupyterLab dark": (17, 17, 17), "VS Code dark": (30, 30, 30)}
NAMED = [*range(30, 38), *range(90, 98)]


def rgb(kind, text):
    found = re.search(rf"(?<![-\w]){kind}:#(\w{{6}})", coloured(text))
    return tuple(bytes.fromhex(found[1])) if found else None


@pytest.mark.parametrize(
    ("line", "html"),
    [
        ("", ""),
        ("plain", "plain"),
        ("<b> & </b>", "&lt;b&gt; &amp; &lt;/b&gt;"),
        ("\x1b[1mbold\x1b[0m, not", "<b>bold</b>, not"),
        ("\x1b[1;3;4;9mall\x1b[0m", "<b><i><u><s>all</s></u></i></b>"),
        ("\x1b[1ma\x1b[0;3mb\x1b[0m", "<b>a</b><i>b</i>"),
        ("\x1b[2m<\x1b[0m", '<span style="opacity:.75">&lt;</span>'),
        ("\x1b[31mred\x1b[0m", '<span style="color:#d73229">red</span>'),
        ("\x1b[1;31mred\x1b[0m", '<b><span style="color:#d73229">red</span></b>'),
        (
            "\x1b[38;2;0;0;0;48;2;1;255;3mx\x1b[0m",
            '<span style="color:#000000;background-color:#01ff03">x</span>',
        ),
    ],
)
def test_a_line_as_html(line, html):
    assert coloured(line) == html


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    "colour", [*NAMED, *(f"38;5;{n}" for n in (0, 9, 15, 16, 21, 46, 226, 231, 232, 255))]
)
def test_letters_can_be_read_on_every_page(colour, page):
    assert contrast(rgb("color", f"\x1b[{colour}mx\x1b[0m"), PAGES[page]) >= 3


@pytest.mark.parametrize("paper", [*range(40, 48), *range(100, 108), "48;5;17", "48;5;229"])
@pytest.mark.parametrize("ink", ["", *(f"{n};" for n in NAMED)])
def test_letters_can_be_read_on_what_is_behind_them(ink, paper):
    line = f"\x1b[{ink}{paper}mx\x1b[0m"
    assert contrast(rgb("color", line), rgb("background-color", line)) >= 3
    inverse = f"\x1b[7;{ink}{paper}mx\x1b[0m"
    assert contrast(rgb("color", inverse), rgb("background-color", inverse)) >= 3


def test_named_colours_differ():
    assert len({rgb("color", f"\x1b[{n}mx\x1b[0m") for n in NAMED}) == len(NAMED)


def test_inverse_swaps():
    assert rgb("background-color", "\x1b[7;31mx\x1b[0m") == rgb("color", "\x1b[31mx\x1b[0m")
    assert rgb("background-color", "\x1b[7mx\x1b[0m") is not None


def test_tags_are_closed_in_order():
    opened = []

    class Check(HTMLParser):
        def handle_starttag(self, tag, attrs):
            opened.append(tag)

        def handle_endtag(self, tag):
            assert opened.pop() == tag

    Check().feed(coloured("a\x1b[1;4;31mb\x1b[0;7;38;5;9mc\x1b[0md\x1b[2;3;9me\x1b[0m"))
    assert opened == []


def test_plain_has_no_escape():
    assert plain("\x1b[1;31mred\x1b[0;4mline\x1b[0m <") == "redline <"
    assert plain("as it is") == "as it is"
