"""What `make test` leaves to `make test-all` stands in a table, each row with tests that `make test` runs in its stead."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
_WAYS = re.compile(r"(?<!\"@pytest\.)mark\.extensive|\bfew\(|getoption\(\"--all\"")
"""How a test, or what makes its cases, says that `make test` does not run all of them."""


def rows() -> list[list[str]]:
    """The table of CONTRIBUTING.md: what is left, what guards it, and in which files or folders it is."""
    text = (TESTS.parent / "CONTRIBUTING.md").read_text()
    _, _, table = text.partition("| left to `make test-all` | guarded by | in |\n")
    table = table.partition("\n\n")[0]
    return [line.split("|")[1:-1] for line in table.splitlines()[1:]]


def paths(cell: str) -> list[str]:
    """The files and folders of tests that a cell names; a name alone is in the folder of the one before it."""
    found, folder = [], ""
    for path in re.findall(r"`((?:tests/[\w/]+/)?(?:\w+\.py)?)`", cell):
        if path.startswith("tests/"):
            folder = path.rpartition("/")[0]
            found.append(path)
        elif path:
            found.append(f"{folder}/{path}")
    return found


def guards() -> list[str]:
    """The tests that are named as guards, and the files and folders that are."""
    names = {name for _, guard, _ in rows() for name in re.findall(r"`(test_\w+)`", guard)}
    return sorted({*names, *(path for _, guard, _ in rows() for path in paths(guard))})


def is_marked(mark: ast.expr) -> bool:
    """Whether this, which stands above a test or is its module's `pytestmark`, makes all of its cases extensive."""
    if isinstance(mark, ast.List | ast.Tuple):
        return any(map(is_marked, mark.elts))
    return isinstance(mark, ast.Attribute) and mark.attr == "extensive"


@cache
def those_that_run(path: Path) -> frozenset[str]:
    """The tests of a file of which `make test` runs a case."""
    body = ast.parse(path.read_text()).body
    assigned = (each for each in body if isinstance(each, ast.Assign))
    of_all = (each.value for each in assigned if ast.unparse(each.targets[0]) == "pytestmark")
    if any(map(is_marked, of_all)):
        return frozenset()
    functions = (each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(
        each.name
        for each in functions
        if each.name.startswith("test_") and not any(map(is_marked, each.decorator_list))
    )


@cache
def makers() -> list[re.Pattern[str]]:
    """Imports of functions that make cases, of which `make test` does not run all."""
    found = []
    for path in TESTS.rglob("*.py"):
        if path.parent == TESTS or path.name.startswith("test_"):
            continue
        text = path.read_text()
        for function in re.split(r"^(?=def )", text, flags=re.MULTILINE)[1:]:
            if _WAYS.search(function):
                module = ".".join(path.relative_to(TESTS).with_suffix("").parts)
                name = function[4 : function.index("(")]
                found.append(re.compile(rf"^from {module} import .*\b{name}\b", re.MULTILINE))
    return found


@cache
def files() -> list[str]:
    """The files that have an extensive case, or take their cases from a function beside them that makes some."""
    found = []
    for path in set(TESTS.rglob("test_*.py")) - {Path(__file__)}:
        text = path.read_text()
        if _WAYS.search(text) or any(each.search(text) for each in makers()):
            found.append(str(path.relative_to(TESTS.parent)))
    return sorted(found)


@cache
def places() -> dict[str, list[Path]]:
    """The files that have a test of each name."""
    found: dict[str, list[Path]] = {}
    for path in TESTS.rglob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE):
            found.setdefault(name, []).append(path)
    return found


def listed() -> set[str]:
    return {path for *_, where in rows() for path in paths(where)}


@pytest.mark.parametrize("name", guards())
def test_a_guard_is_a_test_that_runs(name):
    if not name.startswith("tests/"):
        assert name in places(), "no test has this name"
        assert any(name in those_that_run(path) for path in places()[name])
        return
    path = TESTS.parent / name
    inside = path.rglob("test_*.py") if name.endswith("/") else [path]
    assert any(map(those_that_run, inside)), "`make test` runs no test of it"


@pytest.mark.parametrize("path", files())
def test_what_is_left_out_is_in_the_table(path):
    assert {path, *(f"{each}/" for each in map(str, Path(path).parents))} & listed()


@pytest.mark.parametrize("path", sorted(listed()))
def test_what_is_in_the_table_is_left_out(path):
    assert path in files() or any(each.startswith(path) for each in files() if path.endswith("/"))


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", {"test_a"}),
        ("@pytest.mark.timeout(9)\n@pytest.mark.extensive\n", set()),
        ("@pytest.mark.parametrize('x', few(1, 'ab'))\n", {"test_a"}),
        ("pytestmark = pytest.mark.extensive\n\n\n", set()),
        ("pytestmark = [pytest.mark.extensive, pytest.mark.timeout(9)]\n\n\n", set()),
        ("pytestmark = pytest.mark.timeout(9)\n\n\n", {"test_a"}),
    ],
)
def test_which_tests_of_a_file_run(tmp_path, text, runs):
    path = tmp_path / "test_it.py"
    path.write_text(f"{text}def test_a():\n    pass\n")
    assert those_that_run(path) == runs
