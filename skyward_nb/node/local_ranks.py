"""The ranks on an agent's machine: their connections, their messages, and their ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

from skyward_nb.node.connection_table import ConnectionTable
from skyward_nb.node.exit_causes import ENDED, ExitCauses
from skyward_nb.node.forge_connection import ForgeConnection
from skyward_nb.node.forge_messages import ForkRank, RankExited, RankForked, SignalRank
from skyward_nb.node.gpus import gpu_of
from skyward_nb.node.memory_watch import MemoryWatch
from skyward_nb.node.outbox import Outbox
from skyward_nb.node.rank_connection import RankConnection
from skyward_nb.node.reserved_ports import ReservedPorts
from skyward_nb.node.run_record import RunRecord
from skyward_nb.node.stack_pipe import STACK_SIGNAL
from skyward_nb.node.telemetry import RankProcess, Sampler
from skyward_nb.protocol.commands import (
    Interrupt,
    KeepNames,
    KeepState,
    Kill,
    MachineReclaimed,
    Reform,
    Reserve,
    Run,
    UseEnvironment,
)
from skyward_nb.protocol.events import (
    NamesKept,
    NotKilled,
    RankLost,
    ReclaimNotice,
    RunInterrupted,
    Stack,
    StateKept,
)
from skyward_nb.protocol.frames import frame
from skyward_nb.words.checkpoints import end_of_time, notice_key, time_before_stop
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.rank_limits import spell_excess

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PATIENCE = 2.0
"""Seconds that ranks of a training may take to come to the same step."""
_HANG_UP = 0.5
"""Seconds for a dead rank's connection to close; a child that inherited it may keep it open."""


class LocalRanks:
    """Passes frames between the client and ranks, signals ranks, and tells how each one ended."""

    def __init__(self, forge_connection: ForgeConnection, outbox: Outbox, runs: RunRecord) -> None:
        self._forge = forge_connection
        self._outbox = outbox
        self._runs = runs
        self.table: ConnectionTable = ConnectionTable()
        self._held = False
        self._one_ended = asyncio.Event()
        self.causes: ExitCauses = ExitCauses()
        """How ranks of this machine ended."""
        self._sampler = Sampler()
        self._memory = MemoryWatch(lambda: self.table.pids, self._end_for_memory)
        self.generation: int = 0
        self._interrupted = 0
        """The last run that was interrupted."""
        self.notice: ReclaimNotice | None = None
        """The notice that the machine is reclaimed, if it came."""
        self.ordered: UseEnvironment | None = None
        """What the next ranks are to be forked in, while the forge is renewed for it."""
        self.keep_at_notice: bool = False
        """Whether ranks keep their names then."""

    # ── the ranks ───────────────────────────────────────────────────────────────────────

    @property
    def environment(self) -> tuple[str, str]:
        """The Python of the ranks, or of those to come, and the folder of packages beside its own, or ""."""
        if self.ordered is not None:
            return self.ordered.python or sys.executable, self.ordered.folder
        return self._forge.python, self._forge.packages

    # ── their life ──────────────────────────────────────────────────────────────────────

    async def begin_generation(self, generation: int, places: tuple[InstanceInfo, ...]) -> None:
        """End the present ranks, and wait for that; those at these places come next."""
        self.generation = generation
        self.table.elsewhere = frozenset(range(places[0].world_size)) - {
            each.rank for each in places
        }
        await self.end_present()

    async def end_present(self) -> None:
        """End the present ranks, and wait for that."""
        self._kill(tuple(self.table))
        while self.table:
            self._one_ended.clear()
            await self._one_ended.wait()

    def limit_memory(self, limit: int | None) -> None:
        """From now on, end each rank that holds more bytes; None: none."""
        self._memory.begin(limit)

    def _end_for_memory(self, rank: int, pid: int, held: int, limit: int) -> None:
        connection = self.table.get(rank)
        if connection is not None and connection.living_pid == pid:
            self.causes.ended_for(rank, spell_excess(held, limit))
            self._signal(connection, signal.SIGKILL)

    async def fork(self, order: ForkRank, *resources: socket.socket) -> None:
        """Have a rank forked; it gets the descriptors, which are closed here."""
        place = order.place
        connection = RankConnection(asyncio.get_running_loop(), place, self)
        connection.gpu = gpu_of(place, order.env.get(_VISIBLE, os.environ.get(_VISIBLE)))
        self.table[place.rank] = connection
        ends = await connection.open()
        if self.notice is not None:
            notice = MachineReclaimed(self.notice.action, self.notice.at)
            connection.control(frame(notice))
        self._forge.send(order, *ends, *resources)

    def reform(self, order: Reform, data: bytes, ports: ReservedPorts) -> None:
        """Have the ranks form the group of a new generation; the head gets the rendezvous socket."""
        self.generation = order.generation
        for place in order.places:
            connection = self.table.get(place.rank)
            if connection is None:
                self._tell_lost(RankLost(order.generation, place.rank, ENDED))
                continue
            connection.place = place
            if place.is_head and (rendezvous := ports.take_rendezvous()) is not None:
                connection.control(frame(Reserve(order.generation)), (rendezvous.fileno(),))
                rendezvous.close()
            connection.send(data)

    def keep_state(self, command: KeepState, data: bytes) -> None:
        """Have these ranks keep the state of their models; one that is gone has none."""
        for rank in self.table.here(command.ranks):
            if (connection := self.table.reachable(rank)) is None:
                self._outbox.tell(StateKept(command.generation, rank))
            else:
                connection.send(data)

    def keep_names(self, command: KeepNames) -> None:
        """Have these ranks write their names once they are in no run; one that is gone has none."""
        for rank in self.table.here(command.ranks):
            if (connection := self.table.reachable(rank)) is None:
                self._outbox.tell(NamesKept(command.key, rank, why="its process has ended"))
            else:
                connection.send(frame(command))

    def forked(self, word: RankForked) -> None:
        """Note a rank's process, and send it the signal that waited for it."""
        self.causes.born(word.rank, word.pid)
        connection = self.table.get(word.rank)
        if connection is not None and connection.generation == word.generation:
            connection.pid = word.pid
            if connection.unborn_signal is not None:
                self._signal(connection, connection.unborn_signal)

    def exited(self, word: RankExited) -> None:
        """Note the end of a rank's process; its connection may still hold events."""
        connection = next(
            (connection for connection in self.table.values() if connection.pid == word.pid),
            None,
        )
        if connection is None:
            return
        connection.let_end()
        connection.hear_rest()
        asked, said, crash = connection.asked_to_end, connection.last_words(), connection.crash()
        connection.how = self.causes.how(
            connection.rank, word.code, asked=asked, said=said, crash=crash
        )
        wait = 0 if connection.asked_to_end or connection.silent else _HANG_UP
        asyncio.get_running_loop().call_later(wait, self._lost, connection)

    def heard(self, frames: bytes) -> None:
        """Pass on the frames of a rank."""
        if frames:
            self._outbox.append(frames)
            self._runs.heard(frames)

    def hung_up(self, connection: RankConnection) -> None:
        """Handle a closed connection: the rank died, or is of no use."""
        if connection.how is None:
            self.causes.hung_up(connection.rank)
            self._signal(connection, signal.SIGKILL)
        else:
            self._lost(connection)

    def _lost(self, connection: RankConnection) -> None:
        if self.table.get(connection.rank) is not connection:
            return
        del self.table[connection.rank]
        connection.hear_rest()
        crash = connection.crash()
        connection.close()
        self._one_ended.set()
        how, asked = connection.how or "it ended", connection.asked_to_end
        self._tell_lost(RankLost(connection.generation, connection.rank, how, asked, crash))

    def _tell_lost(self, event: RankLost) -> None:
        self._runs.lost(event.rank)
        self._outbox.tell(event)

    async def end(self) -> None:
        """Hang up on all, and have the forge end them and itself."""
        for connection in self.table.values():
            connection.close()
        self._memory.end()
        await self._forge.close()
        self._sampler.close()

    # ── messages to ranks ───────────────────────────────────────────────────────────────

    def begin_run(self, command: Run, data: bytes) -> None:
        """Have ranks execute a run; ranks that are gone are reported as lost."""
        here = self.table.here(command.ranks)
        self._runs.begin(command, here)
        for rank in here:
            connection = self.table.get(rank)
            if connection is not None and connection.generation == command.generation:
                connection.begin(command.run)
                connection.hold(self._held)
                connection.send(data)
            else:
                self._tell_lost(RankLost(command.generation, rank, self.causes.told(rank)))

    def send(self, ranks: tuple[int, ...], data: bytes) -> None:
        """Send ranks a frame."""
        for connection in self.table.connections(ranks):
            connection.send(data)

    def control(self, ranks: Iterable[int], data: bytes) -> None:
        """Send a frame to ranks' control threads, which obey even if the main one is stuck."""
        for connection in self.table.connections(ranks):
            connection.control(data)

    def interrupt(self, command: Interrupt, data: bytes) -> None:
        """Interrupt ranks by a message that names the run, and signals that have them look at it."""
        ranks = tuple(self.table.here(command.ranks))
        self._interrupted = command.run
        self._outbox.tell(RunInterrupted(command.run, command.by_person, ranks))
        for connection in self.table.connections(ranks):
            connection.let_end()
            # First: it may have to do with other ranks before the main thread raises.
            connection.control(data)
            connection.send(data)
            self._signal(connection, signal.SIGINT)
            if (pid := connection.living_pid) is not None:
                # C code that waits for a child drops SIGINT.
                self._forge.send(SignalRank(pid, signal.SIGURG))

    def kill(self, command: Kill) -> None:
        """Kill ranks, but tell those that have ended the run: `RankDone` may be on a slow line."""
        ended = tuple(rank for rank in command.ranks if self._has_ended(rank, command.run))
        self._kill(rank for rank in command.ranks if rank not in ended)
        if ended:
            self._outbox.tell(NotKilled(command.run, ended))

    def _has_ended(self, rank: int, run: int) -> bool:
        """Whether a rank that lives, and will, has come to the end of a run."""
        return self.table.reachable(rank) is not None and not self._runs.is_in(rank, run)

    def _kill(self, ranks: Iterable[int]) -> None:
        for connection in self.table.connections(ranks):
            connection.asked_to_end = True
            self._signal(connection, signal.SIGKILL)

    def _signal(self, connection: RankConnection, number: int) -> None:
        """Signal a rank and its process group; one that is not forked yet, once it is."""
        if connection.pid is None:
            connection.unborn_signal = number
        elif connection.how is None:
            self._forge.send(SignalRank(connection.pid, number, group=True))

    def hold(self, held: bool) -> None:
        """Have ranks wait with their events, except those that must end; or let them go on."""
        self._held = held
        for connection in self.table.values():
            connection.hold(held)

    def reclaim(self, notice: MachineReclaimed) -> None:
        """Tell the client and all ranks, future ones too, that the machine is reclaimed; once."""
        if self.notice is not None:
            return
        self.notice = ReclaimNotice(notice.action, notice.at, self._runs.last)
        self._outbox.tell(self.notice)
        self.control(self.table.numbers, frame(notice))
        if not (self.keep_at_notice and self.table):
            return
        pool_id, end = self.table.places[0].job_id, end_of_time(notice.at)
        key = notice_key(pool_id, self.generation, self.notice.run)
        self.keep_names(KeepNames(key, self.table.numbers, self.notice.run, end))
        wait = time_before_stop(time.time(), end)
        loop, later = asyncio.get_running_loop(), max(wait / 2, _PATIENCE)
        loop.call_later(
            wait, lambda: loop.call_later(later, self._stop_unattended, self._stop_unattended())
        )

    def _stop_unattended(self, unstopped: int | None = None) -> int:
        """Stop the pool's cell, so that ranks keep their names, where no client does and all ranks are here.

        Returns a run that was left to the client which is connected; that may be asleep, so it is asked `unstopped` again.
        """
        running, run = self._runs.running, self._runs.last
        is_ours = running and self._runs.is_cell and not self.table.elsewhere
        if not is_ours or self._interrupted == run or unstopped not in (None, run):
            return 0
        if unstopped is None and self._outbox.line is not None:
            return run
        order = Interrupt(run, running, patience=_PATIENCE)
        self.interrupt(order, frame(order))
        return 0

    # ── state of ranks ──────────────────────────────────────────────────────────────────

    def inspect(self, ranks: tuple[int, ...], answer: Callable[[Stack], None]) -> None:
        """Answer with the stacks of each rank's threads, empty for a rank that is gone."""
        for rank in self.table.here(ranks):
            connection = self.table.get(rank)
            if connection is None or (pid := connection.living_pid) is None:
                answer(Stack(rank, ""))
            else:
                signal_it = partial(self._forge.send, SignalRank(pid, STACK_SIGNAL))
                connection.inspect(signal_it, lambda text, rank=rank: answer(Stack(rank, text)))

    async def sample(self) -> None:
        """Send `Telemetry` of ranks once; sampling may take milliseconds, so it is done in a thread."""
        connections = dict(self.table)
        subjects = [
            RankProcess(rank, pid, connection.gpu)
            for rank, connection in connections.items()
            if (pid := connection.living_pid) is not None
        ]
        for event in await asyncio.to_thread(self._sampler.sample, subjects):
            if self.table.get(event.rank) is connections[event.rank]:
                self.causes.saw(event.rank, event.rss)
                self._outbox.say(event)
        self.causes.look()
