"""`make messages`: every message that a person may read, with its place and with what shows it.

A message is a literal or f-string of two words or more, or of a `raise` any but a mere name. Docstrings,
patterns, scripts, markup and style sheets are not messages. The syntax tree decides, so no list of modules is needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_WORDS = re.compile(
    r"[^\W\d_]{2,}\S* [^\W\d_]{2,}|[^\W\d_]{2,}\S* (\S+ )*\{|\} (\S+ )*[^\W\d_]{2,}"
)
_CODE = re.compile(
    r"^\s*[<#.&]|</|\\[bdsw]|\(\?|\$[({\w]|&&|\|\||2>|:\s?[\w#-]+;|/bin/|\r|^\s*(import|from|set|if|echo|exec) "
)
_SILENT = {"compile", "match", "search", "sub", "TypeVar", "cast", "_words"}
"""Calls whose texts nobody reads."""


@dataclass(frozen=True)
class Message:
    """A text that the package may show; fields of f-strings stand in braces."""

    file: str
    line: int
    shown_by: str
    """`raise PoolError`; else the innermost call around it, or its function or class."""
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  [{self.shown_by}]  {self.text!r}"


def text_of(node: ast.AST) -> str | None:
    """The text of a literal, an f-string, or a sum that has one; None for other nodes."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "" for part in parts)
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = text_of(left), text_of(right)
            if texts == (None, None):
                return None
            sides = zip(texts, (left, right), strict=True)
            return "".join(
                f"{{{ast.unparse(side)}}}" if text is None else text for text, side in sides
            )
        case _:
            return None


def name_of(call: ast.expr | None) -> str:
    """The last name of what is called or raised."""
    match call:
        case ast.Call(func=function):
            return name_of(function)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def messages_of(source: str, file: str) -> Iterator[Message]:
    """The messages of a module, from top to bottom."""

    def visit(node: ast.AST, shown_by: str) -> Iterator[Message]:
        match node:
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Raise(exc=raised):
                shown_by = f"raise {name_of(raised)}".strip()
            case ast.Call() if not shown_by.startswith("raise"):
                shown_by = name_of(node) or shown_by
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                shown_by = name
            case ast.expr():
                text = text_of(node)
                if text is not None:
                    raised = shown_by.startswith("raise") and not re.fullmatch(r"[\w\s]*", text)
                    said = (raised or _WORDS.search(text)) and not _CODE.search(text)
                    if said and shown_by not in _SILENT:
                        yield Message(file, node.lineno, shown_by, text)
                    return
            case _:
                pass
        for child in ast.iter_child_nodes(node):
            yield from visit(child, shown_by)

    yield from visit(ast.parse(source), "")


def messages(folder: Path = ROOT / "skyward_nb") -> Iterator[Message]:
    """The messages of all modules below a folder, in the order of their paths."""
    for path in sorted(folder.rglob("*.py")):
        yield from messages_of(path.read_text(), str(path.relative_to(folder.parent)))


if __name__ == "__main__":
    for each in messages():
        print(each)
