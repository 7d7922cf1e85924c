"""Real kernels that log in to test hosts, and what they may leave there."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

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


def left_on(host: Host) -> list[str]:
    """What of pools a host still has: processes, sockets, values. Packages and environments stay."""
    running = [words for words in host.processes().values() if "skyward" in words]
    kept = r"-path '*/skyward_nb/code*' -o -path '*/skyward_nb/envs*' -o -path '*/skyward_nb/uv*'"
    folders = "/tmp /var/tmp /dev/shm /run/user /home/ann/.cache/skyward_nb"
    found = host.run(f"find {folders} -not \\( {kept} \\) -not -type d 2>/dev/null || true").split()
    # Hosts have the folders of this Python, wherever those are.
    return running + [each for each in found if not each.startswith((sys.prefix, sys.base_prefix))]


def nothing_left(town: Town, seconds: float = 20) -> None:
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


@contextmanager
def notebook(town: Town, *, leaves: bool = False, **env: str) -> Iterator[TownNotebook]:
    """A kernel for a town; when its pools are down nothing is left of them, here or there.

    With `leaves`, hosts may be gone or full, and keep what they have.
    """
    with leaves_nothing(), kernel(**env) as running:
        assert running.run(START).status == "ok"
        yield TownNotebook(running, town)
        down = running.run("%sky down all", 60)
        assert down.status == "ok", down.traceback
    if not leaves:
        nothing_left(town)
