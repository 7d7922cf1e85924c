"""What `make test` leaves to `make test-all` is guarded by tests that it runs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def guards() -> list[str]:
    """The tests that the table of CONTRIBUTING.md names as guards."""
    text = (TESTS.parent / "CONTRIBUTING.md").read_text()
    table = text.partition("| left to `make test-all` | guarded by |")[2].partition("\n\n")[0]
    columns = [line.split("|") for line in table.splitlines() if line.startswith("|")]
    return sorted({name for row in columns for name in re.findall(r"`(test_\w+)`", row[2])})


@cache
def all_marks() -> dict[str, list[str]]:
    """What stands above each test, by its name."""
    found: dict[str, list[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        for place in re.finditer(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE):
            found.setdefault(place[1], []).append(text[: place.start()].rpartition("\n\n")[2])
    return found


@pytest.mark.parametrize("name", guards())
def test_a_guard_is_a_test_that_runs(name):
    marks = all_marks().get(name)
    assert marks, "no test has this name"
    assert not any("@pytest.mark.extensive" in each for each in marks)
