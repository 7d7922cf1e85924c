"""Chromium and the servers of other front ends, as long as a file of tests needs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from lab import labs, pages
from lab.apart import Apart, network_apart

from frontends.environments import python_of
from frontends.front_ends import FRONT_ENDS, FrontEnd

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    """Where servers and the browser meet."""
    if reason := pages.missing():
        pytest.skip(reason)
    with network_apart("frontends") as made:
        yield made


@pytest.fixture(scope="module")
def browser(apart: Apart, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium with a profile of its own."""
    with pages.chromium_at(apart, tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture(scope="module", params=FRONT_ENDS, ids=lambda each: each.environment)
def served(
    request: pytest.FixtureRequest, apart: Apart, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FrontEnd, labs.LabServer]]:
    """(front end, its server)."""
    python = python_of(request.param.environment)
    folder = tmp_path_factory.mktemp(request.param.environment)
    with labs.lab_server(folder, apart, python, request.param.module) as server:
        yield request.param, server
