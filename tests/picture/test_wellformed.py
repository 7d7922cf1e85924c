"""HTML that ranks display: what is good stays as it is, and nothing leaves its box."""

import html

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward_nb.picture.rich import rich_html
from skyward_nb.picture.wellformed import is_well_formed

GOOD = [
    "",
    "plain &amp; text, 1 &lt; 2 > 0 &nbsp;",
    '<p class="x">a<br>b</p><hr><img src="a.png">',
    "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>",
    "<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1<table><tr><td>x</td></tr></table></td>"
    "</tr></tbody></table>",
    "<style>td > a { color: red } /* </b> */</style>",
    '<script type="module">if (a < b && c > d) { x = "<b>" }</script>',
    '<svg viewBox="0 0 1 1"><linearGradient id="g"></linearGradient><path d="M0"></path></svg>',
    "<svg><foreignObject><div><b>x</b></div></foreignObject></svg><math><mi>x</mi></math>",
    "<details open><summary>a</summary>b</details>",
    "<textarea>a &lt;b&gt;</textarea>",
    "<select><option>a</option><optgroup><option>b</option></optgroup></select>",
    "<my-element><slot></slot></my-element>",
    "<template><div>x</div></template>",
    '<iframe src="x"></iframe>',
    "<dl><dt>a</dt><dd>b</dd></dl>",
    '<a href="?a=1&b=2&amp;c">x</a>',
    "<!-- a comment --><br /><input type='checkbox' />",
    "<svg><path d='M0'/></svg>",
    # scikit-learn's, and pages without words on themselves
    "<style>a{}</style><body><div>x</div></body>",
    '<html><head><meta charset="utf-8" /><title>T</title></head><body>x</body></html>',
]


@pytest.mark.parametrize("good", GOOD)
def test_good_html_stays_as_it_is(good):
    assert is_well_formed(good)
    assert rich_html({"text/html": good}, "x") == good


@pytest.mark.parametrize(
    "broken",
    [
        # left open, or closed without
        "<div><b>x", "</div></div>x", "<p>a<p>b", "<b><div>x</b>y</div>", "<div/>x", "</br>",
        # comments, declarations, and what looks like them
        "a<!-- x --!>b", "a<!-- open", "<!-->x-->", "<!doctype html>x", "<?php x ?>", "<![CDATA[x]]>", "<![x",
        # tags that are none
        "1 < 2", "x</", "<b>x</b", "<b>x<a href='y>z</a>", '<b>x<a href="y>z</a>',
        # the page's own, and what takes the rest of it
        "<body class=y>x</body>", '<html lang="en"></html>', "<base href=x>", "<frameset></frameset>",
        "<meta http-equiv=refresh>", "<plaintext></plaintext>",
        # text without tags
        "<script>open", "<script><!--<script></script>", "<script><!-- '</b>' <script></script>", "<script><!--<script>x</script>--></script>", "<script></script x></div></script>",
        "<textarea><b></b></textarea>", "<noscript><!-- </noscript> --></noscript>",
        "<div>" * 1000 + "</div>" * 1000,
    ],
)  # fmt: skip
def test_what_might_leave_its_box_is_in_a_frame(broken):
    assert not is_well_formed(broken)
    shown = rich_html({"text/html": broken}, "x")
    assert is_well_formed(shown)
    assert "it is shown in a frame" in shown
    assert 'sandbox="allow-scripts"' in shown
    assert f'srcdoc="{html.escape(broken)}"' in shown


def words(text):
    return text.split()


NAMES = words("""
    a b i font nobr div p span ul li dl dd dt h1 h2 table tr td th tbody caption col colgroup select
    option optgroup input button textarea script style title noscript iframe xmp plaintext svg math g
    foreignObject desc mi annotation-xml object marquee form body html head frameset base br hr img
    image pre ruby rt details summary dialog section x-y
""")
BITS = words("""
    <!-- --> --!> <![CDATA[ ]]> <!x> <?x> </> &lt ' " = /> > < </ text <script><!--<script> </br>
""")
PIECES = st.one_of(
    st.sampled_from(NAMES).map("<{}>".format),
    st.sampled_from(NAMES).map("</{}>".format),
    st.sampled_from(NAMES).map("<{} a=b c='d'/>".format),
    st.sampled_from([*BITS, " ", "<a b='", '<a b="', "<font color=x>", "<annotation-xml encoding=text/html>"]),
    st.text(max_size=5),
)  # fmt: skip
LEAVES = st.sampled_from(["x", "<br>", "<!--x-->"])


def _within(inner):
    return st.tuples(st.sampled_from(NAMES), st.lists(inner, max_size=3)).map(
        lambda each: f"<{each[0]}>{''.join(each[1])}</{each[0]}>"
    )


NESTED = st.lists(st.recursive(LEAVES, _within, max_leaves=8), max_size=4).map("".join)
GARBAGE = st.lists(st.one_of(PIECES, NESTED), max_size=8).map("".join)


@pytest.fixture(scope="module", params=["html5lib", "html.parser"])
def read(request):
    """Reads HTML as browsers do, or as simple readers do."""
    if request.param == "html5lib":
        pytest.importorskip("html5lib", reason="reads HTML as browsers do")
    soup = pytest.importorskip("bs4", reason="shows what was read")
    return lambda text: soup.BeautifulSoup(text, request.param)


@given(garbage=st.one_of(NESTED, GARBAGE))
@settings(max_examples=150, deadline=None)
def test_nothing_leaves_its_box(read, garbage):
    box = f"<div id=a>{rich_html({'text/html': garbage}, 'x')}</div><p id=b>x</p>"
    document = read(f"<!doctype html><body>{box}</body>")
    (a,), (b,) = document.select("[id=a]"), document.select("[id=b]")
    assert a.parent is b.parent
    assert a.next_sibling is b
    assert a.previous_sibling is None
    assert list(b.children) == ["x"]
    assert document.body.attrs == {}
