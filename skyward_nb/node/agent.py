"""The agent of one machine: between a client and the ranks, and the machine's last one to leave.

It listens on a unix socket in a folder only its user may enter, starts the forge, has ranks
forked, passes frames on without looking into values, notices deaths, and ends everything when
no client has been there for `idle` seconds. It decides nothing about a run: clients do.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import platform
import shutil
import signal
import socket
import sys
from collections import deque
from pathlib import Path
from typing import IO

import msgspec

from skyward_nb.node import forge
from skyward_nb.node.clientline import ClientLine
from skyward_nb.node.gpus import gpu_of
from skyward_nb.node.rankline import RankLine
from skyward_nb.node.telemetry import Sampler, Subject
from skyward_nb.plugins.base import find_plugin
from skyward_nb.wire.frames import frame
from skyward_nb.words.info import InstanceInfo, environment
from skyward_nb.words.messages import (
    Command,
    Event,
    Fork,
    Gather,
    Hello,
    Interrupt,
    Kill,
    Leaving,
    RankLost,
    RankRefused,
    Reserve,
    Reserved,
    Run,
    Sample,
    Step,
    Stop,
)

_HANG_UP = 0.5


class Agent:
    """Serves one client at a time until told to stop, or until its lease is over."""

    def __init__(self, folder: Path, idle: float, forge_pid: int, control: socket.socket) -> None:
        self._folder = folder
        self._idle = idle
        self._forge_pid = forge_pid
        self._forge = control
        self._lines: dict[int, RankLine] = {}
        self._client: ClientLine | None = None
        self._lease: asyncio.TimerHandle | None = None
        self._imported = asyncio.Event()
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._missing: dict[str, str] = {}
        self._reserved: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._forking = asyncio.Lock()
        self._sampler = Sampler()
        self._sampling: asyncio.Task[None] | None = None
        self._gpus: dict[int, str | None] = {}
        self._orders: deque[tuple[forge.Order, tuple[IO[bytes] | socket.socket, ...]]] = deque()

    async def serve(self) -> None:
        """Run until the end; leaves no process and no file behind."""
        self._loop = asyncio.get_running_loop()
        self._forge.setblocking(False)
        self._loop.add_reader(self._forge, self._on_forge)
        path = self._folder / "agent.sock"
        server = await self._loop.create_unix_server(lambda: ClientLine(self), str(path))
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._leave, "it was told to end")
        self._loop.add_signal_handler(signal.SIGINT, lambda: None)
        self._renew_lease()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        os.dup2(2, 1)
        await self._gone.wait()
        server.close()
        await self._end_forge()
        if self._client is not None:
            await self._client.finish()
        for task in self._tasks:
            task.cancel()

    # ── the forge ───────────────────────────────────────────────────────────────────────

    def _on_forge(self) -> None:
        try:
            data = self._forge.recv(1 << 20)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._forge)
            self._leave("its forge ended")
            return
        word = msgspec.msgpack.decode(data, type=forge.Word)
        if isinstance(word, forge.Imported):
            self._missing = word.missing
            self._imported.set()
        elif isinstance(word, forge.Born):
            line = self._lines.get(word.rank)
            if line is not None and line.generation == word.generation:
                line.pid = word.pid
                if line.unborn_signal is not None:
                    self._signal(line, line.unborn_signal)
        else:
            self._reaped(word)

    async def _end_forge(self) -> None:
        for line in self._lines.values():
            line.close()
        self._loop.remove_reader(self._forge)
        self._forge.close()
        await self._loop.run_in_executor(None, _wait_for, self._forge_pid)

    def _signal(self, line: RankLine, number: int) -> None:
        """Signal a rank and what it started; one not born yet is told when it is."""
        if line.pid is None:
            line.unborn_signal = number
        elif line.how is None:
            self._order(forge.Signal(line.pid, number, group=True))

    def _order(self, message: forge.Order, *resources: IO[bytes] | socket.socket) -> None:
        """Send the forge a message and descriptors, which are closed once they are sent."""
        self._orders.append((message, resources))
        if len(self._orders) == 1:
            self._send_orders()

    def _send_orders(self) -> None:
        while self._orders:
            message, resources = self._orders[0]
            try:
                forge.send(self._forge, message, [each.fileno() for each in resources])
            except BlockingIOError:
                self._loop.add_writer(self._forge, self._send_orders)
                return
            except OSError:
                # It is gone, which its own end of the line will tell.
                self._orders.clear()
            else:
                self._orders.popleft()
            for each in resources:
                each.close()
        self._loop.remove_writer(self._forge)

    # ── ranks ───────────────────────────────────────────────────────────────────────────

    def heard(self, frames: bytes) -> None:
        """Pass on what a rank says, without looking into it."""
        if frames and self._client is not None:
            self._client.send(frames)

    def hung_up(self, line: RankLine) -> None:
        """A rank closed its socket: it died, or made itself useless."""
        if line.how is None:
            self._signal(line, signal.SIGKILL)
        else:
            self._lost(line)

    def _reaped(self, word: forge.Reaped) -> None:
        line = next((line for line in self._lines.values() if line.pid == word.pid), None)
        if line is None:
            return
        line.how = _how(word.code)
        # Its socket may still hold what it said; a child that inherited it may keep it open.
        wait = 0 if line.asked_to_end or line.silent else _HANG_UP
        self._loop.call_later(wait, self._lost, line)

    def _lost(self, line: RankLine) -> None:
        if self._lines.get(line.rank) is not line:
            return
        del self._lines[line.rank]
        line.close()
        self._changed.set()
        self._tell(RankLost(line.generation, line.rank, line.how or "it ended", line.asked_to_end))

    def _kill(self, ranks: tuple[int, ...]) -> None:
        for rank in ranks:
            if (line := self._lines.get(rank)) is not None:
                line.asked_to_end = True
                self._signal(line, signal.SIGKILL)

    async def _fork(self, order: Fork) -> None:
        async with self._forking:
            await self._fork_anew(order)

    async def _fork_anew(self, order: Fork) -> None:
        if not self._imported.is_set():
            names = ", ".join(dict.fromkeys(use.name for use in order.plugins)) or "IPython"
            nodes = tuple(sorted({place.node for place in order.places}))
            self._tell(Step(nodes, "imports", names))
            await self._imported.wait()
            self._tell(Step(nodes, "imports", names, done=True))
        if self._missing:
            module, why = next(iter(self._missing.items()))
            text = f"{module} cannot be imported here"
            rank = order.places[0].rank
            self._tell(RankRefused(order.generation, rank, text, why))
            return
        self._kill(tuple(self._lines))
        while self._lines:
            self._changed.clear()
            await self._changed.wait()
        threads = max(1, (os.cpu_count() or 1) // len(order.places))
        plugins = [find_plugin(use.name) for use in order.plugins]
        for place in order.places:
            line = RankLine(self._loop, place.rank, order.generation, self)
            self._lines[place.rank] = line
            theirs, stdout, stderr = await line.open()
            env = environment(place)
            for plugin in plugins:
                env |= plugin.env(place)
            env |= _devices(place, {each.node for each in order.places})
            env |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline"} | order.env
            visible = env.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
            self._gpus[place.rank] = gpu_of(place, visible)
            birth = forge.Birth(place, env, order.plugins, threads)
            resources = [theirs, os.fdopen(stdout, "wb", 0), os.fdopen(stderr, "wb", 0)]
            if place.is_head and self._reserved is not None:
                resources.append(self._reserved)
                self._reserved = None
            self._order(birth, *resources)

    async def _sample(self) -> None:
        """Tell once how ranks are doing: it is looked at beside the loop, as it may take a while."""
        lines = {line.rank: line for line in self._lines.values() if line.how is None}
        subjects = [
            Subject(rank, line.pid, self._gpus.get(rank))
            for rank, line in lines.items()
            if line.pid is not None
        ]
        for event in await self._loop.run_in_executor(None, self._sampler.sample, subjects):
            if self._lines.get(event.rank) is lines[event.rank]:
                self._tell(event)

    def _reserve(self, generation: int) -> None:
        """Hold a port without listening: bound sockets with SO_REUSEADDR may share it."""
        if self._reserved is not None:
            self._reserved.close()
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        address, port = self._reserved.getsockname()
        self._tell(Reserved(generation, address, port))

    # ── the client ──────────────────────────────────────────────────────────────────────

    def attached(self, client: ClientLine) -> bool:
        """Take a client, unless there is one."""
        if self._client is not None:
            return False
        self._client = client
        self._renew_lease()
        self._tell(Hello(os.getpid(), platform.python_version()))
        return True

    def detached(self, client: ClientLine) -> None:
        """The client hung up; the lease begins to run out."""
        if self._client is client:
            self._client = None
            self._renew_lease()
            self.hold(False)

    def hold(self, held: bool) -> None:
        """Let ranks wait while the client is behind with reading."""
        for line in self._lines.values():
            line.hold(held)

    def obey(self, command: Command, data: bytes) -> None:  # noqa: C901 - one row per command
        """Do what the client says."""
        match command:
            case Run(ranks=ranks, generation=generation):
                for rank in ranks:
                    line = self._lines.get(rank)
                    if line is not None and line.generation == generation:
                        line.begin(command.run)
                        line.send(data)
                    else:
                        self._tell(RankLost(generation, rank, "is not there any more"))
            case Interrupt(ranks=ranks):
                for rank in ranks:
                    if (line := self._lines.get(rank)) is not None:
                        line.send(data)
                        self._interrupt(line)
            case Gather(ranks=ranks):
                for rank in ranks:
                    if (line := self._lines.get(rank)) is not None:
                        line.send(data)
            case Kill(ranks=ranks):
                self._kill(ranks)
            case Sample():
                # One that is asked for while another is made has its answer in that one.
                if self._sampling is None or self._sampling.done():
                    self._sampling = self._loop.create_task(self._sample())
            case Reserve(generation=generation):
                self._reserve(generation)
            case Fork():
                task = self._loop.create_task(self._fork(command))
                self._tasks.add(task)
                task.add_done_callback(functools.partial(self._forked, command.generation))
            case Stop():
                self._leave("it was told to stop")

    def _forked(self, generation: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell(RankRefused(generation, 0, f"{type(error).__name__}: {error}", ""))

    def _interrupt(self, line: RankLine) -> None:
        """SIGINT for the rank and what it started; C code that waits for a child drops it, so URG, too."""
        self._signal(line, signal.SIGINT)
        if line.pid is not None and line.how is None:
            self._order(forge.Signal(line.pid, signal.SIGURG))

    def _tell(self, event: Event) -> None:
        if self._client is not None:
            self._client.send(frame(event))

    def _renew_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        if self._client is None:
            why = f"no client for {self._idle:g} s"
            self._lease = self._loop.call_later(self._idle, self._leave, why)

    def _leave(self, why: str) -> None:
        self._tell(Leaving(why))
        self._gone.set()


def _devices(place: InstanceInfo, nodes: set[int]) -> dict[str, str]:
    """The GPUs of a node that shares its machine with others: a slice of those there are."""
    if not place.accelerators or len(nodes) == 1:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = sorted(nodes).index(place.node) * place.accelerators
    last = first + place.accelerators
    names = visible.split(",") if visible else [str(number) for number in range(last)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[first:last])}


def _how(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"


def _wait_for(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def run(
    folder: str, stores: tuple[str, ...], idle: float, forge_pid: int, control: socket.socket
) -> None:
    """Serve until the end, then remove the pool's folders; the forge has been started already.

    Holds a lock on the pool's folder for as long as it lives: a folder whose lock is free
    belongs to nobody.
    """
    own, values = Path(folder), [Path(store) for store in stores]
    # Locked before it has its name: nobody can find it free.
    new = own / "lock.new"
    lock = new.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    new.rename(own / "lock")
    try:
        asyncio.run(Agent(own, idle, forge_pid, control).serve())
    finally:
        for path in (*values, own):
            shutil.rmtree(path, ignore_errors=True)
        for path in values:
            with contextlib.suppress(OSError):
                path.parent.rmdir()  # unless other pools have values there
