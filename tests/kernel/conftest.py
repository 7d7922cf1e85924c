"""A folder of kernels that is the tests' own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where kernels are installed, and looked for first."""
    folder = tmp_path_factory.mktemp("prefix")
    jupyter = folder / "share" / "jupyter"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(jupyter))
        patch.setenv("JUPYTER_DATA_DIR", str(folder / "user"))
        yield folder
    assert os.environ.get("JUPYTER_PATH") != str(jupyter)
