"""Installed packages, read and not imported: what a module of one defines, and with which parameters."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

COMPAT = Path(__file__).parents[2] / "skyward_nb" / "compat"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def version(package: str) -> str:
    return importlib.metadata.version(package)


def seen_with(file: str) -> str:
    """What a module of `compat` says that it was seen with."""
    text = ast.get_docstring(ast.parse((COMPAT / file).read_text())) or ""
    found = re.search(r"^Seen with (.+?)\.$", text, re.MULTILINE)
    return found[1] if found else "?"


def folder_of(package: str) -> Path:
    """Where a package is installed."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    (folder,) = list(spec.submodule_search_locations or ())[:1]
    return Path(folder)


def file_of(module: str) -> Path | None:
    """The file of a module, or of the types of one that is native code; None where there is no such module."""
    package, *rest = module.split(".")
    if importlib.util.find_spec(package) is None:
        return None
    path = folder_of(package).joinpath(*rest)
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    types = (path.with_name(f"{path.name}.pyi"), path / "__init__.pyi")
    return next((each for each in (*candidates, *types) if each.is_file()), None)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def find(module: str, name: str) -> ast.AST | None:
    """What defines a name, dotted for what is in a class; None where nothing does."""
    path = file_of(module)
    if path is None:
        return None
    first, *more = name.split(".")
    found = _in_scope(tree_of(path).body, first)
    for part in more:
        module, found = _followed(module, found, first)
        found = _in_class(module, found, part) if isinstance(found, ast.ClassDef) else None
    return found


def _followed(module: str, found: ast.AST | None, name: str) -> tuple[str, ast.AST | None]:
    """A module and what it gives a name, where another one only imports it."""
    if not isinstance(found, ast.ImportFrom):
        return module, found
    source = found.module or ""
    if found.level:
        path = file_of(module)
        is_package = path is not None and path.stem == "__init__"
        parents = module.split(".")[: len(module.split(".")) - found.level + is_package]
        source = ".".join((*parents, *([source] if source else [])))
    real = next(each.name for each in found.names if name in (each.asname, each.name))
    path = file_of(source)
    return source, None if path is None else _in_scope(tree_of(path).body, real)


def parameters(function: ast.AST | None) -> list[str]:
    """Names of a function's parameters, or of a class's `__init__`, in their order."""
    if isinstance(function, ast.ClassDef):
        function = _in_scope(function.body, "__init__")
    if not isinstance(function, Function):
        return []
    found = function.args
    names = [each.arg for each in (*found.posonlyargs, *found.args)]
    names += [f"*{found.vararg.arg}"] if found.vararg else []
    names += [each.arg for each in found.kwonlyargs]
    names += [f"**{found.kwarg.arg}"] if found.kwarg else []
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _in_scope(body: list[ast.stmt], name: str) -> ast.AST | None:
    """The last statement that gives a name, also within `if`, `try` and `with`; else None."""
    return next((each for each in reversed(list(_statements(body))) if name in _given(each)), None)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for each in body:
        yield each
        if not isinstance(each, Function | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(each, part, []))
            for handler in getattr(each, "handlers", []):
                yield from _statements(handler.body)


def _given(each: ast.stmt) -> list[str]:
    match each:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
        case ast.Assign(targets=targets):
            names = (node for to in targets for node in ast.walk(to) if isinstance(node, ast.Name))
            return [node.id for node in names if isinstance(node.ctx, ast.Store)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _in_class(module: str, kind: ast.ClassDef, name: str) -> ast.AST | None:
    """A method, an attribute of the class, one that its methods set, or what its bases have."""
    if (found := _in_scope(kind.body, name)) is not None:
        return found
    for node in ast.walk(kind):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Store()) if (
                attr == name
            ):
                return node
            case _:
                pass
    path = file_of(module)
    assert path is not None
    for base in kind.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(base, ast.Name):
            above = _in_scope(tree_of(path).body, base.id)
            place, above = _followed(module, above, base.id)
            if isinstance(above, ast.ClassDef) and above is not kind:
                found = _in_class(place, above, name)
                if found is not None:
                    return found
    return None
