"""The table of the README: what it names is there, and what is here it names."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TESTS = HERE.parent
RESULTS = ("as printed", "simulated", "otherwise", "GPU")
_ROW = re.compile(r"^\| *(\d+) *\| *(\w+) *\| *(.+?) *\| *(.+?) *\| *(.*?) *\|$", re.MULTILINE)


class Row(NamedTuple):
    number: int
    source: str
    item: str
    result: str
    tests: list[str]


def rows() -> list[Row]:
    found = _ROW.findall((HERE / "README.md").read_text())
    return [
        Row(int(number), source, item, result, re.findall(r"`([^`]+)`", tests))
        for number, source, item, result, tests in found
    ]


@functools.cache
def in_file(path: Path) -> dict[str, bool]:
    """The tests of a file, and whether `make gpu` runs each."""
    text = path.read_text()
    all_of_them = "\npytestmark = pytest.mark.gpu\n" in text
    return {
        node.name: all_of_them
        or any("mark.gpu" in ast.unparse(each) for each in node.decorator_list)
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_rows_are_numbered_and_say_how_each_item_ends():
    found = rows()
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert {each.source for each in found} == set("ABCDE")
    for row in found:
        assert row.result.startswith(RESULTS), row
        assert row.tests, row


def test_each_row_names_tests_that_exist():
    """Those of a GPU where it says so, and nowhere else."""
    for row in rows():
        for name in row.tests:
            path, _, test = name.partition("::")
            known = in_file(TESTS / path) if (TESTS / path).exists() else {}
            assert test in known, f"row {row.number}: {name}"
            assert known[test] == (row.result == "GPU"), f"row {row.number}: {name}"


def test_each_test_of_this_folder_is_named():
    here = {
        f"sources/{path.name}::{test}"
        for path in HERE.glob("test_*.py")
        for test in in_file(path)
        if path.name != Path(__file__).name
    }
    assert not here - {name for row in rows() for name in row.tests}
