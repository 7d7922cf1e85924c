"""What all tests share: a folder of their own for pools, kernels, and the check for leaks."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import psutil
import pytest
from leaks import leaves_nothing
from packaging.version import Version

from skyward_nb.pickling import home_namespace as home

if TYPE_CHECKING:
    from pools import Lender

    from skyward_nb.pool.pool import Pool

pytest_plugins = ["durations"]
pytest.register_assert_rewrite("engine_pools")

# No timed assertion in a test: machines are busy.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def needs_no_fusion() -> bool:
    """Whether there is a JAX that knows the option; from 0.11 on, one that it does not know ends the process."""
    try:
        return Version(importlib.metadata.version("jaxlib")) < Version("0.11")
    except importlib.metadata.PackageNotFoundError:
        return False


# What XLA compiles in a test runs for milliseconds: to optimize it takes longer than that.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if needs_no_fusion():
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# A shell that runs tests in the background has them, and what they start, ignore interrupts.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        own = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, own)


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "also run what is marked `extensive`, and every case where else a few are played"
    parser.addoption("--all", action="store_true", help=words)
    parser.addoption(
        "--gallery",
        metavar="FOLDER",
        type=Path,
        help="keep the notebooks that tests execute on hosts, a cluster and rented machines there",
    )


@pytest.fixture
def gallery(pytestconfig: pytest.Config) -> Callable[[Path], None]:
    """Keeps an executed notebook for the gallery of the docs, where that is asked for."""
    folder: Path | None = pytestconfig.getoption("--gallery")

    def keep(executed: Path) -> None:
        if folder is not None:
            folder.mkdir(exist_ok=True)
            shutil.copy(executed, folder)

    return keep


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests that stay until the end: the collector of garbage passes them by."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Extensive tests are for `--all`, and for whoever names them."""
    if config.getoption("--all") or any("::" in each for each in config.args):
        return
    left_out = [each for each in items if each.get_closest_marker("extensive")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        kept = set(items) - set(left_out)
        items[:] = [each for each in items if each in kept]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """The garbage is looked through once: pytest does so five times, a second each beside TensorFlow and JAX."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Pools of these tests live below a folder of their own, short enough for sockets."""
    root = Path(os.environ.get("TMPDIR", "/tmp")) / f"sky-test-{os.getpid()}"
    os.environ["SKYWARD_RUNTIME_DIR"] = str(root)
    # A sweep looks through the folders of values for what other roots have left. Not SKYWARD_CACHE_DIR: no sweep looks
    # there, and it would go before the homes and XDG_CACHE_HOME by which tests of environments have their own.
    memory = Path("/dev/shm")
    beside = memory if os.access(memory, os.W_OK) else tmp_path_factory.getbasetemp()
    # What tests that were killed have left: nobody else gives that memory back.
    for old in beside.glob("sky-test-*-*"):
        if not psutil.pid_exists(int(old.name.split("-")[2])):
            shutil.rmtree(old, ignore_errors=True)
    values = Path(tempfile.mkdtemp(prefix=f"sky-test-{os.getpid()}-", dir=beside))
    os.environ["SKYWARD_STORE_DIR"] = str(values)
    os.environ["SKYWARD_SPILL_DIR"] = str(tmp_path_factory.mktemp("spill"))
    os.environ["SKYWARD_LOG_DIR"] = str(tmp_path_factory.mktemp("logs"))
    os.environ["IPYTHONDIR"] = str(ipython := tmp_path_factory.mktemp("ipython"))
    # A kernel that a test stops may hold a history that others have with it: they would wait for it, seconds each time.
    (ipython / "profile_default").mkdir()
    config = "c = get_config()\nc.HistoryAccessor.hist_file = ':memory:'\n"
    (ipython / "profile_default" / "ipython_config.py").write_text(config)
    # No defaults of whoever runs the tests.
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["SKYWARD_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    yield root
    if "kernels" in sys.modules:
        sys.modules["kernels"].end_waiting()
    left = [*root.glob("*"), *values.glob("*/*")]
    # In memory what stays is never given back.
    shutil.rmtree(values, ignore_errors=True)
    assert not left, f"left behind: {left}"
    if root.exists():
        root.rmdir()


@pytest.fixture(scope="module")
def no_collector() -> Iterator[None]:
    """For a file that reads code: its trees are no garbage, and to look for some in them takes longer than to read them."""
    gc.disable()
    yield
    gc.enable()


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


@pytest.fixture(scope="module")
def lender() -> Iterator[Lender]:
    """Keeps pools from one test of a file to the next."""
    from pools import Lender

    with leaves_nothing():
        made = Lender()
        yield made
        made.close()


@pytest.fixture
def lend(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pool]]:
    """Lends pools that no test has used, as far as one can see; afterwards nothing else is left."""
    with leaves_nothing(lender.kept):
        yield lender.lend
        monkeypatch.undo()
        lender.take_back()
