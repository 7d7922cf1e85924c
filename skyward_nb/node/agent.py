"""The agent of one machine: it does what its client commands, and ends everything when it exits.

It listens on a unix socket in a folder that only its user may enter. It takes no decision about a
run; clients do. It outlives its client by `idle` seconds. Its parts: `Clients` (who is connected),
`Outbox` (what the client is told), `LocalRanks`, `RankSpawner`, `ForgeConnection`, `RunRecord`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyward_nb.node import spot_notices
from skyward_nb.node.clients import Clients
from skyward_nb.node.endpoints import Endpoints, probe
from skyward_nb.node.folder_lock import FolderRefresher, held
from skyward_nb.node.forge_connection import ForgeConnection, wait_for_forge
from skyward_nb.node.journal import Journal
from skyward_nb.node.local_ranks import LocalRanks
from skyward_nb.node.outbox import Outbox
from skyward_nb.node.rank_spawner import RankSpawner
from skyward_nb.node.reserved_ports import ReservedPorts
from skyward_nb.node.run_record import RunRecord
from skyward_nb.node.value_service import ValueService
from skyward_nb.protocol import commands
from skyward_nb.protocol.events import Leaving, PeerListening, PeersProbed
from skyward_nb.runtime.kept_state import KeptState
from skyward_nb.store.blobs import BlobStore
from skyward_nb.system import slices_note
from skyward_nb.system.parenthood import adopt_orphans
from skyward_nb.system.patient_loop import PatientLoop


@dataclass(frozen=True)
class AgentLimits:
    """Seconds that the agent lives without a client, and in all (`ttl` 0: no limit)."""

    idle: float
    ttl: float = 0.0


class Agent:
    """Serves until it is told to stop, or its time is over."""

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        values: ValueService,
        stores: tuple[str, ...],
        refresher: FolderRefresher,
        limits: AgentLimits,
        forge_pid: int,
        control: socket.socket,
        kept: KeptState,
    ) -> None:
        self._folder = folder
        self._kept = kept
        self._values = values
        self._refresher = refresher
        self._ttl = limits.ttl
        self._runs = RunRecord(journal)
        self._outbox = Outbox(journal, self._runs)
        self._forge = ForgeConnection(folder, stores, forge_pid, control)
        self._ports = ReservedPorts()
        self._ranks = LocalRanks(self._forge, self._outbox, self._runs)
        self._outbox.hold_ranks = self._ranks.hold
        self._spawner = RankSpawner(
            folder, self._forge, self._ports, self._ranks, self._outbox, kept
        )
        self._clients = Clients(
            self._outbox, self._ranks, self._runs, limits.idle, self.obey, self._leave
        )
        self._endpoints: Endpoints | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sampling: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()

    async def serve(self) -> None:
        """Run until the end; leaves no process and no file behind."""
        loop = asyncio.get_running_loop()
        # What ends a machine may kill the forge before the agent.
        self._forge.open(self._ranks, lambda: self._leave("its forge ended", by_machine=True))
        server = await self._clients.listen(str(self._folder / "agent.sock"))
        self._values.direct.welcome = self._clients.welcome
        self._values.listen(loop)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled_to_end)
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        loop.add_signal_handler(signal.SIGUSR2, self._reclaim)
        self._refresher.begin(loop)
        if spot_notices.are_wanted():
            self._begin_task(spot_notices.watch_notices(self._ranks.reclaim))
        if (after := spot_notices.comes_after()) is not None:
            loop.call_later(after, self._reclaim)
        if self._ttl:
            loop.call_later(self._ttl, self._leave, f"its time is over (ttl={self._ttl:g}s)")
        self._say_ready()
        await self._gone.wait()
        self._clients.release_machine()
        server.close()
        self._refresher.end()
        self._values.close(loop)
        await self._ranks.end()
        await self._clients.close()
        for task in list(self._tasks):
            task.cancel()
        self._stop_listening()

    def _reclaim(self) -> None:
        self._ranks.reclaim(spot_notices.signalled())

    def _say_ready(self) -> None:
        """Tell the process that started the agent; without it nobody else can find the agent."""
        try:
            os.write(1, b"ready\n")
        except OSError:
            self._leave("the process that started it is gone")
        os.dup2(2, 1)

    def obey(self, command: commands.Command, data: bytes) -> None:  # noqa: C901 - one row per command
        """Do what the client commands; `data` is the command's frame, to be passed on."""
        match command:
            case commands.Run():
                self._ranks.begin_run(command, data)
            case commands.Interrupt():
                self._ranks.interrupt(command, data)
            case (
                commands.Gather(ranks=ranks)
                | commands.Resume(ranks=ranks)
                | commands.FeedValue(ranks=ranks)
            ):
                self._ranks.send(ranks, data)
            case commands.CutCommunication(ranks=ranks) | commands.DebugRequest(ranks=ranks):
                self._ranks.control(ranks, data)
            case commands.Kill():
                self._ranks.kill(command)
            case commands.Reform():
                self._ranks.reform(command, data, self._ports)
            case commands.KeepState():
                self._kept.hand_on(command.generation)
                self._ranks.keep_state(command, data)
            case commands.KeepNames():
                self._ranks.keep_names(command)
            case commands.Sample():
                # The answer to the one before is the answer to this one, too.
                if self._sampling is None or self._sampling.done():
                    self._sampling = asyncio.create_task(self._ranks.sample())
            case commands.ListenForPeers():
                self._stop_listening()
                self._endpoints = Endpoints(command.first, command.word, loopback=command.loopback)
                self._outbox.tell(PeerListening(command.machine, tuple(self._endpoints.there)))
            case commands.ProbePeers():
                self._begin_task(self._probe(command))
            case commands.Reserve():
                self._stop_listening()  # machines have found each other by now
                self._outbox.tell(self._ports.reserve(command))
            case commands.UseEnvironment():
                self._ranks.ordered = command
                self._begin_task(self._spawner.use(command))
            case commands.Fork():
                self._begin_task(self._spawner.spawn(command))
            case commands.RunSeen():
                self._runs.seen(command)
            case commands.Stop():
                self._leave("it was told to stop")
            case (
                commands.Attach()
                | commands.Heartbeat()
                | commands.QueryStatus()
                | commands.Ping()
                | commands.Inspect()
                | commands.MachineReclaimed()
            ):
                """Connections see to the first five; only agents send the last one."""

    async def _probe(self, command: commands.ProbePeers) -> None:
        found = await asyncio.to_thread(probe, command.endpoints, command.word)
        self._outbox.tell(PeersProbed(command.machine, tuple(found)))

    def _stop_listening(self) -> None:
        """Other machines do not need to reach this one any more."""
        if self._endpoints is not None:
            self._endpoints.close()
            self._endpoints = None

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _signalled_to_end(self) -> None:
        self._leave("it was told to end", by_machine=True)

    def _leave(self, why: str, *, by_machine: bool = False) -> None:
        self._outbox.leave(Leaving(why, by_machine))
        self._gone.set()


def run(
    folder: str,
    lock: int,
    stores: tuple[str, ...],
    limits: AgentLimits,
    forge_pid: int,
    control: socket.socket,
) -> None:
    """Serve until the end, then remove the pool's folders; the forge has been started already.

    Holds the `lock` of the pool's folder while it lives; a folder whose lock is free has no owner.
    """
    adopt_orphans()
    own, values = Path(folder), [Path(store) for store in stores]
    journal = Journal(values[-1] / "events")
    store = BlobStore(values[0], values[1])
    refresher = FolderRefresher((own, *values))
    with held(own, lock):
        try:
            agent = Agent(
                own,
                journal,
                ValueService(own, store),
                stores,
                refresher,
                limits,
                forge_pid,
                control,
                KeptState(store.memory),
            )
            with asyncio.Runner(loop_factory=PatientLoop) as runner:
                runner.run(agent.serve())
        finally:
            # A forge that still imports would make its folder anew.
            control.close()
            wait_for_forge(forge_pid)
            journal.close()
            slices_note.restore(own)
            for path in values:
                shutil.rmtree(path, ignore_errors=True)
            # The process that waits for this end, or the next sweep, removes the rest; both go by the folder.
            if not slices_note.is_noted(own) and not any(path.exists() for path in values):
                shutil.rmtree(own, ignore_errors=True)
            for path in values:
                with contextlib.suppress(OSError):
                    path.parent.rmdir()  # unless other pools have values there
