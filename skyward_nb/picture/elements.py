"""The elements of HTML by how browsers treat them where tags are missing or misplaced.

Source: the HTML standard, "Parsing HTML documents", html.spec.whatwg.org.
"""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """Names of elements written in a row."""
    return frozenset(text.split())


VOID = names(
    "area basefont bgsound br col embed hr image img input keygen link param source track wbr"
)
# The page's own: a second one would change the page.
PAGE = names("html head body frameset frame base meta")
# Read as text or as tags, depending on who reads; never shown.
HIDDEN = names("noscript noframes noembed title")
RAW = HIDDEN | names("iframe plaintext script style textarea xmp")
CELLS = names("td th")
GROUPS = names("tbody thead tfoot")
TABLE_PARTS = CELLS | GROUPS | names("caption col colgroup tr")
# Of which of these above the table a part is a child.
PARENTS = {
    "td": GROUPS | {"tr"},
    "th": GROUPS | {"tr"},
    "tr": GROUPS,
    "col": frozenset({"colgroup"}),
}
HEADINGS = names("h1 h2 h3 h4 h5 h6")
FORMATTING = names("a b big code em font i nobr s small strike strong tt u")
# Elements of SVG and MathML, whose names are kept apart by a colon, in which there is HTML again.
INTEGRATION = names(":foreignobject :desc :mi :mo :mn :ms :mtext :annotation-html")
# HTML that ends SVG and MathML.
BREAKS_OUT = HEADINGS | names(
    "b big blockquote body br center code dd div dl dt em embed head hr i img li listing menu meta "
    "nobr ol p pre ruby s small span strong strike sub sup table tt u ul var"
)
ENDS_PARAGRAPH = HEADINGS | names(
    "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form header hgroup hr li listing main menu nav ol p plaintext pre search section "
    "summary table ul xmp"
)
# What an end tag of any other element does not reach across.
SPECIAL = (
    (ENDS_PARAGRAPH - {"dialog"})
    | TABLE_PARTS
    | names("applet body button html iframe marquee object script select style template textarea")
)
# What no end tag reaches across, but those of tables.
SCOPE = CELLS | INTEGRATION | names("applet caption marquee object table template")
IN_SELECT = names("option optgroup")
BUTTON_SCOPE = SCOPE | {"button"}
TABLE, FORM, TEMPLATE, PARAGRAPH = map(names, ("table", "form", "template", "p"))
TABLE_END = INTEGRATION | TEMPLATE
TABLE_SCOPE = TABLE_END | TABLE
CELL_SCOPE = TABLE_END | CELLS | {"caption"}
NOTHING = frozenset[str]()
LIST_SCOPE = (SPECIAL - names("address div p")) | SCOPE
# Of these a start tag ends one that is open, if nothing of the second set is open in it.
ENDS_SAME: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset({"li"}), LIST_SCOPE - {"li"}),
    "dd": (names("dd dt"), LIST_SCOPE - names("dd dt")),
    "dt": (names("dd dt"), LIST_SCOPE - names("dd dt")),
    "button": (frozenset({"button"}), SCOPE),
}
# Where an item is sure not to end one further out; elsewhere it gets a list of its own.
HOLDS_ITEMS = SCOPE | names("blockquote dir dl menu ol ul")
# Elements that keep items in them apart from those around them for some readers only.
DISPUTED = names("details dialog hgroup search summary")
LISTS = {"li": "ul", "dd": "dl", "dt": "dl"}
# Of these a start tag ends those that nothing is open in.
ENDED_AT_ONCE = {
    **dict.fromkeys(HEADINGS, HEADINGS),
    "option": frozenset({"option"}),
    "optgroup": IN_SELECT,
}
# What their end tags do not reach across.
END_SCOPES = {
    "p": BUTTON_SCOPE,
    "li": SCOPE | names("ol ul"),
    "template": NOTHING,
    "object": SCOPE,
    "applet": SCOPE,
    "marquee": SCOPE,
    "select": SCOPE,
}
