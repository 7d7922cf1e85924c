"""Cells of a notebook as a script: those that are chosen, and of the cells before them what they need. Pure.

A statement before is needed if it binds, or may change in place, a name that what follows reads. So statements
are looked at from the last to the first. What a function reads is read when it is called, later: the search goes on
until such reads add nothing.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from skyward_nb.cell.alterations import altered_names
from skyward_nb.cell.cell_names import names_of

_KNOWN = frozenset((*dir(builtins), "__name__", "__file__", "__doc__", "get_ipython", "display"))

_SHOWING = ("print", "display")
_CHANGING = ("compile", "fit", "fit_transform", "load_state_dict", "partial_fit", "step", "train")
"""Methods whose value is often kept although they are called for what they change."""


@dataclass(frozen=True)
class PastCell:
    """A cell that ran: its number, its Python with magics as calls, and the options of its `%%sky_remote` line.

    `on_ranks` says whether it ran on ranks.
    """

    number: int
    code: str
    on_ranks: bool = False
    options: str = ""


@dataclass(frozen=True)
class CellsScript:
    """The text of a script: what is `before` the chosen cells, and from the first of them on.

    `cells` are those that it has parts of, `lacking` names that it reads and no cell binds.
    """

    before: str
    chosen: str
    cells: tuple[int, ...]
    lacking: tuple[str, ...]
    imports: frozenset[str]


@dataclass
class _Statement:
    """A statement at the top level of a cell."""

    cell: PastCell
    node: ast.stmt
    text: str
    is_chosen: bool
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    sure: frozenset[str] = frozenset()
    alters: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    is_star: bool = False
    later: frozenset[str] = field(default=frozenset())
    """What code in it reads when it is called."""


def cells_script(
    cells: Sequence[PastCell], chosen: Collection[int], given: Collection[str] = ()
) -> CellsScript:
    """The script of the chosen cells, by their numbers; names that are `given` need no cell.

    Raises SyntaxError for a cell that is no Python, with its number.
    """
    statements = [each for cell in cells for each in _statements(cell, cell.number in chosen)]
    late = frozenset[str]()
    while True:
        kept, lacking = _needed(statements, late)
        found = late.union(*(each.later for each in kept))
        if found == late:
            break
        late = found
    first = next((at for at, each in enumerate(kept) if each.is_chosen), len(kept))
    if any(each.is_star for each in kept):
        lacking = set[str]()  # it may bind all of them
    return CellsScript(
        before="\n".join(_lines(kept[:first])),
        chosen="\n".join(_lines(kept[first:])),
        cells=tuple(sorted({each.cell.number for each in kept})),
        lacking=tuple(sorted(lacking - _KNOWN - {*given})),
        imports=frozenset[str]().union(*(each.imports for each in kept)),
    )


def _needed(
    statements: Sequence[_Statement], late: frozenset[str]
) -> tuple[list[_Statement], set[str]]:
    """The statements of the script, and the names that none of them binds."""
    needed, kept = set(late), list[_Statement]()
    for each in reversed(statements):
        is_needed = each.is_star and needed - _KNOWN
        if not (each.is_chosen or is_needed or needed & (each.writes | each.alters)):
            continue
        kept.append(each)
        needed -= each.sure
        needed |= each.reads
    return kept[::-1], needed


def _statements(cell: PastCell, is_chosen: bool) -> Iterator[_Statement]:
    try:
        tree = ast.parse(cell.code)
    except SyntaxError as error:
        if not is_chosen:
            return  # it did not run either
        raise SyntaxError(f"Cell In[{cell.number}]: {error.msg}") from None
    for node in tree.body:
        text = _text(cell.code, node)
        if _is_ipythons(node) or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            continue
        names = names_of(ast.Module([node], []))
        is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield _Statement(
            cell,
            node,
            text,
            is_chosen,
            # A definition runs no code yet, but for its decorators, defaults and bases.
            reads=_eager(node) if is_definition else names.reads,
            writes=names.writes,
            sure=names.sure,
            alters=frozenset() if is_definition else _altered(node, text),
            imports=names.imports,
            is_star=isinstance(node, ast.ImportFrom) and node.names[0].name == "*",
            later=names.reads if is_definition else _lambdas(node, names.reads),
        )


def _eager(node: ast.stmt) -> frozenset[str]:
    """What a definition reads when it is made."""
    heads: list[ast.AST] = []
    match node:
        case ast.ClassDef():
            heads = [*node.decorator_list, *node.bases, *node.keywords]
            heads += [
                each
                for each in node.body
                if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            given = [each for each in node.args.kw_defaults if each is not None]
            heads = [*node.decorator_list, *node.args.defaults, *given]
        case _:
            pass
    return frozenset[str]().union(*(_names(head) for head in heads))


def _altered(node: ast.stmt, text: str) -> frozenset[str]:
    """Names whose values a statement may change in place, or what they stand for, such as the seed of a module.

    What is called for nothing but its effect may change all that it names; an assignment only by a few methods.
    """
    found = set(altered_names(node, text))
    for each in ast.walk(node):
        match each:
            case ast.Expr(value=value) if not _shows(value):
                found |= _names(node if node is not each else value)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _CHANGING or (
                method.endswith("_") and not method.endswith("__")
            ):
                found |= _names(value)
            case ast.Attribute(value=value, ctx=ast.Store() | ast.Del()):
                found |= _names(value)
            case _:
                pass
    return frozenset(found)


def _shows(value: ast.expr) -> bool:
    """Whether an expression only shows something."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _SHOWING
    return not any(isinstance(each, ast.Call | ast.Await) for each in ast.walk(value))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _lambdas(node: ast.stmt, reads: frozenset[str]) -> frozenset[str]:
    """What lambdas in a statement may read when they are called."""
    return reads if any(isinstance(each, ast.Lambda) for each in ast.walk(node)) else frozenset()


def _is_ipythons(node: ast.stmt) -> bool:
    """Whether a statement is a magic, a command of the shell, or what else only IPython has."""
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Name)
        and each.func.id == "get_ipython"
        for each in ast.walk(node)
    ) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _text(code: str, node: ast.stmt) -> str:
    """A statement's own text, with its decorators."""
    lines = code.splitlines()
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)]) - 1
    last = node.end_lineno or node.lineno
    alone = not lines[first].encode()[: node.col_offset].strip() or decorators
    rest = lines[last - 1].encode()[node.end_col_offset or 0 :].strip()
    if alone and (not rest or rest.startswith(b"#")):
        return "\n".join(lines[first:last])
    return ast.get_source_segment(code, node) or ast.unparse(node)


def _lines(statements: Sequence[_Statement]) -> Iterator[str]:
    """The statements, those of a cell under its number; the value of a cell of the ranks is printed."""
    cell: PastCell | None = None
    lasts = {each.cell.number: each.node for each in statements}
    for each in statements:
        if each.cell is not cell:
            cell = each.cell
            yield f"\n# Cell In[{cell.number}]{', on every rank' if cell.on_ranks else ''}"
        is_last = each.is_chosen and lasts[each.cell.number] is each.node
        if is_last and isinstance(each.node, ast.Expr) and not _is_silent(each):
            yield f"_ = {each.text}"
            yield "if _ is not None:\n    print(_)"
        else:
            yield each.text


def _is_silent(each: _Statement) -> bool:
    """Whether nothing is to be shown of an expression: a semicolon follows it, or it prints by itself."""
    node = each.node
    assert isinstance(node, ast.Expr)
    if isinstance(node.value, ast.Call) and _shows(node.value):
        return True
    rest = "\n".join(each.cell.code.splitlines()[(node.end_lineno or 1) - 1 :]).encode()
    return rest[node.end_col_offset or 0 :].lstrip().startswith(b";")
