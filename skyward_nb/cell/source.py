"""A cell's text with its lines kept true: what ranks compile, and what a traceback shows."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class CellSource:
    """A cell ready to run on ranks.

    `raw` is the whole cell as the person sees it, `code` the transformed body padded so that
    line n of it is line n of `raw`; `has_value` says whether the last statement is an
    expression whose value shall come back.
    """

    raw: str
    code: str
    number: int
    is_async: bool
    has_value: bool


def cell_source(
    raw: str, body: str, number: int, transform: Callable[[str], str], filename: str
) -> CellSource:
    """Build the source of the cell `raw` whose lines below the magic are `body`.

    `transform` turns IPython's magics into Python. Raises SyntaxError with the line numbers of
    `raw` and `filename` as its file.
    """
    raw = raw if body in raw else f"%%sky_remote\n{body}"
    offset = raw.rindex(body) if body else len(raw)
    header = raw.count("\n", 0, offset)
    # IPython strips leading blank lines: keep them out of its sight and put them back.
    text = body.lstrip("\n")
    header += len(body) - len(text)
    code = "\n" * header + transform(text)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = ast.parse(code, filename)
    compiled = compile(code, filename, "exec", flags=flags, dont_inherit=True)
    last = tree.body[-1] if tree.body else None
    return CellSource(
        raw=raw,
        code=code,
        number=number,
        is_async=bool(compiled.co_flags & inspect.CO_COROUTINE),
        has_value=isinstance(last, ast.Expr) and not _silenced(code),
    )


def _silenced(code: str) -> bool:
    """Whether the code's last token before comments is a semicolon, as in IPython."""
    import tokenize

    last = ""
    lines = iter(code.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.OP or token.type in (tokenize.NAME, tokenize.NUMBER):
            last = token.string
        elif token.type == tokenize.STRING:
            last = token.string
    return last == ";"
