"""Functions of a test file belong to the script that it stands for."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_home(home_namespace):
    """What pools take for the script is not left to other tests."""
