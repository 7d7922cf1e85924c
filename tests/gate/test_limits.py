"""One noun, one module: none grows beyond what a person reads at once."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "skyward_nb"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES, MOST_METHODS, MOST_LINES_OF_THE_FACE = 400, 30, 200


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_and_its_classes_are_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES, "divide it: one noun, one module"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            assert len(methods) <= MOST_METHODS, f"{node.name} is more than one class"


def test_the_face_of_a_pool_is_a_face():
    assert len((PACKAGE / "pool/pool.py").read_text().splitlines()) <= MOST_LINES_OF_THE_FACE


def test_no_two_classes_have_one_name():
    names = [
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not {name for name in names if names.count(name) > 1}


def test_the_notebook_says_of_each_value_that_it_reads_whether_it_takes_plain_values_alone():
    """`trust=values` holds on every way that values come back."""
    calls = [
        (path.name, {each.arg for each in node.keywords})
        for path in MODULES
        if not {"node", "pickling"} & {*path.parts}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "unpack"
    ]
    assert len(calls) >= 4
    assert not [name for name, given in calls if "only_values" not in given]
