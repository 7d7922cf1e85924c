"""What all tests share: a folder of their own for pools, kernels, and the check for leaks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from leaks import leaves_nothing

from skyward_nb.providers import folders
from skyward_nb.wire import home

if TYPE_CHECKING:
    from skyward_nb.pool.pool import Pool

# No timed assertion in a test: machines are busy.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


# A shell that runs tests in the background has them, and what they start, ignore interrupts.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        own = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, own)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A file's tests run in one process; those that change the network with those a change upsets."""
    from xdist.scheduler.loadfile import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            # Chromium lets go of what it loads when an interface comes or goes (ERR_NETWORK_CHANGED).
            networks = ("tests/cluster/", "tests/cloud/", "tests/lab/")
            return "networks" if nodeid.startswith(networks) else super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Pools of these tests live below a folder of their own, short enough for sockets."""
    root = Path(os.environ.get("TMPDIR", "/tmp")) / f"sky-test-{os.getpid()}"
    os.environ["SKYWARD_RUNTIME_DIR"] = str(root)
    os.environ["SKYWARD_LOG_DIR"] = str(tmp_path_factory.mktemp("logs"))
    os.environ["IPYTHONDIR"] = str(tmp_path_factory.mktemp("ipython"))
    os.environ["SKYWARD_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    yield root
    for left in root.glob("*"):
        raise AssertionError(f"left behind: {left}")
    for empty in (root, folders.store_root()):
        if empty.exists():
            empty.rmdir()


@pytest.fixture
def no_leaks() -> Iterator[set[str]]:
    """After the test nothing is left of what it started."""
    with leaves_nothing() as before:
        yield before


@pytest.fixture
def index_here() -> Iterator[str]:
    """An index of packages that this machine reaches alone."""
    from bootstrap.homes import package_index

    with package_index() as address:
        yield address


@pytest.fixture
def home_namespace() -> Iterator[dict[str, object]]:
    """A namespace that functions made in it belong to, as a notebook's `__main__` is."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    before = home.home()
    home.set_home(namespace)
    yield namespace
    home.set_home(before)


@pytest.fixture
def make(no_leaks: set[str]) -> Iterator[Callable[..., Pool]]:
    """Makes pools, which are closed after the test."""
    from pools import start

    made: list[Pool] = []

    def make_one(**options: object) -> Pool:
        made.append(start(**options))
        return made[-1]

    yield make_one
    for pool in made:
        pool.close()
