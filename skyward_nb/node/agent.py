"""The agent of one machine: between a client and the ranks, and the machine's last one to leave.

It listens on a unix socket in a folder only its user may enter, starts the forge, has ranks
forked, passes frames on without looking into values, notices deaths, and ends everything when
no client has been there for `idle` seconds. It decides nothing about a run: clients do.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import platform
import shutil
import signal
import socket
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from skyward_nb.node import forge, spot_notices
from skyward_nb.node.client_connection import ClientConnection
from skyward_nb.node.endpoints import Endpoints, probe
from skyward_nb.node.exit_causes import ENDED, ExitCauses
from skyward_nb.node.folder_lock import FolderRefresher, held
from skyward_nb.node.gpus import gpu_of
from skyward_nb.node.journal import Journal
from skyward_nb.node.lease import Lease, lease_of
from skyward_nb.node.rank_connection import RankConnection
from skyward_nb.node.slices import SlicesLacking, with_slices
from skyward_nb.node.stack_pipe import STACK_SIGNAL
from skyward_nb.node.telemetry import RankProcess, Sampler
from skyward_nb.node.value_service import ValueService
from skyward_nb.plugins.base import find_plugin
from skyward_nb.protocol.commands import (
    Attach,
    Command,
    CutCommunication,
    FeedValue,
    Fork,
    Gather,
    Heartbeat,
    Inspect,
    Interrupt,
    Kill,
    ListenForPeers,
    MachineReclaimed,
    Ping,
    ProbePeers,
    QueryStatus,
    Reform,
    Reserve,
    Resume,
    Run,
    RunSeen,
    Sample,
    Stop,
)
from skyward_nb.protocol.events import (
    AgentStatus,
    Aside,
    AttachRefused,
    Event,
    Hello,
    Leaving,
    NotKilled,
    PeerListening,
    PeersProbed,
    RankDone,
    RankLost,
    RankRefused,
    ReclaimNotice,
    Reserved,
    RunBegan,
    RunInterrupted,
    Stack,
    Step,
)
from skyward_nb.protocol.frames import event_frames, frame
from skyward_nb.protocol.message_parts import Client
from skyward_nb.store.blobs import BlobStore
from skyward_nb.system import mig_partition, processes
from skyward_nb.system.addresses import family_of
from skyward_nb.words.info import InstanceInfo, Peer, environment

_HANG_UP = 0.5
_DONE = b"\xa8RankDone"
_MOST_BEHIND = 1 << 20
"""Bytes that an attached client may be behind with before ranks have to wait for it."""


@dataclass(frozen=True)
class AgentLimits:
    """What the agent keeps to: seconds without a client, and of its whole life (0: no limit)."""

    idle: float
    ttl: float = 0.0


class Agent:
    """Serves one client at a time until told to stop, or until its lease is over."""

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        values: ValueService,
        staying: FolderRefresher,
        terms: AgentLimits,
        forge_pid: int,
        control: socket.socket,
    ) -> None:
        self._folder = folder
        self._staying = staying
        self._journal = journal
        self._terms = terms
        self._forge_pid = forge_pid
        self._forge = control
        self._values = values
        self._lines: dict[int, RankConnection] = {}
        self._elsewhere: frozenset[int] = frozenset()
        """Ranks of the pool that live on other machines."""
        self._line: ClientConnection | None = None
        self._client: Client | None = None
        self._visitors: set[ClientConnection] = set()
        self._inspecting: dict[int, deque[ClientConnection]] = {}
        self._generation = 0
        self._runs = 0
        self._run: RunBegan | None = None
        self._running: dict[int, int] = {}
        """By rank, the run that goes on there."""
        self._held = False
        self._received = 0
        self._reader = event_frames()
        self._lease: asyncio.TimerHandle | None = None
        self._machine_lease: Lease | None = None
        self._notice: MachineReclaimed | None = None
        self._imported = asyncio.Event()
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._missing: dict[str, str] = {}
        self._asked: set[str] | None = None
        """What the forge was asked to import."""
        self._reserved: socket.socket | None = None
        self._held_ports: list[socket.socket] = []
        self._tls: Endpoints | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._forking = asyncio.Lock()
        self._sampler = Sampler()
        self._deaths = ExitCauses()
        self._sampling: asyncio.Task[None] | None = None
        self._gpus: dict[int, str | None] = {}
        self._orders: deque[tuple[forge.Order, tuple[IO[bytes] | socket.socket, ...]]] = deque()

    async def serve(self) -> None:
        """Run until the end; leaves no process and no file behind."""
        self._loop = asyncio.get_running_loop()
        self._forge.setblocking(False)
        self._loop.add_reader(self._forge, self._on_forge)
        path = self._folder / "agent.sock"
        server = await self._loop.create_unix_server(lambda: ClientConnection(self), str(path))
        self._values.listen(self._loop)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._told_to_end)
        self._loop.add_signal_handler(signal.SIGINT, lambda: None)
        self._list_processes()
        self._staying.begin(self._loop)
        self._renew_lease()
        if spot_notices.are_wanted():
            self._begin_task(spot_notices.watch_notices(self._taken_back))
        self._machine_lease = lease_of(lambda: self._line is not None)
        if self._terms.ttl:
            why = f"its time is over (ttl={self._terms.ttl:g}s)"
            self._loop.call_later(self._terms.ttl, self._leave, why)
        self._say_ready()
        await self._gone.wait()
        if self._machine_lease is not None:
            self._machine_lease.close()
        server.close()
        self._staying.end()
        self._values.close(self._loop)
        await self._end_forge()
        for line in [*self._visitors, *([self._line] if self._line else [])]:
            await line.finish()
        for task in list(self._tasks):
            task.cancel()
        if self._tls is not None:
            self._tls.close()

    def _say_ready(self) -> None:
        """Tell whoever started us that we listen; nobody else could find us if that one is gone."""
        try:
            os.write(1, b"ready\n")
        except OSError:
            self._leave("whoever started it is gone")
        os.dup2(2, 1)

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
        if isinstance(word, forge.ModulesPreloaded):
            self._missing = word.missing
            self._imported.set()
        elif isinstance(word, forge.RankForked):
            processes.note(self._folder, [processes.ProcessIdentity(word.pid, word.started)])
            self._deaths.born(word.rank, word.pid)
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
        self._sampler.close()

    def _signal(self, line: RankConnection, number: int) -> None:
        """Signal a rank and what it started; one not born yet is told when it is."""
        if line.pid is None:
            line.unborn_signal = number
        elif line.how is None:
            self._order(forge.SignalRank(line.pid, number, group=True))

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
        if frames:
            self._log(frames)
            # A look into it only where there may be one: what ranks print passes as it is.
            if self._running and _DONE in frames:
                self._note_done(frames)

    def _note_done(self, frames: bytes) -> None:
        for event in self._reader.feed(frames):
            if isinstance(event, RankDone) and self._running.get(event.rank) == event.run:
                del self._running[event.rank]

    def hung_up(self, line: RankConnection) -> None:
        """A rank closed its socket: it died, or made itself useless."""
        if line.how is None:
            self._deaths.hung_up(line.rank)
            self._signal(line, signal.SIGKILL)
        else:
            self._lost(line)

    def _reaped(self, word: forge.RankExited) -> None:
        line = next((line for line in self._lines.values() if line.pid == word.pid), None)
        if line is None:
            return
        asked, said, crash = line.asked_to_end, line.last_words(), line.crash()
        line.how = self._deaths.how(line.rank, word.code, asked=asked, said=said, crash=crash)
        # Its socket may still hold what it said; a child that inherited it may keep it open.
        wait = 0 if line.asked_to_end or line.silent else _HANG_UP
        self._loop.call_later(wait, self._lost, line)

    def _lost(self, line: RankConnection) -> None:
        if self._lines.get(line.rank) is not line:
            return
        del self._lines[line.rank]
        crash = line.crash()
        line.close()
        self._changed.set()
        how, asked = line.how or "it ended", line.asked_to_end
        self._tell(RankLost(line.generation, line.rank, how, asked, crash))

    def _taken_back(self, notice: MachineReclaimed) -> None:
        """Tell the client and all ranks that the machine will be gone, also those that are born later."""
        self._notice = notice
        self._tell(ReclaimNotice(notice.action, notice.at))
        for line in self._lines.values():
            line.rescue(frame(notice))

    def _kill(self, ranks: tuple[int, ...]) -> None:
        for rank in ranks:
            if (line := self._lines.get(rank)) is not None:
                line.asked_to_end = True
                self._signal(line, signal.SIGKILL)

    async def _fork(self, order: Fork) -> None:
        async with self._forking:
            await self._fork_anew(order)

    async def _fork_anew(self, order: Fork) -> None:
        self._have_imported(order)
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
        try:
            uses = await self._loop.run_in_executor(None, with_slices, order, self._folder)
        except SlicesLacking as lack:
            rank = order.places[0].rank
            self._tell(RankRefused(order.generation, rank, lack.message, lack.advice))
            return
        self._generation = order.generation
        own = {place.rank for place in order.places}
        self._elsewhere = frozenset(range(order.places[0].world_size)) - own
        self._kill(tuple(self._lines))
        while self._lines:
            self._changed.clear()
            await self._changed.wait()
        self._generation = order.generation
        self._list_processes()
        threads = max(1, (os.cpu_count() or 1) // len(order.places))
        for place in order.places:
            line = RankConnection(self._loop, place.rank, order.generation, self)
            line.place = place
            self._lines[place.rank] = line
            resources = await line.open()
            if self._notice is not None:
                line.rescue(frame(self._notice))
            env = environment(place) | _devices(place, {each.node for each in order.places})
            for use in uses[place.node]:
                env |= find_plugin(use.name).env(place, use.options)
            env |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline"} | order.env
            visible = env.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
            self._gpus[place.rank] = gpu_of(place, visible)
            birth = forge.ForkRank(place, env, uses[place.node], threads)
            if place.is_head and self._reserved is not None:
                resources.append(self._reserved)
                self._reserved = None
            self._order(birth, *resources)

    def _have_imported(self, order: Fork) -> None:
        """Have the forge import what these ranks need, and it has not been asked for."""
        uses = order.plugins
        wanted = {name for use in uses for name in find_plugin(use.name).preload(use.options)}
        if self._asked is None:
            self._asked = wanted  # it began with these
        elif more := wanted - self._asked:
            self._asked |= wanted
            self._imported.clear()
            self._order(forge.PreloadModules(tuple(sorted(more))))

    def _reform(self, order: Reform, data: bytes) -> None:
        """Have the ranks there are form the group of a new generation; the head gets its port."""
        self._generation = order.generation
        for place in order.places:
            line = self._lines.get(place.rank)
            if line is None:
                self._tell(RankLost(order.generation, place.rank, ENDED))
                continue
            line.generation, line.place = order.generation, place
            if place.is_head and self._reserved is not None:
                line.rescue(frame(Reserve(order.generation)), (self._reserved.fileno(),))
                self._reserved.close()
                self._reserved = None
            line.send(data)

    def _inspect(self, rank: int) -> None:
        """Have a rank write where its threads are, and tell that, or that there is nothing to tell."""
        line = self._lines.get(rank)
        if line is None or line.pid is None or line.how is not None:
            self._tell(Stack(rank, ""))
            return
        order = forge.SignalRank(line.pid, STACK_SIGNAL)
        line.inspect(lambda: self._order(order), lambda text: self._tell(Stack(rank, text)))

    def _list_processes(self) -> None:
        """Begin the list of processes that whoever finds the agent dead ends."""
        own = map(processes.known, (os.getpid(), self._forge_pid))
        processes.note(self._folder, [each for each in own if each is not None], anew=True)

    async def _sample(self) -> None:
        """Tell once how ranks are doing: it is looked at beside the loop, as it may take a while."""
        lines = {line.rank: line for line in self._lines.values() if line.how is None}
        subjects = [
            RankProcess(rank, line.pid, self._gpus.get(rank))
            for rank, line in lines.items()
            if line.pid is not None
        ]
        for event in await self._loop.run_in_executor(None, self._sampler.sample, subjects):
            if self._lines.get(event.rank) is lines[event.rank]:
                self._deaths.saw(event.rank, event.rss)
                self._tell(event)
        self._deaths.look()

    def _reserve(self, order: Reserve) -> None:
        """Hold ports for a generation; machines have met by now."""
        if self._tls is not None:
            self._tls.close()
            self._tls = None
        for each in (self._reserved, *self._held_ports):
            if each is not None:
                each.close()
        self._held_ports.clear()
        self._reserved = _hold_port(order.address, order.port)
        peers = tuple(
            Peer(node, order.address, self._hold_for(order), order.interface)
            for node in order.nodes
        )
        self._tell(Reserved(order.generation, self._reserved.getsockname()[1], peers))

    def _hold_for(self, order: Reserve) -> dict[str, tuple[int, ...]]:
        """Ports of a node's servers, held until the next generation: they may come up late."""
        found: dict[str, tuple[int, ...]] = {}
        for name in order.servers:
            held = [_hold_port(order.address) for _ in range(order.slots)]
            self._held_ports += held
            found[name] = tuple(each.getsockname()[1] for each in held)
        return found

    # ── other machines ──────────────────────────────────────────────────────────────────

    def _meet(self, order: ListenForPeers) -> None:
        """Listen where other machines may reach this one, until they have tried."""
        if self._tls is not None:
            self._tls.close()
        self._tls = Endpoints(order.first, order.word, loopback=order.loopback)
        self._tell(PeerListening(order.machine, tuple(self._tls.there)))

    async def _connect(self, order: ProbePeers) -> None:
        found = await self._loop.run_in_executor(None, probe, order.endpoints, order.word)
        self._tell(PeersProbed(order.machine, tuple(found)))

    # ── clients ─────────────────────────────────────────────────────────────────────────

    def attach(self, line: ClientConnection, command: Attach) -> None:
        """Take the client, unless another one is there; one that comes again takes its own place.

        But not when another one has been there meanwhile: what it would say again was another's to do.
        """
        client = command.client
        if self._line is not None and self._line.is_gone():
            self._line.hang_up()
            self.hung_up_on(self._line)
        known = self._client is not None and self._client.key == client.key
        if self._line is not None and self._client is not None:
            if not known:
                line.say(AttachRefused(self._client))
                return
            line.received = self._line.received
            self._line.hang_up()
        elif known:
            line.received = self._received
        elif command.offset is not None and self._client is not None:
            line.say(AttachRefused(self._client))
            return
        self._line, self._client = line, client
        self._renew_lease()
        if self._machine_lease is not None:
            self._machine_lease.renew()
        offset = command.offset
        if offset is None:
            start = self._journal.start_of(self._run.run) if self._run else None
            offset = self._journal.end if start is None else start
        line.say(self._hello(offset, line.received))
        line.follow(self._journal, offset)

    def _hello(self, offset: int, received: int) -> Hello:
        return Hello(
            pid=os.getpid(),
            python=platform.python_version(),
            offset=offset,
            received=received,
            generation=self._generation,
            places=tuple(line.place for _, line in sorted(self._lines.items())),
            pids={rank: line.pid for rank, line in self._lines.items() if line.pid},
            runs=self._runs,
            unseen=self._run,
            noticed=self._notice and ReclaimNotice(self._notice.action, self._notice.at),
        )

    def look(self, line: ClientConnection) -> None:
        """Tell a passer-by how things are."""
        self._visitors.add(line)
        left = None if self._lease is None else self._lease.when() - self._loop.time()
        line.say(
            AgentStatus(
                pid=os.getpid(),
                client=self._client if self._line else None,
                left=left,
                generation=self._generation,
                ranks=tuple(sorted(self._lines)),
                pids={rank: line.pid for rank, line in self._lines.items() if line.pid},
                unseen=self._run,
                running=tuple(sorted(self._running)),
            )
        )

    def hung_up_on(self, line: ClientConnection) -> None:
        """If it was the client, the lease begins to run out."""
        self._visitors.discard(line)
        if self._line is line:
            self._received = line.received
            self._line = None
            self._renew_lease()
            self._hold(False)

    def inspect_for(self, line: ClientConnection, command: Inspect) -> None:
        """Have ranks tell where their threads are, to this line."""
        for rank in self._here(command.ranks):
            self._inspecting.setdefault(rank, deque()).append(line)
            self._inspect(rank)

    def caught_up(self, line: ClientConnection) -> None:
        """The client is less far behind: ranks may go on."""
        if self._held and self._journal.end - line.cursor < _MOST_BEHIND // 2:
            self._hold(False)

    def _hold(self, held: bool) -> None:
        """Let ranks wait while the client is behind with reading."""
        self._held = held
        for line in self._lines.values():
            line.hold(held)

    def obey(self, command: Command, data: bytes) -> None:  # noqa: C901 - one row per command
        """Do what the client says."""
        match command:
            case Run(ranks=ranks, generation=generation):
                self._begin(command)
                for rank in self._here(ranks):
                    line = self._lines.get(rank)
                    if line is not None and line.generation == generation:
                        line.begin(command.run)
                        line.send(data)
                    else:
                        self._tell(RankLost(generation, rank, self._deaths.told(rank)))
            case Interrupt(ranks=ranks):
                self._tell(RunInterrupted(command.run, command.by_person, tuple(self._here(ranks))))
                for rank in ranks:
                    if (line := self._lines.get(rank)) is not None:
                        line.send(data)
                        self._interrupt(line)
            case Gather(ranks=ranks) | Resume(ranks=ranks) | FeedValue(ranks=ranks):
                for rank in ranks:
                    if (line := self._lines.get(rank)) is not None:
                        line.send(data)
            case CutCommunication(ranks=ranks):
                for rank in ranks:
                    if (line := self._lines.get(rank)) is not None:
                        line.rescue(data)
            case Kill(ranks=ranks, run=run):
                # What it said last may be on its way for as long as a line is slow.
                ended = tuple(each for each in ranks if self._has_ended(each, run))
                self._kill(tuple(each for each in ranks if each not in ended))
                if ended:
                    self._tell(NotKilled(run, ended))
            case Reform():
                self._reform(command, data)
            case Sample():
                # One that is asked for while another is made has its answer in that one.
                if self._sampling is None or self._sampling.done():
                    self._sampling = self._loop.create_task(self._sample())
            case ListenForPeers():
                self._meet(command)
            case ProbePeers():
                self._begin_task(self._connect(command))
            case Reserve():
                self._reserve(command)
            case Fork():
                task = self._begin_task(self._fork(command))
                task.add_done_callback(functools.partial(self._forked, command.generation))
            case RunSeen(run=run, offset=offset):
                if self._run is not None and self._run.run <= run:
                    self._run = None
                self._journal.forget(offset)
            case Stop():
                self._leave("it was told to stop")
            case Attach() | Heartbeat() | QueryStatus() | Ping() | Inspect() | MachineReclaimed():
                """What the line has seen to itself, and what nobody but an agent says."""

    def _has_ended(self, rank: int, run: int) -> bool:
        """Whether a rank that lives, and will, has come to the end of a run."""
        line = self._lines.get(rank)
        is_dying = line is None or line.asked_to_end or line.how is not None
        return not is_dying and self._running.get(rank) != run

    def _here(self, ranks: tuple[int, ...]) -> list[int]:
        """Those of these ranks that are not another machine's."""
        return [rank for rank in ranks if rank not in self._elsewhere]

    def _begin(self, command: Run) -> None:
        """Log that a run begins: whoever comes later is told from here on."""
        self._runs = command.run
        self._run = RunBegan(command.run, command.generation, command.ranks, command.card)
        self._running |= dict.fromkeys(self._here(command.ranks), command.run)
        self._journal.begin(command.run)
        # Whoever sent it knows: it travels with what comes next.
        self._journal.append(frame(self._run))

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _forked(self, generation: int, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell(RankRefused(generation, 0, f"{type(error).__name__}: {error}", ""))

    def _interrupt(self, line: RankConnection) -> None:
        """SIGINT for the rank and what it started; C code that waits for a child drops it, so URG, too."""
        self._signal(line, signal.SIGINT)
        if line.pid is not None and line.how is None:
            self._order(forge.SignalRank(line.pid, signal.SIGURG))

    def _tell(self, event: Event) -> None:
        """Log an event for the client; what is said aside goes to whoever is there."""
        if isinstance(event, Stack):
            # One answer to each who asked, in order; to one that has hung up nothing is said.
            if asking := self._inspecting.get(event.rank):
                asking.popleft().say(event)
        elif isinstance(event, Aside):
            if self._line is not None:
                self._line.say(event)
        else:
            if isinstance(event, RankLost):
                self._running.pop(event.rank, None)
            self._log(frame(event))

    def _log(self, frames: bytes) -> None:
        self._journal.append(frames)
        line = self._line
        if line is not None:
            line.nudge()
            is_behind = self._journal.end - line.cursor > _MOST_BEHIND
            if is_behind and not self._held and not (self._run and self._run.card.detached):
                self._hold(True)

    def _renew_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        if self._line is None:
            why = f"no client for {self._terms.idle:g} s"
            self._lease = self._loop.call_later(self._terms.idle, self._leave, why)

    def _told_to_end(self) -> None:
        self._leave("it was told to end", by_machine=True)

    def _leave(self, why: str, *, by_machine: bool = False) -> None:
        self._tell(Leaving(why, by_machine))
        self._gone.set()


def _hold_port(address: str, wanted: int = 0) -> socket.socket:
    """The port that is wanted, or a free one, without listening there.

    Who sets SO_REUSEADDR may bind it, too, and listen.
    """
    held = socket.socket(family_of(address))
    try:
        # Not before it is bound: it would be given one that another pool holds so.
        held.bind((address, wanted))
    except OSError:
        if not wanted:
            held.close()
            raise
        held.close()
        return _hold_port(address)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held


def _devices(place: InstanceInfo, nodes: set[int]) -> dict[str, str]:
    """The GPUs of a node that shares its machine with others: a slice of those there are."""
    if not place.accelerators or len(nodes) == 1:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = sorted(nodes).index(place.node) * place.accelerators
    last = first + place.accelerators
    names = visible.split(",") if visible else [str(number) for number in range(last)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[first:last])}


def _wait_for(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    # If it was killed, what its ranks started came to us.
    processes.end_children()


def run(
    folder: str,
    stores: tuple[str, ...],
    terms: AgentLimits,
    forge_pid: int,
    control: socket.socket,
) -> None:
    """Serve until the end, then remove the pool's folders; the forge has been started already.

    Holds a lock on the pool's folder for as long as it lives: a folder whose lock is free
    belongs to nobody.
    """
    forge.adopt_orphans()
    own, values = Path(folder), [Path(store) for store in stores]
    journal = Journal(values[-1] / "events")
    store = BlobStore(values[0], values[1])
    staying = FolderRefresher((own, *values))
    with held(own):
        try:
            agent = Agent(
                own, journal, ValueService(own, store), staying, terms, forge_pid, control
            )
            asyncio.run(agent.serve())
        finally:
            # Whatever ended it: a forge that still imports would make its folder anew.
            control.close()
            _wait_for(forge_pid)
            journal.close()
            mig_partition.undo(own)
            # What could not be put together is the next sweep's to try, which needs the note.
            for path in values if mig_partition.is_noted(own) else (*values, own):
                shutil.rmtree(path, ignore_errors=True)
            for path in values:
                with contextlib.suppress(OSError):
                    path.parent.rmdir()  # unless other pools have values there
