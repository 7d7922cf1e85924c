"""The programs of both dialects: each is run, and those that run seldom have one that always does."""

from __future__ import annotations

import pytest
from dialects import test_newer, test_older
from dialects.program import HERE

PROGRAMS = test_newer.PROGRAMS | test_older.PROGRAMS
OURS = {"program.py", "test_dialects.py", "test_newer.py", "test_older.py", "test_pytorch.py"}


def test_every_program_is_run():
    found = {str(path.relative_to(HERE)) for path in HERE.rglob("*.py")}
    ours = {name for name in found if name.startswith("pytorch/")} | OURS  # those of `test_pytorch`
    assert found - ours == PROGRAMS.keys()


def test_what_plays_the_path_of_each_that_runs_seldom_is_always_run():
    seldom = {program.alike for program in PROGRAMS.values() if program.alike}
    tests = {each for each in seldom if "::" in each}
    assert not any(PROGRAMS[alike].alike for alike in seldom - tests)
    for each in tests:
        path, _, name = each.partition("::")
        text = (HERE.parent / path).read_text()
        before, found, _ = text.partition(f"\ndef {name}(")
        assert found, each
        assert "@pytest.mark.extensive" not in before.rpartition("\n\n")[2], each


def test_thirty_lines_are_thirty_lines():
    lines = (HERE / "thirty_lines.py").read_text().splitlines()
    assert len([line for line in lines if line]) <= 30


@pytest.mark.parametrize(("newer", "older"), [("Compute", "ComputePool"), ("function", "compute")])
def test_both_dialects_mean_the_same(newer, older):
    import skyward_nb as sky

    assert getattr(sky, newer) is getattr(sky, older)
