"""Real kernels that log in to test hosts, and what they may leave there."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cluster.host import Host
from cluster.town import Town
from kernels import Kernel, Ran, kernel
from leaks import leaves_nothing

START = """
import os, socket, sys, time
import skyward_nb as sky
here = sky.Image(interpreter=sys.executable)
"""


class Notebook:
    """A kernel, and cells that it runs on a pool."""

    def __init__(self, running: Kernel, options: str) -> None:
        self.kernel = running
        self.options = options
        """What says which pool it is; a test may change it before it begins."""

    def code(self, body: str, more: str = "") -> str:
        """A cell for the pool."""
        return f"%%sky_remote {self.options} {more}\n{body}"

    def cell(self, body: str, more: str = "", timeout: float = 90, **how) -> Ran:
        """Run a cell on the pool, whatever comes of it."""
        return self.kernel.run(self.code(body, more), timeout, **how)

    def well(self, body: str, more: str = "", timeout: float = 90) -> Ran:
        """Run a cell on the pool, which is to end well."""
        ran = self.cell(body, more, timeout)
        assert ran.status == "ok", ran.traceback or ran
        return ran

    def values(self, body: str, more: str = "", timeout: float = 90) -> list:
        """The values that a cell ends with, rank by rank."""
        self.well(body, f"{more} out=got", timeout)
        return ast.literal_eval(self.here("print([each for each in got])"))

    def has_environment_of(self, index: str) -> None:
        """From now on its pools have an environment with one package of this index."""
        self.here(f"bare = sky.Image(pip=['six'], env={{'UV_DEFAULT_INDEX': {index!r}}})")
        self.options = self.options.replace("image=here", "image=bare")

    def here(self, body: str, timeout: float = 60) -> str:
        """What a cell prints that runs in the notebook alone, and well."""
        ran = self.kernel.run(body, timeout)
        assert ran.status == "ok", ran.traceback
        return ran.stdout


_STAYS = ("code", "envs", "uv", "folders")
"""What of `~/.cache/skyward_nb` is for later pools: packages, environments and folders of scripts."""
_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run/user", "/home/ann/.cache/skyward_nb")


def left_on(host: Host) -> list[str]:
    """What of pools a host still has: processes, sockets, values.

    Tests ask again and again: a `find` that enters the host takes fifty times as long.
    """
    running = [words for words in host.processes().values() if "skyward" in words]
    return running + [each for folder in _FOLDERS for each in _files(host.file(folder))]


def _files(folder: Path) -> Iterator[str]:
    """All below a folder but folders and what stays. What another machine lends a host lies on another file system."""
    # It may be removed meanwhile.
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
        device = folder.stat().st_dev
        for each in found:
            if each.name in _STAYS and folder.name == "skyward_nb":
                continue
            if not each.is_dir(follow_symlinks=False):
                yield each.path
                continue
            with suppress(FileNotFoundError):
                if each.stat(follow_symlinks=False).st_dev == device:
                    yield from _files(Path(each.path))


def nothing_left(town: Town, seconds: float = 60) -> None:
    """Nothing of any pool is on any host, or soon is not."""
    end = time.monotonic() + seconds
    while (left := {host.name: found for host in town if (found := left_on(host))}) and (
        time.monotonic() < end
    ):
        time.sleep(0.1)
    assert not left, left


class TownNotebook(Notebook):
    """A kernel, and cells that it runs on a town."""

    def __init__(self, running: Kernel, town: Town) -> None:
        super().__init__(running, f"hosts={','.join(town.names)} config={town.config} image=here")
        self.town = town
        self._limited: dict[str, str] = {}

    def limit(self, seconds: float, *places: str) -> None:
        """Have constants of the package, such as `pool.registry._REACH`, be this in its kernel."""
        for place in places:
            before = self._set(place, repr(seconds))
            self._limited.setdefault(place, before)

    def _set(self, place: str, value: str) -> str:
        """Set one; returns what it was."""
        module, _, name = place.rpartition(".")
        return self.here(
            "import importlib\n"
            f"module = importlib.import_module('skyward_nb.{module}')\n"
            f"print(module.{name})\nmodule.{name} = {value}"
        ).strip()

    def restore_limits(self) -> None:
        while self._limited:
            self._set(*self._limited.popitem())


class KernelOfModule:
    """A kernel that notebooks have one after another; none knows a name of the one before."""

    def __init__(self) -> None:
        self._life = ExitStack()
        self._running: Kernel | None = None

    @contextmanager
    def lent(self) -> Iterator[Kernel]:
        """The kernel; a new one where a test went wrong in the last."""
        if self._running is None:
            self._running = self._life.enter_context(kernel())
        try:
            yield self._running
            assert self._running.run("%reset -f").status == "ok"
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._running = None
        self._life.close()


class PoolOfModule:
    """A notebook with a pool that stays up: each test has new ranks, and a kernel that knows no names."""

    def __init__(self, count: int, options: str, folder: Path) -> None:
        self._town = Town(count, folder)
        self._options = options
        self._life = ExitStack()
        self.book = self._begin()

    def _begin(self) -> TownNotebook:
        running = self._life.enter_context(kernel())
        book = TownNotebook(running, self._town)
        book.options += f" {self._options}"
        book.here(START)
        book.well("1")
        return book

    def renew(self) -> None:
        """For the next test: lines as they were; the pool is another one where a test has ended it."""
        try:
            self._town.mend()
            self.book.restore_limits()
            for line in ("%reset -f", START, "%sky restart"):
                self.book.here(line)
        except (AssertionError, TimeoutError):
            self._life.close()
            self._town.empty()
            self.book = self._begin()

    def close(self) -> None:
        try:
            self.book.here("%sky down all")
            nothing_left(self._town)
        finally:
            self._life.close()
            self._town.close()


@contextmanager
def notebook(
    town: Town, *, leaves: bool = False, lender: KernelOfModule | None = None, **env: str
) -> Iterator[TownNotebook]:
    """A notebook for a town; when its pools are down nothing is left of them, here or there.

    With `leaves`, hosts may be gone or full, and keep what they have. Its kernel is that of a
    module, or one of its own; it has these variables meanwhile.
    """
    with ExitStack() as stack:
        if lender is not None:
            running = stack.enter_context(lender.lent())
            before = stack.enter_context(leaves_nothing())
        else:
            before = stack.enter_context(leaves_nothing())
            running = stack.enter_context(kernel())
        assert running.run(START).status == "ok"
        book = TownNotebook(running, town)
        if env:
            book.here(f"os.environ.update({env!r})")
        yield book
        down = running.run("%sky down all", 60)
        assert down.status == "ok", down.traceback
        book.restore_limits()
        for name in env:
            was = os.environ.get(name)
            is_to_be = "os.environ.pop({0!r})" if was is None else "os.environ[{0!r}] = {1!r}"
            book.here(f"import os\n{is_to_be.format(name, was)}")
        if lender is not None:
            # It may have been restarted.
            before.add(f"child {running.manager.provisioner.pid}")
    if not leaves:
        nothing_left(town)
