"""One kernel for the cells of all pages, which each page finds as it began."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import Kernel, ready, wiped


@pytest.fixture(scope="module")
def shared_kernel() -> Iterator[Kernel]:
    commands = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with ready(PATH=commands) as running:
        yield running


@pytest.fixture
def fresh(shared_kernel: Kernel) -> Iterator[Kernel]:
    with wiped(shared_kernel) as running:
        yield running
