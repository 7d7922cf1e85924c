"""Packages that a test does without, as on a machine where they are not installed.

Frameworks import what else they find: Keras takes TensorFlow to seed it, and scikit-learn to wrap it. On
JAX that is half of its CPU, in each rank anew. With `--all`, programs of `tests/dialects` play beside all of it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BESIDE_KERAS = ("matplotlib", "pandas", "sklearn")
"""What Keras imports where it is found, and needs for nothing here."""


def without(folder: Path, *packages: str) -> str:
    """A path for `PYTHONPATH` with which none of these packages can be imported."""
    for package in packages:
        (folder / f"{package}.py").write_text(f"raise ImportError('{package} is absent here')\n")
    return str(folder)


@contextlib.contextmanager
def doing_without(folder: Path, *packages: str) -> Iterator[None]:
    """Meanwhile pools of this process have none of these packages, nor can it import them: ranks look where it does."""
    path = without(folder, *packages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setattr(sys, "path", [path, *sys.path])
        yield
