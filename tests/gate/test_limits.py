"""One noun, one module: none grows beyond what a person reads at once."""

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("no_collector")

PACKAGE = Path(__file__).parents[2] / "skyward_nb"
MODULES = sorted(PACKAGE.rglob("*.py"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MOST_LINES, MOST_METHODS, MOST_LINES_OF_THE_FACE = 400, 30, 200


@dataclass(frozen=True)
class Module:
    """What of a module is limited, read from its code."""

    lines: int
    classes: tuple[tuple[str, int], ...]
    """Each with the number of its methods."""
    unpacking: tuple[frozenset[str | None], ...]
    """The names of arguments of each call of `unpack`."""


@cache
def module(path: Path) -> Module:
    text = path.read_text()
    classes, unpacking = [], []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, _FUNCTIONS) for each in node.body)
            classes.append((node.name, methods))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "unpack":
            unpacking.append(frozenset(each.arg for each in node.keywords))
    return Module(len(text.splitlines()), tuple(classes), tuple(unpacking))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_and_its_classes_are_short(path):
    assert module(path).lines <= MOST_LINES, "divide it: one noun, one module"
    for name, methods in module(path).classes:
        assert methods <= MOST_METHODS, f"{name} is more than one class"


def test_the_face_of_a_pool_is_a_face():
    assert module(PACKAGE / "pool/pool.py").lines <= MOST_LINES_OF_THE_FACE


def test_no_two_classes_have_one_name():
    names = Counter(name for path in MODULES for name, _ in module(path).classes)
    assert not {name for name, count in names.items() if count > 1 and not name.startswith("_")}


def test_no_two_modules_have_one_name():
    names = Counter(path.stem for path in MODULES)
    assert [name for name, count in names.items() if count > 1] == ["__init__", "__main__"]


def test_the_notebook_says_of_each_value_that_it_reads_whether_it_takes_plain_values_alone():
    """`trust=values` holds on every way that values come back."""
    calls = [
        (path.name, given)
        for path in MODULES
        if not {"node", "pickling"} & {*path.parts}
        for given in module(path).unpacking
    ]
    assert len(calls) >= 4
    assert not [name for name, given in calls if "only_values" not in given]
