"""The agent's connection to its forge: orders on their way, and which modules the forge has imported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from skyward_nb.node.forge_messages import ModulesPreloaded, Order, PreloadModules, RankForked, Word
from skyward_nb.node.forge_messages import send as send_message
from skyward_nb.node.forge_start import start_forge
from skyward_nb.system import processes
from skyward_nb.system.package_path import environ_with, packages_here
from skyward_nb.words.decoding import from_msgpack

if TYPE_CHECKING:
    from skyward_nb.node.local_ranks import LocalRanks


class ForgeConnection:
    """Sends orders in order, with descriptors, and lists the processes that the agent is to end."""

    def __init__(
        self, folder: Path, stores: tuple[str, ...], pid: int, control: socket.socket
    ) -> None:
        self._folder = folder
        self._stores = stores
        self._pid = pid
        self._socket = control
        self.python: str = sys.executable
        """The Python of the forge and its ranks."""
        self.packages: str = packages_here()
        """Their folder of packages beside its own, or ""."""
        self._orders: deque[tuple[Order, tuple[IO[bytes] | socket.socket, ...]]] = deque()
        self._changing = asyncio.Lock()
        self._is_renewed = False
        self._is_lost = False
        """Whether a forge that was started anew ended before it had imported anything."""
        self._ordered: set[str] | None = None
        """Modules that it was ordered to import."""
        self.imported: asyncio.Event = asyncio.Event()
        """Set while it has imported all of them that can be."""
        self._answers = 1
        """How many answers to what it was ordered to import are to come."""
        self.missing: dict[str, str] = {}
        """Modules that could not be imported, and why."""

    def open(self, ranks: LocalRanks, ended: Callable[[], None]) -> None:
        """Listen from now on; calls `ended` if the forge ends by itself."""
        self._loop = asyncio.get_running_loop()
        self._ranks, self._ended = ranks, ended
        self._listen()

    def _listen(self) -> None:
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)
        self.list_processes()

    async def close(self) -> None:
        """Hang up, and wait until the forge has ended its ranks and itself."""
        async with self._changing:
            await self._close()

    async def _close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for _, resources in self._orders:
            for each in resources:
                each.close()
        self._orders.clear()
        await self._loop.run_in_executor(None, wait_for_forge, self._pid)

    async def renew(self, python: str, packages: str) -> None:
        """End this forge, whose ranks have ended, and start another: in this Python, with a folder of packages.

        Raises OSError where that one cannot be started; it is then another one as before.
        """
        async with self._changing:
            await self._close()
            self._is_renewed, self._is_lost = True, False
            modules = sorted(self._ordered or ())
            self._ordered = {*modules}
            self.imported.clear()
            self._answers = 1
            self.missing = {}
            arguments = [str(self._folder), *self._stores, *modules]
            try:
                self._pid, self._socket = start_forge(arguments, python, environ_with(packages))
                self.python, self.packages = python or sys.executable, packages
            except OSError:
                self.python, self.packages = sys.executable, packages_here()
                self._pid, self._socket = start_forge(arguments)
                raise
            finally:
                self._listen()

    def list_processes(self) -> None:
        """Begin anew the list of processes, which are to be ended if the agent is found dead."""
        own = map(processes.known, (os.getpid(), self._pid))
        processes.note(self._folder, [each for each in own if each is not None], anew=True)

    def preload(self, modules: set[str]) -> None:
        """Have it import modules that it has not been ordered to import yet."""
        if self._is_lost:
            return
        if self._ordered is None:
            self._ordered = modules  # its command line had these
        elif more := modules - self._ordered:
            self._ordered |= modules
            if self.imported.is_set():
                self.imported.clear()
                self.missing = {}
            self._answers += 1
            self.send(PreloadModules(tuple(sorted(more))))

    def send(self, order: Order, *resources: IO[bytes] | socket.socket) -> None:
        """Send an order and descriptors, which are closed once they are sent, or cannot be any more."""
        self._orders.append((order, resources))
        if len(self._orders) == 1:
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._orders:
            order, resources = self._orders[0]
            try:
                send_message(self._socket, order, [each.fileno() for each in resources])
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._send_waiting)
                return
            except OSError:
                """The forge is gone, which `_read` sees, too, or was hung up on."""
            self._orders.popleft()
            for each in resources:
                each.close()
        if self._socket.fileno() >= 0:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        while self._read_word():
            """All ranks that it has begun are known before what they say themselves is heard."""

    def _read_word(self) -> bool:
        """Take a word, if there is one; whether it was of a rank that was begun."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self._loop.remove_reader(self._socket)
            if not self._is_renewed or self.imported.is_set():
                self._ended()
                return False
            # Another environment may follow: ranks are refused, and the agent lives.
            self._is_lost = True
            self.missing = {"skyward_nb": "its Python ended, see the agent's log"}
            self.imported.set()
            return False
        word = from_msgpack(data, Word)
        if isinstance(word, ModulesPreloaded):
            self._answers -= 1
            self.missing |= word.missing
            if not self._answers:
                self.imported.set()
            self._is_renewed = False  # it has begun: its end is the agent's
        elif isinstance(word, RankForked):
            processes.note(self._folder, [processes.ProcessIdentity(word.pid, word.started)])
            self._ranks.forked(word)
        else:
            self._ranks.exited(word)
        return isinstance(word, RankForked)


def wait_for_forge(pid: int) -> None:
    """Wait until the forge has ended; then end what came to this process if it was killed."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    processes.end_children()
