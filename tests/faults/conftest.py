"""The stand on which cases are played, and the table of what came of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

# Their assertions tell what they compared, as those of tests do.
pytest.register_assert_rewrite("faults.play", "faults.stand", "faults.channel")

from faults import table  # noqa: E402
from faults.matrix import Case  # noqa: E402
from faults.play import Result  # noqa: E402
from faults.stand import Stand  # noqa: E402

RESULTS = pytest.StashKey[list[tuple[Case, Result]]]()


def pytest_addoption(parser):
    parser.addoption(
        "--faults-table",
        metavar="PATH",
        help="play every case of the fault matrix, not a sample, and write the table of results",
    )


def pytest_configure(config):
    config.stash[RESULTS] = []


def pytest_sessionfinish(session, exitstatus):
    path = session.config.getoption("--faults-table", default=None)
    if path:
        Path(path).write_text(table.written(session.config.stash[RESULTS]))


@pytest.fixture(scope="session")
def results(request) -> list[tuple[Case, Result]]:
    """What came of the cases so far."""
    return request.config.stash[RESULTS]


@pytest.fixture(scope="session")
def stand(runtime_dir) -> Iterator[Stand]:
    """One pool at a time, which cases use one after another."""
    made = Stand()
    yield made
    made.close()
