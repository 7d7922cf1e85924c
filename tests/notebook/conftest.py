"""One kernel for the tests of a module, which each find it as it began."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernels import Kernel, ready, wiped


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
