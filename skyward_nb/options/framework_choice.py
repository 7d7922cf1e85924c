"""`framework=auto`: the frameworks that code needs, by its imports and the names that it reads. Pure.

Where somebody asks for `auto` and a cell needs none, the imports of the notebook decide. Nothing is
imported for this, and no code of a value runs: its type names its module.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from skyward_nb.cell.cell_names import cell_names
from skyward_nb.words.frameworks import FRAMEWORKS, WORDS

_FRAMEWORK_OF = {package: each.name for each in FRAMEWORKS for package in each.packages}

Found = dict[str, str]
"""Frameworks, each with the reason for it."""


@dataclass(frozen=True)
class FrameworkChoice:
    """The chosen `words` of `WORDS`, and the reason."""

    words: tuple[str, ...]
    why: str

    def of(self, there: Callable[[str], bool]) -> FrameworkChoice:
        """The choice among those that are there."""
        return FrameworkChoice(tuple(filter(there, self.words)), self.why)

    @property
    def told(self) -> str:
        """`torch (the cell imports torch.nn)`."""
        return f"{','.join(self.words) or 'none'} ({self.why})"

    def __str__(self) -> str:
        return f"framework=auto: {self.told}"


@dataclass(frozen=True)
class NotebookContext:
    """The basis of a choice: the notebook's names, the sources of its cells, the imported modules.

    `is_own` tells whether a module of this name is the user's: many projects have their own `datasets`.
    """

    names: Mapping[str, Any]
    cells: Iterable[str]
    modules: Mapping[str, ModuleType]
    environ: Mapping[str, str]
    is_own: Callable[[str], bool] = lambda _root: False


def choose(
    notebook: NotebookContext, imports: Iterable[str] = (), reads: Iterable[str] = ()
) -> FrameworkChoice:
    """The frameworks of a cell with these imports and reads, or else of the notebook."""
    found = _of_cell(notebook, imports, reads)
    if not found:
        bound = [value.__name__ for value in notebook.names.values() if type(value) is ModuleType]
        past = (name for source in notebook.cells for name in imports_of(source))
        found = _imported([*bound, *past], "the notebook imports {}", notebook)
    if not found:
        return FrameworkChoice((), "neither the cell nor the notebook imports a framework")
    return _settled(found, *_backend(notebook))


def choose_for_cell(
    notebook: NotebookContext, imports: Iterable[str], reads: Iterable[str]
) -> FrameworkChoice:
    """The frameworks of a cell with these imports and reads, whatever the notebook imports."""
    found = _of_cell(notebook, imports, reads)
    return _settled(found, *_backend(notebook))


def modules_used(
    notebook: NotebookContext, imports: Iterable[str], reads: Iterable[str]
) -> frozenset[str]:
    """The modules that a cell with these imports and reads uses, by their first names; none of the user's own."""
    found, seen = {*imports}, set[int]()
    for name in reads:
        if name in notebook.names:
            found.update(_modules_of(notebook.names[name], notebook, seen))
    return _roots_of_others(found, notebook)


def modules_of_functions(
    known: NotebookContext, functions: Iterable[FunctionType]
) -> frozenset[str]:
    """The modules that functions use, by their first names; none of the user's own."""
    seen: set[int] = set()
    found = {module for each in functions for module in _modules_of(each, known, seen)}
    return _roots_of_others(found, known)


def _roots_of_others(modules: Iterable[str], known: NotebookContext) -> frozenset[str]:
    """The first names of modules that are not the user's own."""
    roots = {each.partition(".")[0] for each in modules}
    return frozenset(each for each in roots if not known.is_own(each))


def choose_for_functions(
    known: NotebookContext, functions: Iterable[FunctionType]
) -> FrameworkChoice:
    """The frameworks that functions use."""
    found: Found = {}
    seen: set[int] = set()
    for function in functions:
        for module in _modules_of(function, known, seen):
            if framework := _framework_of(module, known):
                found.setdefault(framework, f"{function.__name__} uses {module}")
    return _settled(found, *_backend(known))


def _of_cell(notebook: NotebookContext, imports: Iterable[str], reads: Iterable[str]) -> Found:
    return _imported(imports, "the cell imports {}", notebook) | _read(reads, notebook)


def choose_for_script(
    source: str, environ: Mapping[str, str], is_own: Callable[[str], bool]
) -> FrameworkChoice:
    """The frameworks of a script, by its own imports."""
    known = NotebookContext({}, (), {}, environ, is_own)
    found = _imported(imports_of(source), "the script imports {}", known)
    if not found:
        return FrameworkChoice((), "the script imports no framework")
    return _settled(found, *_backend(known))


def _settled(found: Found, backend: str, known_by: str) -> FrameworkChoice:
    """The choice without included frameworks: the backend of Keras, torch of Hugging Face."""
    if not found:
        return FrameworkChoice((), "")
    needed = {each for name in FRAMEWORKS if name.name in found for each in name.needs}
    words = {name: name for name in found if name not in needed}
    why = dict(found)
    if "keras" in words and f"keras:{backend}" in WORDS:
        words.pop(backend, None)
        words["keras"] = f"keras:{backend}"
        why["keras"] += f", and {known_by}"
    order = [each.name for each in FRAMEWORKS if each.name in words]
    reasons = dict.fromkeys(why[name] for name in order)
    return FrameworkChoice(tuple(words[name] for name in order), "; ".join(reasons))


def _backend(notebook: NotebookContext) -> tuple[str, str]:
    """(the backend of Keras here, or "" if unknown; how that is known)."""
    config = getattr(notebook.modules.get("keras"), "config", None)
    backend = getattr(config, "backend", None)
    if callable(backend):
        name = str(backend())
        return name, f"the notebook's Keras runs on {name}"
    name = notebook.environ.get("KERAS_BACKEND", "")
    return name, f"KERAS_BACKEND={name}"


# ── imports ─────────────────────────────────────────────────────────────────────────────


def _imported(names: Iterable[str], words: str, notebook: NotebookContext) -> Found:
    """The frameworks of imported modules, each with the shortest name of its import."""
    found: Found = {}
    for name in sorted(set(names), key=lambda name: (len(name), name)):
        framework = _framework_of(name, notebook)
        if framework:
            found.setdefault(framework, words.format(name))
    return found


def _framework_of(module: str, notebook: NotebookContext) -> str | None:
    root = module.partition(".")[0]
    framework = _FRAMEWORK_OF.get(root)
    return None if framework is None or notebook.is_own(root) else framework


def imports_of(source: str) -> frozenset[str]:
    """The modules that an earlier cell imports, also a `%%sky_remote` one; none if it is no Python."""
    try:
        tree = ast.parse(source)
        found = cell_names(source).imports
    except (SyntaxError, ValueError):
        return frozenset()
    match tree.body:
        case [
            ast.Expr(
                ast.Call(
                    ast.Attribute(attr="run_cell_magic"),
                    [ast.Constant("sky_remote"), _, ast.Constant(str() as body)],
                )
            )
        ]:
            return found | imports_of(body)
        case _:
            return found


# ── values ──────────────────────────────────────────────────────────────────────────────


def _read(reads: Iterable[str], notebook: NotebookContext) -> Found:
    """The frameworks of the values that a cell reads."""
    found: Found = {}
    seen: set[int] = set()
    for name in sorted(set(reads)):
        if name in notebook.names:
            for module in _modules_of(notebook.names[name], notebook, seen):
                if framework := _framework_of(module, notebook):
                    found.setdefault(framework, f"the cell reads {name}")
    return found


def _modules_of(value: object, known: NotebookContext, seen: set[int]) -> Iterator[str]:
    """The modules that a value comes from, and those that the user's own code in it uses."""
    if id(value) in seen:
        return
    seen.add(id(value))
    # By its type alone: a proxy's `__class__` would run code.
    kind = type(value)
    if kind is ModuleType:
        yield cast(ModuleType, value).__name__
    elif kind is FunctionType:
        yield from _of_function(cast(FunctionType, value), known, seen)
    elif issubclass(kind, type):
        yield from _of_class(cast(type, value), known, seen)
    else:
        yield from _of_class(kind, known, seen)


def _of_class(kind: type, known: NotebookContext, seen: set[int]) -> Iterator[str]:
    for each in kind.__mro__:
        module = vars(each).get("__module__")
        yield str(module)
        if module == "__main__" and id(each) not in seen:
            seen.add(id(each))
            for member in vars(each).values():
                if (function := _function_in(member)) is not None:
                    yield from _of_function(function, known, seen)


def _function_in(member: object) -> FunctionType | None:
    """The function of a member of a class; None if it has none."""
    kind = type(member)
    if kind is property:
        member = cast(property, member).fget
    elif kind in (staticmethod, classmethod):
        member = cast("staticmethod[..., Any]", member).__func__
    return cast(FunctionType, member) if type(member) is FunctionType else None


def _of_function(function: FunctionType, known: NotebookContext, seen: set[int]) -> Iterator[str]:
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing is in it yet
            yield from _modules_of(cell.cell_contents, known, seen)
    module = str(function.__globals__.get("__name__"))
    names = known.names
    if module != "__main__":
        yield module
        if not known.is_own(module.partition(".")[0]):
            return
        names = function.__globals__
    for operation, name in _names_of(function.__code__):
        if operation == "IMPORT_NAME":
            yield name
        elif name in names:
            yield from _modules_of(names[name], known, seen)


@functools.lru_cache(maxsize=4096)
def _names_of(code: CodeType) -> tuple[tuple[str, str], ...]:
    """(operation, name) of the modules and the global names that code uses, functions in it too."""
    found: list[tuple[str, str]] = []
    for each in dis.get_instructions(code):
        if each.opname in ("IMPORT_NAME", "LOAD_GLOBAL", "LOAD_NAME"):
            found.append((each.opname, str(each.argval)))
        elif isinstance(each.argval, CodeType):
            found += _names_of(each.argval)
    return tuple(dict.fromkeys(found))
