"""Where a Python that is started finds packages beside its own."""

from __future__ import annotations

import os


def environ_with(packages: str) -> dict[str, str]:
    """The variables of a program of Python that finds the packages of a folder, too; "" for none."""
    if not packages:
        return dict(os.environ)
    there = filter(None, (packages, os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(there)}
