"""The documentation site: `make docs`. Pages are MyST; those of the reference are made from the package."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from IPython.lib.lexers import IPython3Lexer
from pygments.token import Comment

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import reference_pages  # noqa: E402

import skyward_nb  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pygments.token import _TokenType
    from sphinx.application import Sphinx

project = "skyward_nb"
author = "the skyward_nb authors"
copyright = "2026, the skyward_nb authors"  # noqa: A001
release = version = skyward_nb.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["made/*.md"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_merge_streams = True
# A cell of `%%writefile` holds what is no Python, and is coloured as far as it goes.
suppress_warnings = ["mystnb.unknown_mime_type", "misc.highlighting_failure"]

html_theme = "pydata_sphinx_theme"
html_title = f"skyward_nb {release}"
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {"header_links_before_dropdown": 6, "show_toc_level": 2}

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"

_NOT_EXECUTED = """:::{note}
This page was built without executing the notebook, so its cells show nothing. `make gallery` builds the site with all outputs.
:::"""
_ONE_BACKTICK = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")


class CellLexer(IPython3Lexer):
    """A cell of a notebook: below a `%%sky_remote` line there is Python, too."""

    name = "A cell"

    def get_tokens_unprocessed(
        self, text: str, stack: tuple[str, ...] = ("root",)
    ) -> Iterator[tuple[int, _TokenType, str]]:
        """The line of options as one token, and the rest as Python's."""
        begin = text.find("\n") if text.startswith("%%sky_remote") else 0
        if begin:
            yield 0, Comment.Preproc, text[:begin]
        for index, kind, value in super().get_tokens_unprocessed(text[begin:], stack):
            yield begin + index, kind, value


def _code_in_docstrings(*args: Any) -> None:
    """In docstrings of the package, text in single backticks is code."""
    lines: list[str] = args[-1]
    text = _ONE_BACKTICK.sub(lambda found: f"``{found[1]}``", "\n".join(lines))
    lines[:] = text.split("\n")


def _write_pages(_app: Sphinx) -> None:
    """Write what is made from the package, and lay out the notebooks: with outputs where they were executed."""
    made = HERE / "made"
    made.mkdir(exist_ok=True)
    for name, text in reference_pages.pages().items():
        path = made / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        executed = ROOT / "build" / notebook.name
        is_newer = executed.exists() and executed.stat().st_mtime > notebook.stat().st_mtime
        text = (executed if is_newer else notebook).read_text()
        text = text if is_newer else _said_not_executed(text)
        path = made / notebook.name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _said_not_executed(text: str) -> str:
    """A notebook that says below its title that it has no outputs on this site."""
    notebook = nbformat.reads(text, as_version=4)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(_NOT_EXECUTED, id="not-executed"))
    return nbformat.writes(notebook)


def setup(app: Sphinx) -> None:
    """Connect what this page has of its own."""
    for name in ("python", "ipython3"):
        app.add_lexer(name, CellLexer)
    app.connect("builder-inited", _write_pages)
    app.connect("autodoc-process-docstring", _code_in_docstrings)
