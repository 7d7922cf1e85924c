"""What ranks display, as HTML within our own."""

import base64
import json

import pytest

from skyward_nb.picture.rich import MOST_JSON, rich_html
from skyward_nb.words.bundles import WIDGET

PNG = base64.b64encode(b"\x89PNG not really").decode()


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_images_stand_in_the_html(kind):
    data = {f"image/{kind}": PNG[:8] + "\n" + PNG[8:], "text/html": "<b>x</b>", "text/plain": "x"}
    assert rich_html(data, "figure of rank 3") == (
        f'<img alt="figure of rank 3" style="max-width:100%" src="data:image/{kind};base64,{PNG}">'
    )


def test_nothing_escapes_from_an_image():
    html = rich_html({"image/png": '"><script>x</script>'}, 'a "figure" <b>')
    assert html.count("<") == 1
    assert html.count('"') == 6


def svg_of(html):
    head, data = html.split('src="data:image/svg+xml;base64,')
    assert head.startswith("<img ")
    return base64.b64decode(data.partition('"')[0]).decode()


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("<svg><g/></svg>", '<svg xmlns="http://www.w3.org/2000/svg"><g/></svg>'),
        ('<svg xmlns="http://www.w3.org/2000/svg"/>', '<svg xmlns="http://www.w3.org/2000/svg"/>'),
        ('\n<?xml version="1.0" encoding="latin-1"?>\n<!-- é --><svg xmlns="s"></svg>',
         '<!-- é --><svg xmlns="s"></svg>'),
    ],
)  # fmt: skip
def test_svg_is_an_image_too(text, file):
    assert svg_of(rich_html({"image/svg+xml": text, "text/plain": "x"}, "x")) == file


def test_svg_that_is_broken_is_told():
    broken = {"image/svg+xml": "<svg><g></svg>", "text/plain": "<Figure>"}
    html = rich_html(broken, "x")
    assert "This SVG image cannot be shown, it is not well-formed: mismatched tag" in html
    assert "&lt;Figure&gt;</pre>" in html
    assert "<img" not in html
    assert rich_html({**broken, "text/html": "<i>x</i>"}, "x").endswith("<i>x</i>")
    assert "cannot be shown" in rich_html({"image/svg+xml": "<svg"}, "x")


@pytest.mark.parametrize(
    ("data", "html"),
    [
        ({"text/html": "<b>x</b>", "text/latex": "$x$"}, "<b>x</b>"),
        ({"text/latex": "$a < b$", "text/markdown": "x"}, "<div>$a &lt; b$</div>"),
        ({"text/markdown": "# <x>\n", "text/plain": "x"},
         '<div style="white-space:pre-wrap"># &lt;x&gt;\n</div>'),
    ],
)  # fmt: skip
def test_the_best_of_a_bundle_is_shown(data, html):
    assert rich_html(data, "x") == html


def test_plain_text_is_text():
    html = rich_html({"text/plain": "<b>1 & 2</b>\n  x"}, "x")
    assert html.endswith(">&lt;b&gt;1 &amp; 2&lt;/b&gt;\n  x</pre>")


def test_json_is_pretty_and_bounded():
    html = rich_html({"application/json": '{"a":["é",1]}', "text/plain": "<JSON>"}, "x")
    assert '{\n  &quot;a&quot;: [\n    &quot;é&quot;,\n    1\n  ]\n}</pre>' in html  # fmt: skip
    assert ">{no json&lt;</pre>" in rich_html({"application/json": "{no json<"}, "x")
    for count in (10_000, 1_000_000):
        html = rich_html({"application/json": json.dumps(list(range(count)))}, "x")
        assert len(html) < MOST_JSON + 1000
        assert "more characters" in html
    deep = "[" * 100_000 + "]" * 100_000
    assert "more characters" in rich_html({"application/json": deep}, "x")


def test_a_widget_is_told_and_what_to_do():
    html = rich_html({WIDGET: "{}", "text/plain": "IntSlider(value=0)"}, "x")
    assert "IntSlider(value=0) is a widget of a rank." in html
    assert "make the widget in the notebook" in html
    assert html.count("IntSlider") == 1
    assert "This is a widget of a rank." in rich_html({WIDGET: "{}"}, "x")
    assert len(rich_html({WIDGET: "{}", "text/plain": "HBox(" * 1000}, "x")) < 1000
    assert rich_html({WIDGET: "{}", "text/html": "<i>x</i>"}, "x") == "<i>x</i>"


def test_what_cannot_be_shown_is_named():
    html = rich_html({"application/vnd.x.v1+json": "{}", "video/mp4": "", "text/plain": "<X>"}, "x")
    assert "displays as application/vnd.x.v1+json, video/mp4 cannot be shown here" in html
    assert "&lt;X&gt;</pre>" in html
    html = rich_html({"application/javascript": "alert(1)"}, "x")
    assert "not run here" in html
    assert "alert" not in html
    assert "contains nothing to show" in rich_html({}, "x")
