"""Hosts for a test, as many as it asks for, gone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from cluster.box import why_no_boxes
from cluster.town import Town

_why_not = cache(why_no_boxes)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[..., Town]]:
    """`hosts(2)` are two machines that one can log in to; see `Town` and `Host` for what they can."""
    if why := _why_not():
        pytest.skip(why)
    made: list[Town] = []

    def make(count: int, **options: object) -> Town:
        made.append(Town(count, tmp_path / f"town{len(made)}", **options))
        return made[-1]

    yield make
    for town in made:
        town.close()
