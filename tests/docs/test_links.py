"""Every link of README, docs and the other pages leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.blocks import ROOT, pages

MADE = {"docs/made"}
"""Folders that `make docs` fills."""
PAGES = [
    *pages(),
    *(path.name for path in ROOT.glob("*.md") if path.name != "README.md"),
]
_FENCED = re.compile(r"^(`{3,}|:{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)$", re.MULTILINE)
_INCLUDED = re.compile(r"^```\{include\} (.+)$", re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


def anchors(path: Path) -> set[str]:
    """The headings of a page, and of what it includes."""
    text = path.read_text()
    found = {slug(each) for each in _HEADING.findall(_FENCED.sub("", text))}
    for name in _INCLUDED.findall(text):
        if (path.parent / name).exists():
            found |= anchors(path.parent / name)
    return found


def broken(text: str, page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    lost = []
    for link in _LINK.findall(_FENCED.sub("", text)):
        name, _, anchor = link.partition("#")
        path = (page.parent / name).resolve() if name else page
        is_made = str(path.parent.relative_to(ROOT)) in MADE
        if (not path.exists() and not is_made) or (
            anchor and path.suffix == ".md" and anchor not in anchors(path)
        ):
            lost.append(link)
    return lost


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    assert broken((ROOT / page).read_text(), ROOT / page) == []


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("[a](README.md) [b](https://example.org/x)", []),
        ("[a](no-such.md)", ["no-such.md"]),
        ("[a](README.md#no-such-heading)", ["README.md#no-such-heading"]),
        ("# The `heading`, twice\n[a](README.md#how-it-compares)", []),
    ],
)
def test_what_counts_as_a_link_that_leads_somewhere(text, lost):
    assert broken(text, ROOT / "page.md") == lost


def test_an_anchor_is_as_github_makes_it():
    assert slug("`%sky down`: what it ends, and when") == "sky-down-what-it-ends-and-when"


def test_every_page_is_in_the_contents():
    """`make docs` says so as well; this needs no Sphinx."""
    listed = set()
    for page in pages():
        if page == "README.md":
            continue
        folder = (ROOT / page).parent
        for tree in re.findall(
            r"^:{3,}\{toctree\}\n(.*?)^:{3,}$", (ROOT / page).read_text(), re.M | re.S
        ):
            names = re.findall(
                r"^(?:.*<(\S+)>|([\w./-]+))$", re.sub(r"^:.*$", "", tree, flags=re.M), re.M
            )
            listed |= {str((folder / (a or b)).resolve().relative_to(ROOT)) for a, b in names}
    written = {page.removesuffix(".md") for page in pages()} - {"README", "docs/index"}
    assert written <= listed
