"""The stand on which cases are played, and the table of what came of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

# Their assertions tell what they compared, as those of tests do.
pytest.register_assert_rewrite("faults.play", "faults.stand", "faults.channel")

from faults import table  # noqa: E402
from faults.matrix import Case, all_cases  # noqa: E402
from faults.play import Result  # noqa: E402
from faults.stand import Stand  # noqa: E402

RESULTS = pytest.StashKey[list[tuple[Case, Result]]]()


def pytest_addoption(parser):
    parser.addoption(
        "--faults-table",
        metavar="PATH",
        help="as --all, and write what came of the cases of the fault matrix to this file",
    )


def pytest_configure(config):
    config.stash[RESULTS] = []
    if config.getoption("--faults-table", default=None):
        config.option.all = True


def pytest_sessionfinish(session, exitstatus):
    path = session.config.getoption("--faults-table", default=None)
    found = session.config.stash[RESULTS]
    # A table of some of them would pass for one of all.
    if path and len(found) == len(all_cases()):
        Path(path).write_text(table.written(found))


def pytest_terminal_summary(terminalreporter, config):
    path = config.getoption("--faults-table", default=None)
    played, all_of_them = len(config.stash[RESULTS]), len(all_cases())
    if path and played < all_of_them:
        words = f"{path} is not written: {played} of {all_of_them} cases were played"
        terminalreporter.write_line(words)


@pytest.fixture(scope="session")
def results(request) -> list[tuple[Case, Result]]:
    """What came of the cases so far."""
    return request.config.stash[RESULTS]


@pytest.fixture(scope="module")
def stand(runtime_dir) -> Iterator[Stand]:
    """One pool at a time, which cases use one after another."""
    made = Stand()
    yield made
    made.close()
