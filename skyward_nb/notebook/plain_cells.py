"""What becomes of a cell without a magic line where every cell runs on ranks. Pure.

Python goes to ranks, `%%local`, lines of magics and `!` stay here, in the order of the cell. A cell is
rewritten for IPython with its own line numbers: each stretch of Python is one call of `%%sky_remote`,
whose text begins with as many blank lines as stand above it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass

from skyward_nb.cell.magic_syntax import OF_OBJECTS, RUNS_PYTHON
from skyward_nb.words.units import near_words

LOCAL = "local"
REMOTE = "sky_remote"
_CALL = f"get_ipython().run_cell_magic({REMOTE!r}, '', "
_CELL_MAGIC = re.compile(r"%%([^\s?]+)[ \t]*(.*)")
_CONTINUED = re.compile(r"[%!].*\\$")
_SHELL_CALLS = ("run_line_magic", "run_cell_magic", "system", "getoutput")
_PARSE = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@dataclass(frozen=True)
class KnownShell:
    """What is known of the shell: how it makes Python of magics, its cell magics, the notebook's names."""

    transform: Callable[[str], str]
    cell_magics: Collection[str]
    names: Collection[str]


def rewritten(text: str, shell: KnownShell, trouble: str = "") -> str:
    """The text that IPython is to run in place of a cell's own; with `trouble`, nothing goes to ranks but that is said."""
    code = _rewritten(text, shell)
    return _refusal(trouble) if trouble and _CALL in code else code


def _rewritten(text: str, shell: KnownShell) -> str:
    lines = text.split("\n")  # other characters that end lines for `splitlines` stand in literals
    first = next((n for n, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return text
    if (found := _CELL_MAGIC.match(lines[first])) and not lines[first].rstrip().endswith("?"):
        name, line = found.groups()
        if name == LOCAL:
            # Comments, as IPython takes blank lines above a cell away, and its line numbers with them.
            here = "\n".join(["#"] * first + [f"# {lines[first]}"] + lines[first + 1 :])
            return here if not line.strip() else _refusal(f"%%local takes no options: {line}")
        if name in RUNS_PYTHON:
            return _on_ranks(text)
        if name == REMOTE or name in shell.cell_magics:
            return text
        near = near_words(f"%%{name}", [f"%%{known}" for known in (*shell.cell_magics, LOCAL)])
        return _refusal(
            f"there is no cell magic %%{name}{near or '.'} Nothing has run: without that line the "
            "cell runs on the ranks, with %%local in its place here"
        )
    return _stretches(lines, first, shell) or text


def _stretches(lines: list[str], first: int, shell: KnownShell) -> str:
    """A cell of Python and lines of magics, rewritten; nothing for one that is to run as it is."""
    text = "\n".join(lines)
    joined, heads = _joined(lines)
    here = _lines_here(joined, first, shell)
    if here is None:
        return _on_ranks(text)
    made = ["#"] * first + [""] * (len(lines) - first)
    lines = ["" if heads.get(n) in here else line for n, line in enumerate(lines)]
    start = first
    for end in [*sorted(here), len(lines)]:
        if _has_code(stretch := lines[start:end]):
            made[start] = _on_ranks("\n" * start + "\n".join(stretch))
        if end in here:
            made[end] = joined[end].lstrip()
        start = end + 1
    return "\n".join(made) if any(line.startswith(_CALL) for line in made) else ""


def _joined(lines: list[str]) -> tuple[list[str], dict[int, int]]:
    """The lines, those of a magic that goes on behind a backslash joined, with blank lines after it.

    And for each line that was joined to one above, that one.
    """
    joined = list(lines)
    heads: dict[int, int] = {}
    number = 0
    while number < len(joined):
        below = number + 1
        while _CONTINUED.match(joined[number]) and below < len(joined):
            joined[number] = joined[number][:-1] + joined[below]
            joined[below] = ""
            heads[below] = number
            below += 1
        number = below
    return joined, heads


def _lines_here(lines: list[str], first: int, shell: KnownShell) -> set[int] | None:
    """The lines that run here; None where all are for ranks, or are no Python, which ranks' compiler tells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the real compilation tells them
        try:
            code = shell.transform("\n".join(lines[first:]))
            tree = compile(code, "<cell>", "exec", _PARSE)
        except Exception:  # noqa: BLE001 - the user's own transformers; a cell too deep for Python's parser
            return None
    if len(code.rstrip().split("\n")) > len(lines) - first:
        return None
    if not tree.body:
        return {*range(first, len(lines))}
    return {
        first + line - 1
        for each in tree.body
        if _is_here(each, shell.names)
        for line in range(each.lineno, (each.end_lineno or each.lineno) + 1)
    }


def _is_here(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement is a magic or a command of the shell, or binds what one gives."""
    if not isinstance(statement, ast.Expr | ast.Assign):
        return False
    match statement.value:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=attribute),
            args=[*given],
        ) if attribute in _SHELL_CALLS:
            said = [each.value for each in given if isinstance(each, ast.Constant)]
        case _:
            return False
    if attribute != "run_line_magic" or len(said) < 2:
        return True
    name, line = str(said[0]), str(said[1])
    if name in OF_OBJECTS:
        # Help on what ranks alone have is theirs to give.
        root = line.strip().partition(".")[0]
        return root.startswith("%") or root in names
    return name not in RUNS_PYTHON


def _has_code(lines: list[str]) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in lines)


def _on_ranks(body: str) -> str:
    return f"{_CALL}{body!r})"


def _refusal(words: str) -> str:
    """Code that ends a cell with these words, without a traceback."""
    return f"raise __import__('IPython.core.error').core.error.UsageError({words!r})"
