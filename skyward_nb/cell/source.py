"""A cell's text compiled in the notebook: ranks execute it, tracebacks show its lines.

So it is parsed once instead of once per rank, and a syntax error costs nothing; ranks need the same minor
version of Python.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from skyward_nb.cell.alterations import altered_names
from skyward_nb.cell.cell_names import CellNames, names_of

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@dataclass(frozen=True)
class Cell:
    """A cell ready to run on ranks.

    `text` is the whole cell as the person sees it, its magic line included; line n of the code
    is line n of it. `body` are its statements, `last` the expression it ends with, if it does;
    either is a coroutine's code where it awaits. `has_value` is false behind a semicolon. Of its
    decorators `sky.integrations.NAME(...)`, `integrations` are the names and the literal arguments. It may
    change in place what the names in `alters` stand for.
    """

    text: str
    filename: str
    body: CodeType | None
    last: CodeType | None
    has_value: bool
    names: CellNames
    integrations: tuple[tuple[str, dict[str, Any]], ...] = ()
    alters: frozenset[str] = frozenset()
    ends_in: str = ""
    """The name that its last expression is, alone."""

    @property
    def own_names(self) -> frozenset[str]:
        """Names whose newest value is the ranks' after it, also where its value gets that name in the notebook."""
        return self.names.writes | ({self.ends_in} - {""})


def compile_cell(
    text: str,
    body: str,
    *,
    transform: Callable[[str], str],
    transform_ast: Callable[[ast.Module], ast.Module],
    name_file: Callable[[str, str], str],
) -> Cell:
    """Compile the lines `body` that stand below the magic line of the cell `text`.

    Or lines of a cell without one, with as many blank lines above them as there are in `text`. `transform` turns IPython's magics into Python, `transform_ast` applies what the user set
    up on syntax trees, `name_file(code, text)` gives the file name that tracebacks will carry.
    Raises SyntaxError with the line numbers of `text`.
    """
    in_place = _stands_in_place(text, body)
    header = 0 if in_place else _header(text, body)
    if not (header or in_place):
        text, header = f"%%sky_remote\n{body}", 1
    # IPython strips leading blank lines: keep them out of its sight and put them back.
    stripped = body.lstrip("\n")
    header += len(body) - len(stripped)
    code = "\n" * header + transform(stripped)
    # Of a cell in which other lines stand, too, all lines are known by its name.
    filename = name_file(text if in_place else code, text)
    tree = transform_ast(compile(code, filename, "exec", _FLAGS | ast.PyCF_ONLY_AST))
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    statements = tree.body[:-1] if last else tree.body
    return Cell(
        text=text,
        filename=filename,
        body=_compile(ast.Module(statements, []), filename) if statements else None,
        last=_compile(ast.Expression(last.value), filename) if last else None,
        has_value=last is not None and not _silenced(code),
        names=names_of(tree, transform),
        alters=altered_names(tree, stripped),
        ends_in=last.value.id if last and isinstance(last.value, ast.Name) else "",
        integrations=tuple(_integrations(tree)) if "integrations" in code else (),
    )


def _integrations(tree: ast.AST) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and literal arguments of each decorator `sky.integrations.NAME(...)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for each in node.decorator_list:
            words = each.keywords if isinstance(each, ast.Call) else []
            literals = {
                word.arg: word.value.value
                for word in words
                if word.arg and isinstance(word.value, ast.Constant)
            }
            match each.func if isinstance(each, ast.Call) else each:
                case ast.Attribute(ast.Attribute(attr="integrations"), attr=name):
                    yield name, literals
                case _:
                    pass


def own_cell(expression: str) -> Cell:
    """An expression of our own as a cell, which reads and binds no name of the notebook."""
    filename = "<%sky>"
    tree = ast.parse(expression, filename, mode="eval")
    code = _compile(tree, filename)
    return Cell(
        expression, filename, None, code, has_value=True, names=CellNames(frozenset(), frozenset())
    )


def _header(text: str, body: str) -> int:
    """How many lines of the cell `text` stand above `body`; 0 when it is another cell's body."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.strip():
            below = "\n".join(lines[number + 1 :])
            return number + 1 if line.startswith("%%") and below.strip() == body.strip() else 0
    return 0


def _stands_in_place(text: str, body: str) -> bool:
    """Whether each line of `body` stands at its own place in `text`: those of a magic's body are one too low."""
    if not body.strip():
        return False
    there, lines = text.splitlines(), body.rstrip().splitlines()
    return len(lines) <= len(there) and all(
        line.rstrip() in ("", said.rstrip()) for line, said in zip(lines, there, strict=False)
    )


def _compile(tree: ast.Module | ast.Expression, filename: str) -> CodeType:
    mode = "exec" if isinstance(tree, ast.Module) else "eval"
    return compile(tree, filename, mode, _FLAGS, dont_inherit=True)


def _silenced(code: str) -> bool:
    """Whether the code's last token before comments is a semicolon, as in IPython."""
    if ";" not in code:
        return False
    last = ""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type in (tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING):
            last = token.string
    return last == ";"
