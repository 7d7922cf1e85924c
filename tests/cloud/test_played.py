"""Cases of failing calls count as played for as long as nothing has changed that they depend on."""

from __future__ import annotations

import pytest
from cloud.played import Played

FILES = (
    "tests/cloud/scenes.py",
    "tests/cloud/image/shutdown",
    "skyward_nb/providers/aws/deadman.sh",
)


@pytest.fixture
def root(tmp_path):
    for each in FILES:
        path = tmp_path / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("as it was")
    return tmp_path


def test_what_was_played_is_not_played_again(root):
    Played(root).note("a case", 1)
    assert Played(root).codes() == {"a case": 1}
    Played(root).forget()
    assert Played(root).codes() == {}


@pytest.mark.parametrize("changed", FILES)
def test_a_case_that_was_played_with_other_files_does_not_count(root, changed):
    Played(root).note("a case", 0)
    (root / changed).write_text("as it is now")
    assert Played(root).codes() == {}
