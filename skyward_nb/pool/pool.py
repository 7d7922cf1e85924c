"""A pool, as the main thread sees it: start it, run cells on it, close it.

Everything waits in one place, `_pump`, on one switchboard; whoever called gets each event through
`watch`, and `watch(None)` when a tick of time has passed.
"""

from __future__ import annotations

import contextlib
import marshal
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from skyward_nb.cell.source import Cell
from skyward_nb.plugins.base import check_plugin, find_plugin
from skyward_nb.pool.conductor import Conductor
from skyward_nb.pool.ledger import Ledger, Plan, SourceFinder, results_in_store
from skyward_nb.pool.link import Link, LinkLost
from skyward_nb.pool.loop import LOOP
from skyward_nb.pool.pace import Pace
from skyward_nb.pool.switchboard import Incoming, SigInt, Switchboard
from skyward_nb.providers.base import Machine, Provider
from skyward_nb.wire.blobs import BlobStore
from skyward_nb.wire.pickler import code_names
from skyward_nb.words.errors import PoolError, StartError, spell_size
from skyward_nb.words.info import InstanceInfo, place
from skyward_nb.words.messages import (
    Command,
    Event,
    Fork,
    Hello,
    Leaving,
    Parcel,
    Phase,
    PluginUse,
    RankDone,
    RankLost,
    RankReady,
    RankRefused,
    Reserve,
    Reserved,
    Run,
    Sample,
    SourceFile,
    Spread,
    Step,
    Stop,
)
from skyward_nb.words.ranks import count_ranks
from skyward_nb.words.spec import PoolSpec

T = TypeVar("T")
Watch = Callable[[Event | None], None]
_TICK = 0.1
_CONNECT_LIMIT = 60.0
WARN_FROM = 256_000_000
TELL_FROM = 8_000_000
"""Bytes that may take a moment to move, so that it is told."""


@dataclass(frozen=True)
class RunRequest:
    """A cell to run: its code, its number, where it runs, and what shall come back.

    Without a cell, names are sent and brought, and nothing is run.
    """

    cell: Cell | None
    number: int
    namespace: Mapping[str, Any]
    ranks: tuple[int, ...]
    value_from: tuple[int, ...] = ()
    wants_value: bool = False
    pull: tuple[str, ...] = ()
    push: tuple[str, ...] | None = None
    """Names to send; None: those that the cell needs."""
    limit: int | None = None
    """Most bytes that a value may have to come back."""
    lists_names: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a run ended, rank by rank; `lost_before` are ranks that were found dead at its start."""

    ranks: tuple[int, ...]
    plan: Plan
    done: dict[int, RankDone]
    lost: dict[int, RankLost]
    failed: list[RankDone]
    killed: frozenset[int]
    interrupted: bool
    lost_before: dict[int, RankLost] = field(default_factory=dict)
    names_lost: list[str] = field(default_factory=list)
    limit: int | None = None


class Pool:
    """A set of ranks that live between cells. Not thread-safe: one run at a time."""

    def __init__(self, spec: PoolSpec, provider: Provider, sources: SourceFinder) -> None:
        self.spec = spec
        self.pool_id = f"{spec.name}-{secrets.token_hex(3)}"
        self.generation = 0
        self.started = time.time()
        self.infos: tuple[InstanceInfo, ...] = ()
        self.pids: dict[int, int] = {}
        self.closed = False
        self._ready = False
        self._provider = provider
        self._sources = sources
        self._board = Switchboard()
        self._early: deque[Incoming] = deque()
        self._losses: dict[int, RankLost] = {}
        self._path: tuple[str, ...] = ()
        self._machines: tuple[Machine, ...] = ()
        self._links: list[Link] = []
        self._runs = 0
        self._plugins = [find_plugin(name) for name in spec.framework]
        self._ledger: Ledger | None = None
        self._lock = threading.RLock()
        self.before_close: list[Callable[[], None]] = []

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, in order."""
        return tuple(range(self.spec.world_size))

    @property
    def is_ready(self) -> bool:
        """Whether all ranks are there, as far as is known."""
        return self._ready

    @property
    def ledger(self) -> Ledger:
        """What the ranks have; there is one once the pool has started."""
        if self._ledger is None:
            raise PoolError(self.spec.name, f"pool {self.spec.name!r} is not up")
        return self._ledger

    @property
    def next_run(self) -> int:
        """The number that the next run will have, or the one after a first try of it."""
        return self._runs + 1

    def sockets(self) -> list[int]:
        """Descriptors that have something to read when there is something to `look` at."""
        return [link.fileno() for link in self._links]

    @property
    def store(self) -> BlobStore:
        """The content store of the head's machine, where ranks put large values."""
        return self._machines[0].store()

    # ── life ────────────────────────────────────────────────────────────────────────────

    def start(self, watch: Watch) -> None:
        """Bring the pool up; raises a `SkyError`, or KeyboardInterrupt, with nothing left behind."""
        for plugin in self._plugins:
            check_plugin(plugin, self.spec.backend)
        self._provider.check(self.spec)
        try:
            with self._board.interrupts():
                self._connect(watch)
                self._new_generation(watch)
        except BaseException:
            self.close()
            raise

    def restart(self, watch: Watch) -> None:
        """Begin a new generation: ranks forked anew, their namespaces empty."""
        with self._turn(), self._board.interrupts():
            self._new_generation(watch)

    def clean(self, outcome: Outcome | None = None) -> None:
        """Drop results that were fetched, and of older values those beyond the spare room."""
        if self.closed:
            return
        results = results_in_store(outcome.done) if outcome else set[str]()
        if (
            outcome
            and not results
            and not any(unit.bundle.is_stowed for unit, _ in outcome.plan.sending)
        ):
            return
        needed = self.ledger.needed()
        for machine in self._machines:
            store = machine.store()
            store.drop(results - needed)
            store.trim(needed)

    def close(self) -> None:
        """End ranks and agents and remove their files; returns when all is gone."""
        if self.closed:
            return
        self.closed = True
        for call in self.before_close:
            call()
        for link in self._links:
            with contextlib.suppress(LinkLost):
                link.send(Stop())
        releases = [LOOP.start(machine.release()) for machine in self._machines]
        for release in releases:
            release.future.result()
        for link in self._links:
            link.close()
        self._board.close()

    def _connect(self, watch: Watch) -> None:
        preload = list(dict.fromkeys(m for plugin in self._plugins for m in plugin.preload))
        self._wait(self._acquire(), watch)
        for machine in self._machines:
            watch(Step(machine.nodes, "agent"))
            self._wait(machine.start_agent(self.spec.idle, preload), watch)
            link = Link(machine.name, self._wait(machine.connect(), watch))
            self._links.append(link)
            self._board.add(link)
        self._ledger = Ledger(self.spec.world_size, self._sources)
        greeted = 0
        for event in self._pump(watch, time.monotonic() + _CONNECT_LIMIT):
            if isinstance(event, Hello):
                greeted += 1
                self._check_python(event)
                if greeted == len(self._links):
                    for machine in self._machines:
                        watch(Step(machine.nodes, "agent", done=True))
                    return
        raise StartError(self.spec.name, f"its agent did not answer in {_CONNECT_LIMIT:g} s")

    async def _acquire(self) -> None:
        """Get the machines; here, so that an interrupt cannot lose them between two threads."""
        self._machines = await self._provider.acquire(self.spec, self.pool_id)

    def _check_python(self, hello: Hello) -> None:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if hello.python.rpartition(".")[0] != here:
            raise StartError(
                self.spec.name,
                f"its ranks have Python {hello.python}, this notebook {here}: ask for "
                f"python={here}. Code does not travel between minor versions.",
            )

    def _new_generation(self, watch: Watch, *, stubborn: bool = False) -> None:
        """Have ranks forked anew; with `stubborn`, no interrupt hinders it."""
        self._ready = False
        self._losses.clear()
        self._path = ()
        self.generation += 1
        self.ledger.forget()
        self.pids.clear()
        self._tell(self._links[0], Reserve(self.generation))
        waiting = set(self.ranks)
        for event in self._pump(watch, None, interrupts=stubborn):
            match event:
                case Reserved(generation=generation) if generation == self.generation:
                    self._fork(event)
                case RankReady(generation=generation) if generation == self.generation:
                    waiting.discard(event.rank)
                    self.pids[event.rank] = event.pid
                    if not waiting:
                        self._ready = True
                        return
                case RankRefused(generation=generation) if generation == self.generation:
                    message = f"rank {event.rank}: {event.message}"
                    raise StartError(self.spec.name, message, event.text.strip())
                case RankLost(generation=generation) if generation == self.generation:
                    message = f"rank {event.rank} {event.how} before it was ready"
                    detail = "\n".join(machine.last_words() for machine in self._machines)
                    raise StartError(self.spec.name, message, detail)
                case _:
                    pass

    def _fork(self, reserved: Reserved) -> None:
        addresses = (reserved.address,) * self.spec.nodes
        self.infos = place(self.spec, addresses, reserved.port, self.pool_id, self.generation)
        options = {"backend": self.spec.backend}
        plugins = tuple(PluginUse(plugin.name, options) for plugin in self._plugins)
        for machine, link in zip(self._machines, self._links, strict=True):
            places = tuple(info for info in self.infos if info.node in machine.nodes)
            self._tell(link, Fork(self.generation, places, plugins, self.spec.env))

    # ── runs ────────────────────────────────────────────────────────────────────────────

    def run(
        self, request: RunRequest, watch: Watch, planned: Callable[[Plan], None] = lambda _: None
    ) -> Outcome:
        """Send what the cell needs and run it; returns however it ended. `planned` hears what is sent.

        What `look` took notice of before is put right first. Raises `PayloadError` before anything
        is sent, `PoolError` when the pool itself is lost.
        """
        with self._turn():
            return self._run(request, watch, planned)

    @contextlib.contextmanager
    def _turn(self) -> Generator[None]:
        """One thread at a time: a subshell of the kernel may run a cell beside another."""
        if not self._lock.acquire(blocking=False):
            name = self.spec.name
            raise PoolError(name, f"pool {name!r} is running another cell; wait, or use pool=other")
        try:
            yield
        finally:
            self._lock.release()

    def _run(
        self,
        request: RunRequest,
        watch: Watch,
        planned: Callable[[Plan], None],
        *,
        again: bool = True,
    ) -> Outcome:
        losses = dict(self._losses)
        names_lost: list[str] = []
        if not self._ready:
            names_lost = self.ledger.names_made_on_ranks()
            self.restart(watch)
        plan, parcels = self._pack(request, watch, planned)
        self._runs += 1
        command = self._command(request, plan, parcels)
        conductor = Conductor(self._runs, request.ranks, self.spec.grace)
        with self._board.interrupts():
            self._send(command)
            self.ledger.sent(plan, request.ranks)
            self._conduct(conductor, watch)
            self.ledger.settle(conductor.done, request.namespace, plan)
            if conductor.broken:
                names_lost += self.ledger.names_made_on_ranks()
                self._new_generation(watch, stubborn=True)
        ends = conductor.done.values()
        if again and not conductor.lost and all(e.rejected and e.rejected.gone for e in ends):
            # Nothing ran: ranks have dropped what it was to point at, so now it goes whole.
            return self._run(request, watch, planned, again=False)
        return Outcome(
            ranks=request.ranks,
            plan=plan,
            done=conductor.done,
            lost=conductor.lost,
            failed=conductor.failed,
            killed=frozenset(conductor.killed),
            interrupted=conductor.interrupts > 0,
            lost_before=losses,
            names_lost=sorted(set(names_lost)),
            limit=request.limit,
        )

    def _pack(
        self, request: RunRequest, watch: Watch, planned: Callable[[Plan], None]
    ) -> tuple[Plan, tuple[Parcel, ...]]:
        """What a run sends, stowed where the ranks find it; raises `PayloadError`."""
        stores = [machine.store() for machine in self._machines]
        told: list[str] = []

        def tell(name: str) -> None:
            told.append(name)
            watch(Phase(f"packing {name}"))

        plan = plan_of(request, self.ledger, tell)
        planned(plan)
        if plan.sent_bytes > TELL_FROM:
            which = ""
            if not self._provider.shares_files and plan.sent_bytes > WARN_FROM:
                which = f": {plan.largest()}"
            told.append("sending")
            watch(Phase(f"sending {spell_size(plan.sent_bytes)}{which}"))
        parcels = plan.stow(stores, lambda: watch(None))
        if told:
            watch(Phase(""))
        return plan, parcels

    def _command(self, request: RunRequest, plan: Plan, parcels: tuple[Parcel, ...]) -> Run:
        cell = request.cell
        sources = tuple(plan.sources)
        let_go, unused = self.ledger.to_let_go(request.ranks)
        if cell is not None:
            sources = (SourceFile(cell.filename, request.number, cell.text), *sources)
        return Run(
            run=self._runs,
            generation=self.generation,
            ranks=request.ranks,
            number=request.number,
            body=marshal.dumps(cell.body) if cell and cell.body else None,
            last=marshal.dumps(cell.last) if cell and cell.last else None,
            wants_value=request.wants_value,
            parcels=parcels,
            removed=plan.removed,
            let_go=let_go,
            unused=unused,
            lets_go=self.ledger.parcels_of(cell.names.writes, plan) if cell else {},
            modules=plan.modules,
            imports=plan.imports,
            writes=tuple(cell.names.writes) if cell else (),
            sure=tuple(cell.names.sure) if cell else (),
            opaque=bool(cell and cell.names.blind),
            sources=sources,
            value_from=request.value_from,
            pull=request.pull,
            limit=request.limit,
            lists_names=request.lists_names,
            path=self._changed_path(request.ranks),
        )

    def _changed_path(self, ranks: tuple[int, ...]) -> tuple[str, ...]:
        """The notebook's `sys.path`, if ranks do not have it yet and its folders are theirs, too."""
        path = tuple(folder for folder in sys.path if folder)
        if not self._provider.shares_files or path == self._path:
            return ()
        if ranks == self.ranks:
            self._path = path
        return path

    def _conduct(self, conductor: Conductor, watch: Watch) -> None:
        pace = Pace(watch)
        pump = self._pump(
            pace.watch, None, lambda: pace.real(conductor.next_due()), interrupts=True
        )
        for event in pump:
            now = pace.now()
            if pace.is_sample_due():
                self._send(Sample())
            match event:
                case RankDone():
                    orders = conductor.finished(event, now)
                case Spread():
                    orders = conductor.spread(event)
                case RankLost(generation=generation) if generation == self.generation:
                    orders = conductor.died(event, now)
                case SigInt():
                    orders = conductor.interrupt(now)
                    if conductor.running:
                        stopping = count_ranks(conductor.running)
                        watch(Phase(f"interrupted, waiting for {stopping} to stop"))
                case _:
                    orders = []
            for order in [*orders, *conductor.tick(now)]:
                self._send(order)
            if conductor.over:
                return

    def look(self, watch: Watch) -> dict[int, RankLost]:
        """Take notice of what happened between cells; the ranks that are gone.

        Raises `PoolError` when the pool is.
        """
        if not self._lock.acquire(blocking=False):
            return self._losses  # a run in another thread takes it
        try:
            self._look(watch)
        finally:
            self._lock.release()
        return self._losses

    def _look(self, watch: Watch) -> None:
        while (event := self._next(0)) is not None:
            if isinstance(event, RankLost) and event.generation == self.generation:
                self._ready = False
                self._losses[event.rank] = event
                self.pids.pop(event.rank, None)
            if not isinstance(event, SigInt):
                watch(event)

    # ── waiting ─────────────────────────────────────────────────────────────────────────

    def _pump(
        self,
        watch: Watch,
        until: float | None,
        due: Callable[[], float | None] = lambda: None,
        *,
        interrupts: bool = False,
    ) -> Iterator[Incoming | None]:
        """Yield what comes in, and None for ticks, until `until` (monotonic seconds).

        An interrupt is yielded with `interrupts`, else raised.
        """
        while until is None or time.monotonic() < until:
            next_due = due()
            wait = _TICK if next_due is None else min(_TICK, max(0, next_due - time.monotonic()))
            event = self._next(wait)
            if isinstance(event, SigInt):
                if not interrupts:
                    raise KeyboardInterrupt
            else:
                watch(event)
            yield event

    def _next(self, timeout: float) -> Incoming | None:
        """What comes in next, or None; raises `PoolError`, the pool closed, when a machine is lost.

        What came with it stays for the next time, whoever asks then.
        """
        if not self._early:
            try:
                self._early.extend(self._board.wait(timeout))
            except LinkLost as lost:
                self._gone(str(lost))
        event = self._early.popleft() if self._early else None
        if isinstance(event, Leaving):
            self._gone(f"its agent left: {event.why}")
        return event

    def _gone(self, why: str) -> NoReturn:
        self.close()
        name = self.spec.name
        raise PoolError(name, f"pool {name!r} is gone: {why}. The next cell makes a new one.")

    def _wait(self, work: Coroutine[Any, Any, T], watch: Watch) -> T:
        """The result of a coroutine on the loop thread, with ticks and interrupts meanwhile."""
        going = LOOP.start(work)
        future = going.future
        future.add_done_callback(lambda _: self._board.nudge())
        while not future.done():
            for event in self._board.wait(_TICK):
                if isinstance(event, SigInt):
                    going.give_up()
                    raise KeyboardInterrupt
                self._early.append(event)
            watch(None)
        return future.result()

    def _send(self, command: Command) -> None:
        for link in self._links:
            self._tell(link, command)

    def _tell(self, link: Link, command: Command) -> None:
        try:
            link.send(command)
        except LinkLost as lost:
            while self._next(0) is not None:
                """Its last word may say why, and raises."""
            self._gone(str(lost))


def plan_of(
    request: RunRequest, ledger: Ledger, tell: Callable[[str], None] = lambda _: None
) -> Plan:
    """What a run sends to ranks that have what the ledger says; raises `PayloadError`.

    `tell` hears the names of values that take a moment to pack.
    """
    cell = request.cell
    reads = request.push
    tokens, imports = frozenset[str](), frozenset[str]()
    if cell is not None:
        reads = cell.names.reads if reads is None else reads
        parts = [code_names(part) for part in (cell.body, cell.last) if part is not None]
        tokens = frozenset[str]().union(*(part.tokens for part in parts))
        imports = cell.names.imports
    return ledger.plan(
        reads or (), request.namespace, request.ranks, tokens=tokens, imports=imports, tell=tell
    )
