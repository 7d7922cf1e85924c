"""Simulated remote machines on this one, without shared files: for tests.

Each node has its own agent in its own folders, which is reached by its two sockets alone, over lines that can
be slow, cut and mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from skyward_nb.protocol.commands import UseEnvironment
from skyward_nb.providers.folders import (
    PoolFolders,
    end_agent,
    is_gone,
    make_folders,
    pool_folders,
    remove_folders,
    sweep,
)
from skyward_nb.providers.local import LocalMachine, packages_of
from skyward_nb.providers.orphans import is_ours
from skyward_nb.providers.provider_protocol import (
    AgentGone,
    InstalledEnvironment,
    Machine,
    MachineEnded,
    Readied,
    ReplacementRequest,
    Tell,
)
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec

_CHUNK = 1 << 18
_WINDOW = 2 << 20
_POLL = 0.05


class FakeMachine:
    """One machine with one node; each byte takes `delay` seconds, either way; `carried` counts bytes sent.

    `cut` closes both ends of its lines and refuses new ones; `freeze` stops them without closing.
    """

    def __init__(
        self,
        pool: str,
        node: int,
        folders: PoolFolders,
        number: int = 0,
        packages: str = "",
    ) -> None:
        self.name: str = f"fake{node}{'+' * number}"
        self.nodes: tuple[int, ...] = (node,)
        self.delay: float = 0.0
        self.carried: int = 0
        self.number: int = number
        """The number of machines that it succeeds as this node."""
        self.folders: PoolFolders = folders
        self._here = LocalMachine(pool, self.nodes, self.folders, packages)
        self._store = RemoteStore(lambda: self.values(), name=self.name)
        self._lines: list[_FakeLine] = []
        self._is_cut = False
        self._is_taken = False

    async def start_agent(self, idle: float, ttl: float, preload: list[str]) -> None:
        """Start the agent; raises `StartError` with its last words."""
        await self._here.start_agent(idle, ttl, preload)

    async def install(
        self, spec: PoolSpec, present: UseEnvironment, tell: Tell
    ) -> InstalledEnvironment:
        """Make the folder of packages that this Python lacks; raises `MissingDependency`."""
        return await self._here.install(spec, present, tell)

    async def connect(self) -> socket.socket:
        """Open a stream to the agent; raises `AgentGone`, or OSError while it is cut off."""
        self._check_there()
        return self._line(await self._here.connect() if not self._is_cut else None)

    def values(self) -> socket.socket:
        """Open a stream for values; raises `AgentGone`, or OSError while it is cut off."""
        self._check_there()
        return self._line(None if self._is_cut else self._here.values())

    def last_words(self) -> str:
        """The end of the agent's log."""
        return self._here.last_words()

    async def agent_log(self, most: int) -> str:
        """The same, of so many bytes."""
        return await self._here.agent_log(most)

    def store(self) -> RemoteStore:
        """Its content store, by way of its line."""
        return self._store

    def leave(self) -> None:
        """Let the agent live on without this client."""
        self._hang_up()
        self._here.leave()

    async def release(self) -> None:
        """Wait until the agent is gone, and remove its files."""
        await self._here.release()
        self._hang_up()

    def _check_there(self) -> None:
        if self._is_taken:
            raise MachineEnded("it was taken back")

    # ── what a test does to it ──────────────────────────────────────────────────────────

    def cut(self) -> None:
        """Close both ends of all lines, and refuse new ones."""
        self._is_cut = True
        for line in self._lines:
            line.close()
        self._lines.clear()

    def take_back(self) -> None:
        """End the machine, at once and for good; later calls raise `MachineEnded`."""
        self._is_taken = True
        end_agent(self.folders.runtime)
        remove_folders(self.folders)
        self.cut()

    def freeze(self) -> None:
        """Stop all lines without closing them, and refuse new ones."""
        self._is_cut = True
        for line in self._lines:
            line.is_frozen = True

    def mend(self) -> None:
        """Allow new lines; frozen ones are closed, as after a long time."""
        for line in self._lines:
            if line.is_frozen:
                line.close()
        self._lines = [line for line in self._lines if not line.is_frozen]
        self._is_cut = False

    def _line(self, far: socket.socket | None) -> socket.socket:
        if far is None:
            raise OSError(113, "no route to host")
        line = _FakeLine(far, self.delay, self._count)
        self._lines = [each for each in self._lines if not each.is_closed] + [line]
        return line.near

    def _count(self, size: int) -> None:
        self.carried += size

    def _hang_up(self) -> None:
        self._store.close()
        for line in self._lines:
            line.close()
        self._lines.clear()


def _folder(pool_id: str, node: int, number: int = 0) -> str:
    return f"{pool_id}-{node}{'r' * number}"


class _FakeLine:
    """A line between `near`, which the caller gets, and `far`: two threads move the bytes."""

    def __init__(self, far: socket.socket, delay: float, count: Callable[[int], None]) -> None:
        self._count = count
        self.near, self._here = socket.socketpair()
        self._far = far
        far.settimeout(None)
        self._delay = delay
        self.is_frozen = False
        self.is_closed = False
        for source, sink in ((self._here, far), (far, self._here)):
            threading.Thread(
                target=self._carry, args=(source, sink), name="skyward-fake", daemon=True
            ).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        """Move bytes from one socket to the other, and then close both."""
        if self._delay:
            self._carry_late(source, sink)
        else:
            with contextlib.suppress(OSError):
                while data := source.recv(_CHUNK):
                    self._wait_if_frozen()
                    if sink is self._far:
                        self._count(len(data))
                    sink.sendall(data)
        self.close()

    def _carry_late(self, source: socket.socket, sink: socket.socket) -> None:
        """Delay each byte, with at most one window of bytes on the way."""
        going: deque[tuple[float, bytes]] = deque()
        changed = threading.Condition()
        size = 0

        def arrive() -> None:
            nonlocal size
            while True:
                with changed:
                    while not going:
                        changed.wait()
                    due, data = going[0]
                time.sleep(max(0.0, due - time.monotonic()))
                if data:
                    self._wait_if_frozen()
                    if sink is self._far:
                        self._count(len(data))
                    with contextlib.suppress(OSError):
                        sink.sendall(data)
                with changed:
                    going.popleft()
                    size -= len(data)
                    changed.notify_all()
                if not data:
                    return

        arriving = threading.Thread(target=arrive, name="skyward-fake", daemon=True)
        arriving.start()
        data = b"x"
        while data:
            with changed:
                # The news of free room takes a moment, too.
                while size >= _WINDOW:
                    changed.wait()
            try:
                data = source.recv(_CHUNK)
            except OSError:
                data = b""
            with changed:
                going.append((time.monotonic() + self._delay, data))
                size += len(data)
                changed.notify_all()
        arriving.join()

    def _wait_if_frozen(self) -> None:
        while self.is_frozen and not self.is_closed:
            time.sleep(_POLL)

    def close(self) -> None:
        """Close both ends."""
        self.is_closed = True
        for each in (self._here, self._far):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class FakeProvider:
    """Provides as many machines as there are nodes."""

    name = "fake"
    shares_files = False

    def check(self, spec: PoolSpec) -> None:
        """Accept every spec."""

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[FakeMachine, ...]:
        """A machine for each node, with folders for the pool; raises `RuntimeFolderError`."""
        sweep()
        packages = await packages_of(spec, tell, tuple(range(spec.nodes)))
        machines: list[FakeMachine] = []
        try:
            for node in range(spec.nodes):
                folders = make_folders(spec.name, _folder(pool_id, node))
                machines.append(FakeMachine(spec.name, node, folders, packages=packages))
        except BaseException:
            await asyncio.gather(*(machine.release() for machine in machines))
            raise
        return tuple(machines)

    async def replace(
        self, spec: PoolSpec, pool_id: str, lack: ReplacementRequest, readied: Readied, tell: Tell
    ) -> tuple[Machine, ...]:
        """Machines with new folders in place of the lost ones."""
        packages = await packages_of(spec, tell, tuple(each.nodes[0] for each in lack.lost))
        machines: list[FakeMachine] = []
        try:
            for lost in lack.lost:
                assert isinstance(lost, FakeMachine)
                node, number = lost.nodes[0], lost.number + 1
                folders = make_folders(spec.name, _folder(pool_id, node, number))
                machines.append(FakeMachine(spec.name, node, folders, number, packages))
            await readied(machines)
        except BaseException:
            await asyncio.gather(*(machine.release() for machine in machines))
            raise
        for lost in lack.lost:
            assert isinstance(lost, FakeMachine)
            lost.take_back()
            await lost.release()
        return tuple(machines)

    def conducted(self, pool_id: str) -> None:
        """Nothing: no sweep looks for its machines."""

    def left(self, pool_id: str) -> None:
        """Nothing: no sweep looks for its machines."""

    def cheaper(self, pool_id: str, lost: Sequence[Machine], bill: Bill) -> Bill:
        """The same bill: they cost nothing."""
        return bill

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[FakeMachine, ...]:
        """The machines of a pool; raises `AgentGone` if one of its agents is gone."""
        machines = tuple(
            FakeMachine(spec.name, node, pool_folders(_folder(pool_id, node)))
            for node in range(spec.nodes)
        )
        for machine in machines:
            folder = machine.folders.runtime
            if is_gone(folder) or not is_ours(folder):
                raise AgentGone
        return machines
