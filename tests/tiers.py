"""Which cases of a test `make test` runs; `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(count: int, cases: Iterable[Any]) -> list[Any]:
    """The cases of a parametrized test, of which all but the first `count` are extensive."""
    cases = list(cases)
    return [*cases[:count], *map(_extensive, cases[count:])]


def _extensive(case: Any) -> Any:
    if hasattr(case, "marks"):  # a pytest.param
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.extensive], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.extensive)
