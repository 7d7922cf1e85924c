"""The objects that the parts of a pool share: its spec, its state, the lines to its machines, its cost."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import deque

import psutil
from msgspec.structs import replace

from skyward_nb.logs.node_log import NodeLog, agent_logs
from skyward_nb.names.ledger import Ledger
from skyward_nb.plugins.plugin_table import uses_of
from skyward_nb.pool import registry
from skyward_nb.pool.generations import Generations
from skyward_nb.pool.limits import Limits
from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.machine_stores import MachineStores
from skyward_nb.pool.run_clock import RunClock
from skyward_nb.pool.state import PoolState
from skyward_nb.pool.state_lock import StateLock
from skyward_nb.protocol.commands import PluginUse
from skyward_nb.protocol.events import CostChanged, Event, Phase, Remark, Step
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.provider_protocol import Provider, Tell, Told
from skyward_nb.words.errors import BudgetSpent, PoolError
from skyward_nb.words.node_log_entry import NodeLogEntry
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec


class PoolContext:
    """Made once for a pool; its parts read from here what they need."""

    def __init__(
        self, spec: PoolSpec, provider: Provider, pool_id: str, notebook: str, program: str
    ) -> None:
        self.spec: PoolSpec = spec
        self.pool_id: str = pool_id or f"{spec.name}-{secrets.token_hex(3)}"
        self.provider: Provider = provider
        self.started: float = time.time()
        self.client: Client = Client(
            key=secrets.token_hex(8),
            pid=os.getpid(),
            host=socket.gethostname(),
            since=psutil.Process().create_time(),
            notebook=notebook,
            program=program,
        )
        self.state: PoolState = PoolState(tuple(range(spec.world_size)))
        self.lock: StateLock = StateLock()
        self.run_clock: RunClock = RunClock()
        self.lines: Lines = Lines(
            self.client, spec.heartbeat, spec.idle, self.lock, frames_html=spec.only_values
        )
        self.plugins: tuple[PluginUse, ...] = uses_of(spec)
        self.generations: Generations = Generations(
            spec, self.pool_id, self.lines, self.plugins, self.state
        )
        self.nodelog: NodeLog = NodeLog(self.pool_id)
        self.bill: Bill | None = None
        """The cost of its machines, if any."""
        self.in_python: bool = False
        """Whether Python code uses it, not cells: errors advise accordingly."""
        self.why_closed: str = ""
        self.gone: str = ""
        """Why this pool was lost, and the names lost with it, in words, or ""."""
        self.ended: float | None = None
        """When a pool that was lost had ended at the latest, in seconds since 1970."""
        self.over: tuple[float, float] | None = None
        """If its money is spent: `max_cost`, and the amount."""
        self.known_ledger: Ledger | None = None
        self.known_stores: MachineStores | None = None

    # ── once machines are there ─────────────────────────────────────────────────────────

    @property
    def ledger(self) -> Ledger:
        """What the ranks have; raises `PoolError` before the pool has started."""
        if self.known_ledger is None:
            raise PoolError(self.spec.name, f"pool {self.spec.name!r} is not up")
        return self.known_ledger

    @property
    def stores(self) -> MachineStores:
        """The stores of its machines."""
        if self.known_stores is None:
            here = self.provider.shares_files
            machines, homes = self.generations.machines, self.generations.homes
            # As long as for cut lines: agents wait as long for this client.
            patience = self.spec.idle
            self.known_stores = MachineStores(
                machines, self.spec.slots, homes, patience, is_here=here
            )
        return self.known_stores

    # ── how others find it ──────────────────────────────────────────────────────────────

    @property
    def entry(self) -> registry.PoolEntry:
        """Its entry in the registry."""
        return registry.PoolEntry(
            pool_id=self.pool_id,
            spec=self.spec,
            notebook=self.client.notebook,
            started=self.started,
            program=self.client.program,
            client=self.known_client,
            bill=self.bill,
        )

    @property
    def known_client(self) -> Client:
        """This client, without its secret key."""
        return replace(self.client, key="")

    def enter_in_registry(self) -> None:
        """Let other processes find the pool, as it is now."""
        registry.enter(self.entry)

    def becomes(self, spec: PoolSpec, plugins: tuple[PluginUse, ...]) -> None:
        """Set the spec and plugins of the next generation."""
        self.spec, self.plugins = spec, plugins
        self.generations.ready_for(spec, plugins)

    # ── limits ──────────────────────────────────────────────────────────────────────────

    @property
    def limits(self) -> Limits:
        """Its time, which begins when the agents do, and its money."""
        started = self.started if self.state.generation else None
        return Limits(self.spec.ttl, started, self.bill)

    def check_budget(self) -> None:
        """Raise `BudgetSpent` once `max_cost` is reached."""
        over = None if self.state.has_ended else self.limits.overspent(time.time())
        if over is not None:
            most, spent = over
            raise BudgetSpent(self.spec.name, spent, most, in_python=self.in_python)

    # ── words ───────────────────────────────────────────────────────────────────────────

    def check_open(self) -> None:
        """Raise `PoolError` once the pool has ended."""
        if self.state.has_ended:
            raise self.closed_error()

    def closed_error(self) -> PoolError:
        """The error for a use of the pool after its end."""
        name = self.spec.name
        if self.over is not None:
            most, spent = self.over
            return BudgetSpent(
                name, spent, most, is_gone=True, how=self.gone, in_python=self.in_python
            )
        return PoolError(name, self.why_closed or f"pool {name!r} is closed")

    def telling(self, watch: Watch) -> tuple[Tell, Watch]:
        """A function for words of the loop thread, and one that gives them to `watch` in this thread."""
        said = deque[Phase | Step | Remark | CostChanged]()

        def tell(word: Told) -> None:
            if isinstance(word, NodeLogEntry):
                self.nodelog.write(word)
            else:
                said.append(word)

        def hear(event: Event | None) -> None:
            while said:
                first = said.popleft()
                if isinstance(first, CostChanged):
                    self.bill = first.bill
                watch(first)
            watch(event)

        return tell, hear

    def keep_agent_logs(self) -> None:
        """Keep the ends of agents' logs here: on their machines they go with the pool."""
        for log in agent_logs(self.generations.machines):
            self.nodelog.say(log.host, log.nodes, "agent.log", log.text)
        self.nodelog.close()
