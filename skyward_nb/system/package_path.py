"""Folders of packages, beside its own, for a Python that is started."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGES = "packages.txt"
"""The file in a folder of packages that lists them, each at its version."""


def packages_here() -> str:
    """The folder of packages that this process finds beside its Python's own; "" for none."""
    first = os.environ.get("PYTHONPATH", "").partition(os.pathsep)[0]
    return first if first and (Path(first) / PACKAGES).exists() else ""


def environ_with(packages: str) -> dict[str, str]:
    """The variables of a program of Python that finds the packages of a folder, too; "" for none."""
    if not packages:
        return dict(os.environ)
    there = filter(None, (packages, os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(there)}
