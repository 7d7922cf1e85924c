"""Kernels for the tests of a module, which each find them as they began."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import Kernel, ready, wiped
from slow import Slow


@pytest.fixture(scope="module")
def shared_kernel() -> Iterator[Kernel]:
    """It has imported what tests before have; who minds takes a `kernel()` of its own."""
    with ready() as running:
        yield running


@pytest.fixture
def fresh(shared_kernel: Kernel) -> Iterator[Kernel]:
    """The module's kernel without pools, names and settings; nothing of the test is left in it."""
    with wiped(shared_kernel) as running:
        yield running


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path / "told")


@pytest.fixture(scope="module")
def train() -> Iterator[Kernel]:
    with ready(JPY_SESSION_NAME="work/train.ipynb") as running:
        yield running


@pytest.fixture
def notebook(train: Kernel) -> Iterator[Kernel]:
    """The kernel of a notebook that has a name."""
    with wiped(train) as running:
        yield running
