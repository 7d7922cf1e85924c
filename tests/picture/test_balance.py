"""HTML made whole: what is good stays as it is, and nothing leaves its box."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skyward_nb.picture.balance import DEEPEST, balanced

GOOD = [
    "",
    "plain &amp; text, 1 &lt; 2 > 0 &nbsp;",
    '<p class="x">a<br>b</p><hr><img src="a.png">',
    "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>",
    "<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1<table><tr><td>x</td></tr></table></td>"
    "</tr></tbody></table>",
    "<style>td > a { color: red } /* </b> */</style>",
    '<script type="module">if (a < b && c > d) { x = "<b>" }</script>',
    "<script><!--\nx = '<script>y</script>'\n--></script>",
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
]


@pytest.mark.parametrize("good", GOOD)
def test_good_html_stays_as_it_is(good):
    assert balanced(good) == good


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        # left open, or closed without
        ("<div><b>x", "<div><b>x</b></div>"),
        ("</div></div>x</span></p></td></body></html>", "x"),
        ("<table><tr><td>x", "<table><tr><td>x</td></tr></table>"),
        ("<div></section></div></div>x", "<div></div>x"),
        ("<b><div>x</b>y</div>z", "<b><div>xy</div></b>z"),
        ("<div><span>x</div>y</span>", "<div><span>x</span></div>y"),
        ("<span><div>x</span>y</div>", "<span><div>xy</div></span>"),
        # ended by what follows
        ("<p>a<p>b<div>c</div>", "<p>a</p><p>b</p><div>c</div>"),
        ("<ul><li>a<li>b</ul>", "<ul><li>a</li><li>b</li></ul>"),
        ("<dl><dt>a<dd>b</dl>", "<dl><dt>a</dt><dd>b</dd></dl>"),
        ("<table><tr><td>a<td>b<tr><td>c</table>",
         "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>"),
        ("<h1>a<h2>b", "<h1>a</h1><h2>b</h2>"),
        ("<select><option>a<option>b<div>c</div><select>d",
         "<select><option>a</option><option>bc</option></select>d"),
        ("<button>a<button>b", "<button>a</button><button>b</button>"),
        ("<table><table>x", "<table></table><table>x</table>"),
        ("<svg><g><p>x</svg>", "<svg><g></g></svg><p>x</p>"),
        ("<math><font color=red>x", '<math></math><font color="red">x</font>'),
        ("<math><annotation-xml encoding='Text/HTML'><p>x<td></annotation-xml></math>",
         '<math><annotation-xml encoding="Text/HTML"><p>x</p></annotation-xml></math>'),
        ("<math><annotation-xml><p>x", "<math><annotation-xml></annotation-xml></math><p>x</p>"),
        # what is not of its place
        ("<td>x</td><tr><tbody>", "x"),
        ("<li>x", "<ul><li>x</li></ul>"),
        ("<html><head><base href=x><title>T</title><meta charset=x></head><body class=y>x", "x"),
        ("<form><form>x</form>y</form>z", "<form>x</form>yz"),
        ("<frameset><frame>x", "x"),
        # comments, declarations, and what looks like them
        ("a<!-- <b> -->b<!---->c<!-->d<!--->e--!>", "abcde--!>"),
        ("a<!-- x --!>b<!-- open <b>", "ab"),
        ("<!doctype html><?php x ?>a</ x>b</>c", "abc"),
        ("<![CDATA[x]]>y<svg><![CDATA[<b>&]]></svg>", "y<svg>&lt;b>&amp;</svg>"),
        # tags that are none
        ("1 < 2 <3 </", "1 &lt; 2 &lt;3 &lt;/"),
        ("<b>x<a href='y>z</a>", "<b>x</b>"),
        ('<b>x<a href="y>z</a>', "<b>x</b>"),
        ("<b>x<i", "<b>x</b>"),
        ("<b>x</b", "<b>x</b>"),
        ("<a<b>x", "x"),
        # attributes
        ("<a b=c d='\"' e f=\"'\" g = h>x</a>",
         '<a b="c" d="&quot;" e f="\'" g="h">x</a>'),
        ("<a b=c/>x", '<a b="c/">x</a>'),
        ("<a =b \"c 'd e<f>x", "<a>x</a>"),
        ("<br/><div/>x", "<br><div>x</div>"),
        ("<svg><path d='M0'/>x", '<svg><path d="M0"></path>x</svg>'),
        ("<DIV Class=a>x</dIv>", '<DIV Class="a">x</DIV>'),
        # text without tags
        ("<style>a</stylex><b>", "<style>a</stylex><b></style>"),
        ("<style>a</style x>b", "<style>a</style>b"),
        ("<STYLE>a</style>b", "<STYLE>a</STYLE>b"),
        ("x<script>open", "x"),
        ("x<script><!--<script></script>open", "x"),
        ("<script><!--></script>a", "<script><!--></script>a"),
        ("<script><!--<script></script>--></script>a",
         "<script><!--<script></script>--></script>a"),
        ("<textarea><b></div>", "<textarea>&lt;b>&lt;/div></textarea>"),
        ("<plaintext></div>&x", "<pre>&lt;/div>&amp;x</pre>"),
        ("<xmp><b></xmp>y", "<pre>&lt;b></pre>y"),
        ("<title></div></title><noscript><p></noscript><noembed><noframes>x", ""),
        ("<iframe><div></iframe>x", "<iframe></iframe>x"),
        ("<svg><style><b></style><script>a<b</script></svg>",
         "<svg><style>&lt;b></style><script>a&lt;b</script></svg>"),
        ("<svg><style><![CDATA[a{}]]></style></svg>", "<svg><style>a{}</style></svg>"),
        # letters
        ("a\r\nb\rc\0d", "a\nb\nc\ufffdd"),
    ],
)  # fmt: skip
def test_broken_html_is_made_whole(broken, whole):
    assert balanced(broken) == whole
    assert balanced(whole) == whole


def test_what_is_nested_too_deep_keeps_its_text():
    whole = balanced("<div>" * 1000 + "x" + "</div>" * 1000 + "y")
    assert whole == "<div>" * DEEPEST + "x" + "</div>" * DEEPEST + "y"


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
GARBAGE = st.lists(PIECES, max_size=25).map("".join)


@given(GARBAGE)
@settings(max_examples=300, deadline=None)
def test_what_is_whole_stays_as_it_is(garbage):
    whole = balanced(garbage)
    assert balanced(whole) == whole


AROUND = ["{}", "<ul><li>{}</li></ul>", "<table><tr><td>{}</td></tr></table>", "<b>{}</b>"]


@pytest.fixture(scope="module", params=["html5lib", "html.parser"])
def read(request):
    """Reads HTML as browsers do, or as simple readers do."""
    if request.param == "html5lib":
        pytest.importorskip("html5lib", reason="reads HTML as browsers do")
    soup = pytest.importorskip("bs4", reason="shows what was read")
    return lambda text: soup.BeautifulSoup(text, request.param)


@given(garbage=GARBAGE, around=st.sampled_from(AROUND))
@example(garbage="</div></div>", around="{}")
@example(garbage="<table>", around="{}")
@example(garbage="<b>", around="{}")
@example(garbage="<!--", around="{}")
@example(garbage="<a href='", around="{}")
@example(garbage="<style>", around="{}")
@example(garbage="<textarea>", around="{}")
@example(garbage="<script>", around="{}")
@example(garbage="<script><!--<script></script>", around="{}")
@example(garbage="<plaintext>", around="{}")
@example(garbage="<svg><title>", around="{}")
@example(garbage="<math><title>", around="{}")
@example(garbage="</td><td></table><li></li>", around="<table><tr><td>{}</td></tr></table>")
@settings(max_examples=400, deadline=None)
def test_nothing_leaves_its_box(read, garbage, around):
    box = around.format(f"<div id=a>{balanced(garbage)}</div><p id=b>x</p>")
    document = read(f"<!doctype html><body>{box}</body>")
    (a,), (b,) = document.select("[id=a]"), document.select("[id=b]")
    assert a.parent is b.parent
    assert a.next_sibling is b
    assert a.previous_sibling is None
    assert list(b.children) == ["x"]
    assert document.body.attrs == {}
    # Within a drawing or a formula they are words on it, or nothing.
    of_pages = [
        each
        for each in document.select("body, base, title, meta")
        if not each.find_parent(["svg", "math"])
    ]
    assert len(of_pages) == 1
