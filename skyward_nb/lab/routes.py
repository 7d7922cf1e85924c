"""The routes below `skyward/`: what a Jupyter server answers to the panel, and to renderers of runs.

Agents, logs and processes are asked in threads, as the server's loop serves kernels, too. A poll is no activity
of a person: servers that end when nobody uses them still do.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import tornado.web
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join

from skyward_nb.words.errors import OptionError, SkyError

T = TypeVar("T")
_NOT_POSSIBLE = 409


class Answer(msgspec.Struct, frozen=True):
    """What an action has done, in words."""

    said: str


class Refused(tornado.web.HTTPError):
    """An action that is not possible now; `said` tells why, and what to do instead."""

    def __init__(self, said: str) -> None:
        super().__init__(_NOT_POSSIBLE)
        self.said = said


class _Route(APIHandler):
    """A route for those who may use this server; what is refused is answered with its reason."""

    auth_resource = "skyward"
    _track_activity = False

    async def ask(self, what: Callable[[], T]) -> T:
        """Its value, from a thread; raises `Refused` with the message of an error of this package."""
        try:
            return await asyncio.to_thread(what)
        except (SkyError, OptionError) as error:
            raise Refused(error.message) from error

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send the reason of what is refused; anything else as the server does."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        if isinstance(error, Refused):
            self.finish(json.dumps({"message": error.said}))
        else:
            super().write_error(status_code, **kwargs)

    def answer(self, document: msgspec.Struct) -> None:
        """Send a document."""
        self.finish(msgspec.json.encode(document))

    def compute_etag(self) -> None:
        """No tag: a client that asks again wants the present answer."""

    def kernels(self) -> dict[int, str]:
        """The kernels of this server: their ids, by their process ids."""
        manager = self.kernel_manager
        found: dict[int, str] = {}
        for kernel_id in manager.list_kernel_ids():
            provisioner = manager.get_kernel(kernel_id).provisioner
            if process := getattr(provisioner, "pid", None):
                found[process] = kernel_id
        return found


class PoolsRoute(_Route):
    """All pools."""

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer a poll."""
        kernels = self.kernels()

        def look() -> msgspec.Struct:
            # Its imports take a fifth of a second, and no server needs them that nobody polls.
            from skyward_nb.lab.pool_panel import panel_state

            return panel_state(kernels)

        self.answer(await self.ask(look))


class StandingRoute(_Route):
    """Where the ranks of a pool's run are."""

    @tornado.web.authenticated
    @authorized
    async def get(self, pool_id: str) -> None:
        """Ask for stacks, and say who waits for whom."""
        from skyward_nb.lab.pool_panel import pool_standing

        self.answer(await self.ask(lambda: pool_standing(pool_id)))


class OutputRoute(_Route):
    """What ranks printed in the newest run."""

    @tornado.web.authenticated
    @authorized
    async def get(self, pool_id: str) -> None:
        """Read the log on disk."""
        from skyward_nb.lab.pool_panel import run_output

        self.answer(await self.ask(lambda: run_output(pool_id)))


class RunRoute(_Route):
    """A run whose end the notebook has not seen."""

    @tornado.web.authenticated
    @authorized
    async def get(self, pool_id: str, number: str) -> None:
        """Read what its display writes, or wrote in the end."""
        from skyward_nb.lab.run_pages import run_now

        self.answer(await self.ask(lambda: run_now(pool_id, int(number))))


class LogRoute(_Route):
    """The whole output of a run."""

    @tornado.web.authenticated
    @authorized
    async def get(self, pool_id: str, number: str) -> None:
        """Read a page of the log on disk: `from` or `before`, `count`, `ranks` such as `0,2`, and what to `search`."""
        from skyward_nb.lab.run_pages import log_page

        begin, count = self._number("from", 0), self._number("count", 1000)
        before = max(0, self._number("before", 0)) if self.get_argument("before", "") else None
        try:
            chosen = {int(rank) for rank in self.get_argument("ranks", "").split(",") if rank}
        except ValueError:
            raise Refused("ranks= is a list of numbers, such as 0,2") from None
        sought = self.get_argument("search", "", strip=False).lower()
        run = f"{pool_id}/{number}"
        asked = begin, count, chosen or None, sought, before
        self.answer(await self.ask(lambda: log_page(run, *asked)))

    def _number(self, name: str, default: int) -> int:
        text = self.get_argument(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise Refused(f"{name}={text} is not a number") from None


class InterruptRoute(_Route):
    """The stop button of whatever conducts a pool."""

    @tornado.web.authenticated
    @authorized
    async def post(self, pool_id: str) -> None:
        """Interrupt the kernel, or the program."""
        from skyward_nb.lab.pool_panel import client_to_interrupt

        client = await self.ask(lambda: client_to_interrupt(pool_id))
        if kernel_id := self.kernels().get(client.pid):
            await ensure_async(self.kernel_manager.interrupt_kernel(kernel_id))
        else:
            try:
                os.kill(client.pid, signal.SIGINT)
            except ProcessLookupError:
                raise Refused("it has ended meanwhile") from None
        self.answer(Answer("interrupted"))


class DownRoute(_Route):
    """The end of a pool that has no client, as `skyward-nb down` ends it."""

    @tornado.web.authenticated
    @authorized
    async def post(self, pool_id: str) -> None:
        """Run the command; its answer is that of the command."""
        from skyward_nb.lab.pool_panel import find_entry

        await self.ask(lambda: find_entry(pool_id))
        # Not in this process: it imports much, and speaks to other machines for as long as they need.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "skyward_nb", "down", pool_id),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        said = printed.decode(errors="replace").strip()
        if process.returncode:
            raise Refused(said)
        self.answer(Answer(said))


_ROUTES: dict[str, type[_Route]] = {
    "pools": PoolsRoute,
    "pools/([^/]+)/standing": StandingRoute,
    "pools/([^/]+)/output": OutputRoute,
    "pools/([^/]+)/interrupt": InterruptRoute,
    "pools/([^/]+)/down": DownRoute,
    r"runs/([^/]+)/(\d{1,9})": RunRoute,
    r"runs/([^/]+)/(\d{1,9})/log": LogRoute,
}


def routes(base_url: str) -> list[tuple[str, type[_Route]]]:
    """Paths and handlers below the address of a server."""
    return [(url_path_join(base_url, "skyward", path), route) for path, route in _ROUTES.items()]
