"""The environments of `make test-frontends`: one for each front end, beside this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "build" / "frontends"


def python_of(name: str) -> str:
    """The interpreter of an environment; skips the test where it is not made."""
    python = _FOLDER / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{name} is not installed: make test-frontends does it")
    return str(python)


def own_folders(folder: Path) -> dict[str, str]:
    """Variables by which Jupyter keeps to a folder."""
    parts = ("config", "data", "runtime", "path")
    return (
        os.environ
        | {f"JUPYTER_{part.upper()}_DIR": str(folder / part) for part in parts[:-1]}
        | {"JUPYTER_PATH": str(folder / "share" / "jupyter")}
    )
