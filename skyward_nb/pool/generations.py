"""The ranks of a pool, generation after generation: forked anew, or the same ones in a new group."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from skyward_nb.plugins.plugin_table import find_plugin
from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.reachability import MachinesUnreachable, meet
from skyward_nb.pool.state import STILL_MEANT, PoolState, SigInt
from skyward_nb.protocol.commands import Command, Fork, KeepState, PluginUse, Reform, Reserve
from skyward_nb.protocol.events import (
    Hello,
    Output,
    RankLost,
    RankReady,
    RankRefused,
    Reserved,
    RunBegan,
    StateKept,
)
from skyward_nb.providers.provider_protocol import Machine
from skyward_nb.words.errors import StartError
from skyward_nb.words.info import LOOPBACK, RENDEZVOUS, InstanceInfo, place
from skyward_nb.words.spec import PoolSpec

_REFORM_LIMIT = 10.0
_KEEP_LIMIT = 60.0
"""Seconds that a rank may take to keep the state of its models."""
_ADVICE = (
    "Ranks of a pool talk to one another directly: open the firewall between these machines, or "
    "put them into one private network. With cluster=no, in Python "
    "sky.Options(cluster=False), each machine stands alone"
)
_RENDEZVOUS_PORT = 29500
"""The rendezvous port on remote machines; firewalls and scripts may know it from torchrun."""
_LAST_WORDS = 2000
"""Characters that are told of what a rank wrote that did not start."""


class Generations:
    """Begins generations of ranks, and knows their places."""

    def __init__(
        self,
        spec: PoolSpec,
        pool_id: str,
        lines: Lines,
        plugins: tuple[PluginUse, ...],
        state: PoolState,
    ) -> None:
        self._state = state
        self.reformed_in: int = 0
        """The generation whose group was formed by the ranks of the generation before."""
        self.why_not_reformed: str = ""
        """Why ranks could not form a new group the last time, in words."""
        self.regained: dict[str, str] = {}
        """By framework, what users made before that goes on in it, in the words of the first rank."""
        self.kept: str = ""
        """What to do for the state of models that a rank kept before the present ranks were begun, in words."""
        self.names_since: int = 0
        """The first generation whose names the present ranks may go on from."""
        self.infos: tuple[InstanceInfo, ...] = ()
        self.machines: tuple[Machine, ...] = ()
        self._spec = spec
        self._pool_id = pool_id
        self._lines = lines
        self._plugins = plugins
        self._reserved: dict[int, Reserved] = {}
        self._homes: dict[str, tuple[str, str]] = {}
        """By machine, the address at which others reach it, and the interface."""
        self._kept: dict[int, dict[str, tuple[int, ...]]] = {}

    @property
    def homes(self) -> dict[str, str]:
        """By machine, the address at which others reach it, or ""."""
        return {
            name: address if interface else "" for name, (address, interface) in self._homes.items()
        }

    def ready_for(self, spec: PoolSpec, plugins: tuple[PluginUse, ...]) -> None:
        """Set the spec and plugins of the next generation."""
        self._spec, self._plugins = spec, plugins

    def exchange(self, machines: Mapping[int, Machine]) -> None:
        """Replace machines, given by `id`; their addresses are found again."""
        self.machines = tuple(machines.get(id(each), each) for each in self.machines)
        self._homes = {}

    def adopt(self, hellos: Iterable[Hello]) -> bool:
        """Take over the ranks of these agents; whether all live."""
        hellos = list(hellos)
        places = {info.rank: info for hello in hellos for info in hello.places}
        self.infos = tuple(info for _, info in sorted(places.items()))
        self._state.pids = {rank: pid for hello in hellos for rank, pid in hello.pids.items()}
        self._state.generation = max(hello.generation for hello in hellos)
        self.names_since = max(hello.names_since for hello in hellos)
        if self.infos and len(self.infos) < self._spec.world_size:
            # The places on a machine that has ended are known from the others.
            first = self.infos[0]
            port, number = first.head_port, first.generation
            everyone = place(self._spec, first.peers, port, self._pool_id, number)
            self.infos = tuple(places.get(info.rank, info) for info in everyone)
        peers = self.infos[0].peers if self.infos else ()  # all ranks may have died
        homes = {peer.node: (peer.address, peer.interface) for peer in peers}
        self._homes = {each.name: homes[each.nodes[0]] for each in self.machines if homes}
        # The client before may have ended while it began another generation.
        is_one = all(hello.generation == self._state.generation for hello in hellos)
        return is_one and len(self._state.pids) == self._spec.world_size

    def keep_state(self, watch: Watch) -> str:
        """Have a rank that lives keep the state of its models for the generation that comes; in words what is to be done then.

        "" if there is none, or nobody waits for it any longer.
        """
        if not any(find_plugin(use.name).keeps_state for use in self._plugins):
            return ""
        coming, asked = self._state.generation + 1, list(self._state.ranks)
        for link in self._lines.links:  # what was kept before may be on any machine
            self._lines.tell(link, KeepState(coming, ()))
        self._lines.send(KeepState(coming, (asked[0],)))
        until = time.monotonic() + _KEEP_LIMIT
        for event in self._lines.pump(watch, until, interrupts=True):
            match event:
                case SigInt():
                    return ""
                case StateKept(generation=number, words=words) if (
                    number == coming and words is not None
                ):
                    return words
                case StateKept() | RankLost() if event.rank == asked[0]:
                    del asked[0]
                    if not asked:
                        return ""
                    self._lines.send(KeepState(coming, (asked[0],)))
                case _:
                    pass
        return ""

    def begin(self, watch: Watch, *, stubborn: bool = False) -> bool:
        """Have all ranks forked anew; whether they are ready.

        With `stubborn`, an interrupt ends the wait only if it takes long. Raises `StartError` if a rank does
        not start.
        """
        if len(self.machines) > len(self._homes):
            self._meet(watch)
        self._state.generation += 1
        self._state.pids.clear()
        self._reserve(anew=True)
        waiting = set(range(self._spec.world_size))

        def fork(places: tuple[InstanceInfo, ...]) -> Fork:
            spec = self._spec
            number = self._state.generation
            return Fork(
                number,
                places,
                self._plugins,
                spec.variables,
                spec.limits,
                spec.checkpoints,
                self.names_since,
            )

        soon = time.monotonic() + STILL_MEANT
        written = defaultdict[int, str](str)
        for event in self._lines.pump(watch, None, interrupts=stubborn):
            match event:
                case Output():
                    written[event.rank] = (written[event.rank] + event.text)[-_LAST_WORDS:]
                case SigInt() if time.monotonic() > soon:
                    return False
                case Reserved(generation=number) if number == self._state.generation:
                    self._place(event, fork)
                case RankReady(generation=number) if number == self._state.generation:
                    waiting.discard(event.rank)
                    self._state.pids[event.rank] = event.pid
                    if not waiting:
                        return True
                case RankRefused() | RankLost() if event.generation == self._state.generation:
                    raise self._not_started(event, written[event.rank])
                case _:
                    pass
        return False

    def _not_started(self, event: RankRefused | RankLost, written: str) -> StartError:
        if isinstance(event, RankRefused):
            message, detail = f"rank {event.rank}: {event.message}", event.text.strip()
        else:
            message = f"rank {event.rank} {event.how} before it was ready"
            said = [written, *(machine.last_words() for machine in self.machines)]
            detail = "\n".join(filter(None, map(str.strip, said)))
        return StartError(self._spec.name, message, detail)

    def reform(self, watch: Watch, added: frozenset[str] = frozenset()) -> bool:
        """Have the present ranks form a new process group; whether they could.

        None of them may be about to cut the old one: `Driver.await_cuts`. Plugins of these names are
        `added` to those that they have, and may take as long as they take to import.
        """
        self._state.generation += 1
        self._reserve(anew=False, added=added)
        self.regained = {}
        waiting = set(range(self._spec.world_size))
        until = None if added else time.monotonic() + _REFORM_LIMIT
        plugins = (self._plugins, self._spec.variables) if added else (None, {})

        def reform(places: tuple[InstanceInfo, ...]) -> Reform:
            return Reform(self._state.generation, places, *plugins)

        for event in self._lines.pump(watch, until, interrupts=True):
            match event:
                case Reserved(generation=number) if number == self._state.generation:
                    self._place(event, reform)
                case RankReady(generation=number) if number == self._state.generation:
                    waiting.discard(event.rank)
                    self.regained = event.regained if event.rank == 0 else self.regained
                    if not waiting:
                        self.reformed_in = self._state.generation
                        return True
                case RankRefused():
                    self.why_not_reformed = f"rank {event.rank}: {event.message}"
                    return False
                case RankLost():
                    self.why_not_reformed = f"rank {event.rank} {event.how}"
                    return False
                case _:
                    pass
        if until is not None and time.monotonic() >= until:
            self.why_not_reformed = f"it took longer than {_REFORM_LIMIT:.0f} s"
        return False

    def _reserve(self, *, anew: bool, added: frozenset[str] = frozenset()) -> None:
        """Have each machine hold ports for this generation; servers that stay keep theirs."""
        self._reserved.clear()
        plugins = [find_plugin(use.name) for use in self._plugins]
        servers = tuple(
            each.name
            for each in plugins
            if each.serves and (anew or not each.stays or each.name in added)
        )
        servers += () if self._spec.cluster else (RENDEZVOUS,)
        before = self.infos[0].peers if self.infos and not anew else ()
        staying = {each.name for each in plugins if each.stays} - added
        self._kept = {
            peer.node: {name: held for name, held in peer.ports.items() if name in staying}
            for peer in before
        }
        slots, port = self._spec.slots, _RENDEZVOUS_PORT if self._spec.is_elsewhere else 0
        for machine, link in zip(self.machines, self._lines.links, strict=True):
            where = self._homes[machine.name]
            order = Reserve(self._state.generation, machine.nodes, slots, servers, *where, port)
            self._lines.tell(link, order)

    def _meet(self, watch: Watch) -> None:
        """Find the address of each machine; a machine that stands alone may stay on loopback.

        Raises `StartError` if machines of one world do not reach one another.
        """
        names = [machine.name for machine in self.machines]
        self._homes = dict.fromkeys(names, (LOOPBACK, ""))
        if len(names) == 1:
            return
        try:
            endpoints = meet(names, self._lines, watch)
        except MachinesUnreachable as apart:
            if self._spec.cluster:
                self._homes = {}
                raise StartError(self._spec.name, f"{apart}. {_ADVICE}") from None
            return
        places = ((endpoint.address, endpoint.interface) for endpoint in endpoints)
        self._homes = dict(zip(names, places, strict=True))

    def _place(
        self, reserved: Reserved, order: Callable[[tuple[InstanceInfo, ...]], Command]
    ) -> None:
        """Once all machines hold their ports, place the ranks, and give each machine an order with its places."""
        for peer in reserved.peers:
            self._reserved[peer.node] = reserved
        if len(self._reserved) < self._spec.nodes:
            return
        peers = {peer.node: peer for each in self._reserved.values() for peer in each.peers}
        ordered = tuple(
            replace(peers[node], ports=self._kept.get(node, {}) | peers[node].ports)
            for node in sorted(peers)
        )
        port = self._reserved[0].port
        self.infos = place(self._spec, ordered, port, self._pool_id, self._state.generation)
        for machine, link in zip(self.machines, self._lines.links, strict=True):
            own = tuple(info for info in self.infos if info.node in machine.nodes)
            self._lines.tell(link, order(own))


def unseen_of(hellos: Sequence[Hello]) -> tuple[RunBegan | None, tuple[int, ...]]:
    """The run that goes on, or whose end no client has seen; and those of its ranks that never got its command.

    The client before may have ended after it sent a command to some machines, and not to others.
    """
    found = max((h.unseen for h in hellos if h.unseen), key=lambda began: began.run, default=None)
    if found is None:
        return None, ()
    unaware: list[int] = []
    for hello in hellos:
        ranks = {info.rank for info in hello.places} & set(found.ranks)
        if ranks and hello.runs < found.run:
            unaware += ranks
        elif ranks and (hello.unseen is None or hello.unseen.run != found.run):
            return None, ()
    return found, tuple(sorted(unaware))
