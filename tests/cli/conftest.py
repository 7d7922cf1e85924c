"""Scripts for `skyward-nb run`, and the check that no pool is left after one."""

from __future__ import annotations

import pytest

from skyward_nb.pool import registry


@pytest.fixture
def script(tmp_path, no_leaks):
    """Writes a script, and tells its name."""

    def write(text, name="train.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    write.folder = tmp_path
    yield write
    assert not registry.entries()
