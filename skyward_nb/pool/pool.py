"""A pool, as the main thread sees it: start it, run cells on it, close it.

Everything waits in one place, `Lines.pump`: one thread listens at a time (`Helm`), for all runs that
go on. Whoever waits for a run gets its events through `watch`, and `watch(None)` when a tick of time
has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import marshal
import os
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import NoReturn

import psutil
from msgspec.structs import replace

from skyward_nb.plugins.base import check_installed, find_plugin, uses_of
from skyward_nb.pool import registry
from skyward_nb.pool.conductor import Conductor
from skyward_nb.pool.generations import Generations, unseen_of
from skyward_nb.pool.helm import Helm
from skyward_nb.pool.ledger import (
    Ledger,
    Plan,
    SourceFinder,
    changed,
    no_room,
    results_in_store,
)
from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.link import Link
from skyward_nb.pool.loop import release
from skyward_nb.pool.nodelog import AgentLog, NodeLog, agent_logs
from skyward_nb.pool.outcome import Going, Outcome, RunLeft, RunRequest, plan_of
from skyward_nb.pool.pace import Pace
from skyward_nb.pool.rank_versions import RankVersions
from skyward_nb.pool.replacing import Replacing
from skyward_nb.pool.stores import Stores
from skyward_nb.pool.switchboard import Incoming, SigInt
from skyward_nb.providers.base import (
    AgentGone,
    Machine,
    MachineEnded,
    MachinesEnded,
    Provider,
    ReplacementRequest,
    Replaces,
    Tell,
    Told,
    spell_ended,
)
from skyward_nb.wire.blobs import Damaged
from skyward_nb.wire.payload import Bundle
from skyward_nb.wire.stores import ContentStore
from skyward_nb.words.commands import (
    Command,
    Parcel,
    PluginUse,
    Run,
    Sample,
    Seen,
    SourceFile,
    Stop,
)
from skyward_nb.words.errors import (
    BudgetSpent,
    HostError,
    HostNotReady,
    MachineLost,
    PoolBusy,
    PoolError,
    SkyError,
    StartError,
    TakenBack,
    spell_size,
)
from skyward_nb.words.events import (
    Began,
    Event,
    Hello,
    Noted,
    Phase,
    Priced,
    RankDone,
    RankLost,
    Spread,
    Stack,
    Step,
    Stopping,
    WasCut,
)
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.nodes import NodeWord
from skyward_nb.words.offers import Bill
from skyward_nb.words.parts import Client, Packed, RunCard
from skyward_nb.words.ranks import count_ranks
from skyward_nb.words.spec import PoolSpec

_CONNECT_LIMIT = 60.0
_PATH = "sys.path"
_STOP_LIMIT = 2.0
_WRITING = 10.0
"""Seconds that ranks have to write what they recorded of a run that is stopped."""
_FOLLOWS = 0.1
"""Seconds between two looks of a thread that waits for one that listens."""
_NOTICES, _NOTICE_LIMIT, _NOTICE_BEATS = 0.02, 60.0, 5
"""Seconds between two looks at a line whose machine has ended, and how long it is looked at, at least so many beats."""
_TOLD_AGAIN = 5.0
"""Seconds in which all that the agent has kept of a run has come for sure."""
_MOST_NAMED = 4
WARN_FROM = 256_000_000
"""Bytes that may take a moment to move, so that it is told."""


class Pool:
    """A set of ranks that live between runs, of which several go on at once on ranks of their own."""

    def __init__(
        self,
        spec: PoolSpec,
        provider: Provider,
        sources: SourceFinder,
        *,
        notebook: str = "",
        program: str = "",
        pool_id: str = "",
    ) -> None:
        self.spec: PoolSpec = spec
        self.pool_id: str = pool_id or f"{spec.name}-{secrets.token_hex(3)}"
        self.started: float = time.time()
        self.closed: bool = False
        self._ready = False
        self._provider = provider
        self._sources = sources
        self._client = Client(
            key=secrets.token_hex(8),
            pid=os.getpid(),
            host=socket.gethostname(),
            since=psutil.Process().create_time(),
            notebook=notebook,
            program=program,
        )
        self._helm = Helm()
        self._goings: dict[int, Going] = {}
        self._pace = Pace()
        self._stores: Stores | None = None
        self._lines = Lines(
            self._client,
            spec.heartbeat,
            spec.idle,
            self._gone,
            self._cut_off,
            self._refused,
            self._helm,
        )
        self._plugins = uses_of(spec)
        self._generations = Generations(spec, self.pool_id, self._lines, self._plugins)
        self._replacing: Replacing | None = None
        if spec.on_preempt == "replace" and isinstance(provider, Replaces):
            self._replacing = Replacing(self.pool_id, provider, self._lines, self._generations)
            self._lines.on_ended = self._ended
        self._losses: dict[int, RankLost] = {}
        self._unsettled: list[Conductor] = []
        """Of runs that ended while others went on, those that left ranks lost or groups cut."""
        self._path: RankVersions[tuple[str, ...]] = RankVersions()
        self._runs = 0
        self._nodelog = NodeLog(self.pool_id)
        self._ledger: Ledger | None = None
        self._why_closed = ""
        self.is_left_by_interrupt: Callable[[], bool] = lambda: False
        self.is_cut_off: bool = False
        """Whether it was left as a machine could not be reached, and may be alive."""
        self._never_begun: tuple[int, ...] = ()
        """Ranks of that run which never heard of it."""
        self.unseen: Began | None = None
        """The run that went on, or whose end nobody had seen, when this pool was attached."""
        self.in_python: bool = False
        """Whether Python code uses it, and no cells: that is how errors say what to do next."""
        self.over: tuple[float, float] | None = None
        """Where it is gone for that: `max_cost`, and what was spent."""
        self.gone: str = ""
        """Why this pool is no more, and what was lost with it, in words; empty as long as it is."""
        self.instead_of: str = ""
        """What became of the pool that this one stands for, in words: the next run tells it."""
        self.bill: Bill | None = None
        """What its machines cost, where they cost anything."""
        self._untold: tuple[dict[int, RankLost], list[str]] = {}, []
        """Ranks and names that were lost before runs which then could not begin."""
        self._warned_of_cost = False
        self.may_run: str = ""
        """Machines that may run on although it was closed, in words."""
        self.before_close: list[Callable[[], None]] = []

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, in order."""
        return tuple(range(self.spec.world_size))

    @property
    def generation(self) -> int:
        """The number of the generation that there is."""
        return self._generations.number

    @property
    def infos(self) -> tuple[InstanceInfo, ...]:
        """The places of the ranks."""
        return self._generations.infos

    @property
    def pids(self) -> dict[int, int]:
        """The processes of the ranks that are there."""
        return self._generations.pids

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
        return self._lines.sockets()

    def before_cut(self, call: Callable[[int], None]) -> None:
        """Have `call` hear of a descriptor of `sockets` that is about to be closed."""
        self._lines.before_cut = call

    @property
    def stores(self) -> Stores:
        """What lies where; there is that once the pool has machines."""
        machines = self._generations.machines
        if self._stores is None:
            here = self._provider.shares_files
            homes = self._generations.homes
            # No shorter than lines are waited for, and agents wait for us.
            self._stores = Stores(machines, self.spec.slots, homes, self.spec.idle, is_here=here)
        return self._stores

    @property
    def store(self) -> ContentStore:
        """The content stores of all machines as one, where ranks put large values."""
        return self.stores.all

    # ── life ────────────────────────────────────────────────────────────────────────────

    def start(self, watch: Watch) -> None:
        """Bring the pool up; raises a `SkyError`, or KeyboardInterrupt, with nothing left behind."""
        self._check(self.spec, self._plugins)
        try:
            with self._lines.interrupts():
                self._connect(watch)
                self._new_generation(watch)
        except AgentGone as gone:
            why = f"its agents ended before they were reached: nobody came for idle={self.spec.idle:g} s"
            if isinstance(gone, MachinesEnded):
                why = str(gone)
            error = StartError(self.spec.name, why)
            try:
                self._note(error)
            finally:
                self.close()
            raise error from gone
        except BaseException as error:
            try:
                if isinstance(error, SkyError):
                    self._note(error)
            finally:
                self.close()
            raise
        finally:
            self._nodelog.close()

    def restart(self, watch: Watch) -> None:
        """Begin a new generation: ranks forked anew, their namespaces empty."""
        with self._beginning_anew() as was_ready:
            self._new_generation(watch, was_ready=was_ready)

    def become(self, spec: PoolSpec, watch: Watch) -> None:
        """Go on with other frameworks: a new generation, readied for those of `spec`.

        Raises what `start` raises of them, and is what it was then.
        """
        before = self.spec, self._plugins
        plugins = uses_of(spec)
        self._check(spec, plugins)
        try:
            with self._beginning_anew() as was_ready:
                self._readied_for(spec, plugins)
                self._new_generation(watch, was_ready=was_ready)
        except BaseException:
            self._readied_for(*before)
            self._ready = False
            raise
        self._list()

    def _check(self, spec: PoolSpec, plugins: tuple[PluginUse, ...]) -> None:
        """Raise what hinders a pool of this spec; machines elsewhere have packages of their own."""
        if self._provider.shares_files:
            for use in plugins:
                check_installed(use)
        self._provider.check(spec)

    def _list(self) -> None:
        """Let other processes find the pool, as it is now."""
        registry.enter(self.entry)

    @property
    def entry(self) -> registry.Entry:
        """How other processes find it."""
        return registry.Entry(
            pool_id=self.pool_id,
            spec=self.spec,
            notebook=self._client.notebook,
            started=self.started,
            program=self._client.program,
            client=self._known_client,
            bill=self.bill,
        )

    @property
    def _known_client(self) -> Client:
        """Ourselves, but for what lets us go on."""
        return replace(self._client, key="")

    def _readied_for(self, spec: PoolSpec, plugins: tuple[PluginUse, ...]) -> None:
        self.spec, self._plugins = spec, plugins
        self._generations.ready_for(spec, plugins)

    def attach(self, watch: Watch) -> None:
        """Go on with a pool that another process has left alive; `unseen` is the run to `follow`.

        Machines that have ended meanwhile are replaced as if that had been seen here. Raises
        `PoolError` when it is gone, or another client conducts it.
        """
        name = self.spec.name
        try:
            self._generations.machines = self._provider.find(self.spec, self.pool_id)
            with self._lines.interrupts():
                hellos, ended = self._greet(watch, may_lack=self._replacing is not None)
        except AgentGone as gone:
            self.leave()
            # Of several machines the others may be there: it is forgotten once none is.
            registry.condition(self.entry)
            if isinstance(gone, MachinesEnded):
                raise TakenBack(name, str(gone), self.pool_id, gone.left) from None
            raise PoolError(name, f"pool {name!r} is gone: its agent has ended") from None
        except OSError as error:
            self.leave()
            if self._provider.shares_files and isinstance(error, ConnectionRefusedError):
                # On this machine one that listens no more is about to end.
                raise PoolError(name, f"pool {name!r} is gone: its agent has ended") from None
            why = error.strerror or str(error) or type(error).__name__
            raise PoolError(
                name,
                f"pool {name!r} cannot be reached now: {why}. It lives on until nobody has been "
                f"there for {self.spec.idle:g} s: try again.",
            ) from error
        except BaseException:
            self.leave()
            raise
        self._runs = max(hello.runs for hello in hellos)
        self.ledger.adopt(self._runs)
        self._ready = self._generations.adopt(hellos)
        self.unseen, self._never_begun = unseen_of(hellos)
        registry.conducted(self.entry, self._known_client)
        for link, why in ended.items():
            for event in self._ended(link, why):
                if isinstance(event, RankLost):
                    self._miss(event)
                else:
                    watch(event)

    @property
    def lacks(self) -> tuple[str, ...]:
        """The machines that have ended and in whose place the next work has others, in words."""
        return () if self._replacing is None else self._replacing.ended_words()

    def leave(self) -> None:
        """Hang up, and let the pool live on for its lease."""
        if not self.closed:
            self.closed = True
            for call in self.before_close:
                call()
            self._lines.flush()
            self._lines.close()
            if self._stores is not None:
                self._stores.close()
            for machine in self._generations.machines:
                machine.leave()
            registry.left(self.entry, self._known_client)

    def check_free(self) -> None:
        """Raise `PoolError` while a run goes on."""
        if self._goings:
            self._busy()

    def seen(self) -> None:
        """All of the last run has been shown and bound: the agents need not keep it.

        They are told with what is said next, or by `flush`.
        """
        with self._helm:
            if self._goings:
                return  # of those nobody has seen all
            for link in self._lines.links:
                if link.offset is not None:
                    link.send_later(Seen(self._runs, link.offset))

    def flush(self) -> None:
        """Say now what was to be said with the next command."""
        self._lines.flush()

    def interrupt(self, run: int | None = None) -> None:
        """Interrupt the run of a number, or all that go on; from any thread."""
        with self._helm:
            for going in self._goings.values():
                going.interrupts += run in (None, going.run)
        self._lines.nudge()

    def clean(self, outcome: Outcome | None = None) -> None:
        """Drop results that were fetched, and of older values those beyond the spare room."""
        if self.closed:
            return
        results = results_in_store(outcome.done) if outcome else {}
        if outcome and not results and not outcome.in_store:
            return
        # Whoever comes after us must not be told of a run whose results are no more.
        self.flush()
        with self._helm:
            stores = self.stores
            needed = self.ledger.needed().union(
                *(going.in_store for going in self._goings.values()), stores.kept
            )
            stores.drop(results, needed)
            if not self._goings:
                stores.all.trim(needed)
            elif outcome:  # there may be results that nobody has fetched yet
                stores.drop(dict.fromkeys(outcome.ranks, outcome.in_store), needed)

    def close(self) -> None:
        """End ranks and agents and remove their files; returns when all is gone, interrupted or not."""
        if self.closed:
            return
        # An interrupt that tore this would leave something.
        with self._lines.interrupts():
            self.closed = True
            self._lines.nudge()
            with self._helm.held():
                self._helm.tell()
                for call in self.before_close:
                    call()
                self._lines.send(Stop())
                with contextlib.suppress(PoolError):
                    self._lines.deliver(_STOP_LIMIT)
                try:
                    self.may_run = release(self._generations.machines)
                finally:
                    registry.remove(self.entry)
                self._lines.close()
                if self._stores is not None:
                    self._stores.close()

    def spell_end(self) -> str:
        """What became of a pool that was closed, in words."""
        count = self.spec.world_size
        left = f"; {self.may_run} may run on" if self.may_run else ", nothing left running"
        return f"{count} rank{'s' * (count != 1)} ended{left}"

    def give_up(self) -> None:
        """End what can be reached of a pool that was left as one machine could not be; that one ends itself."""
        if self.is_cut_off:
            self.is_cut_off = False
            # Their lines were hung up on: these are new ones.
            with contextlib.suppress(AgentGone):
                self.may_run = release(self._provider.find(self.spec, self.pool_id))
            registry.remove(self.entry)

    def _connect(self, watch: Watch) -> None:
        tell, hear = self._telling(watch)
        try:
            self._lines.wait_for(self._acquire(tell), hear)
        finally:
            hear(None)
        machines = self._generations.machines
        if self.spec.ssh is not None:
            access = self.spec.ssh.living_on([machine.name for machine in machines])
            self.spec = replace(self.spec, ssh=access)
        for machine in machines:
            watch(Step(machine.nodes, "agent"))
        self._lines.wait_for(self._start_agents(machines), watch)
        self._list()
        self._greet(watch)
        for machine in machines:
            watch(Step(machine.nodes, "agent", done=True))

    def _telling(self, watch: Watch) -> tuple[Tell, Watch]:
        """What hears what goes on on the loop thread, and what gives that to `watch` on this one."""
        said = deque[Phase | Step | Noted | Priced]()

        def tell(word: Told) -> None:
            if isinstance(word, NodeWord):
                self._nodelog.write(word)
            else:
                said.append(word)

        def hear(event: Event | None) -> None:
            while said:
                first = said.popleft()
                if isinstance(first, Priced):
                    self.bill = first.bill
                watch(first)
            watch(event)

        return tell, hear

    async def _start_agents(self, machines: Sequence[Machine]) -> None:
        """Start these agents side by side; returns when all have come to an end of that.

        Raises `StartError` that tells of all that did not start.
        """
        asked = [find_plugin(use.name).preload(use.options) for use in self._plugins]
        preload = list(dict.fromkeys(itertools.chain(*asked)))
        idle, ttl = self.spec.idle, self._seconds_left or 0
        starts = [self._start_agent(each, idle, ttl, preload) for each in machines]
        failed: list[StartError] = []
        for error in await asyncio.gather(*starts, return_exceptions=True):
            if isinstance(error, StartError):
                failed.append(error)
            elif error is not None:
                raise error
        if len(failed) == 1:
            raise failed[0]
        if failed:
            details = filter(None, (each.detail for each in failed))
            why = "; ".join(each.why for each in failed)
            raise StartError(self.spec.name, why, "\n".join(details))

    @property
    def _seconds_left(self) -> float | None:
        """How much of `ttl` is left, where there is one."""
        if not self.generation or self.spec.ttl is None:
            return self.spec.ttl  # it begins with the agents
        return self.spec.ttl - (time.time() - self.started)

    async def _start_agent(
        self, machine: Machine, idle: float, ttl: float, preload: list[str]
    ) -> None:
        began = time.monotonic()
        try:
            await machine.start_agent(idle, ttl, preload)
        except StartError as error:
            self._nodelog.say(machine.name, machine.nodes, "error", error.message)
            raise
        if not self._provider.shares_files:
            took = f"it listens after {time.monotonic() - began:.2f} s"
            self._nodelog.say(machine.name, machine.nodes, "agent", took)

    def _greet(
        self, watch: Watch, *, may_lack: bool = False
    ) -> tuple[list[Hello], dict[Link, MachineEnded]]:
        """Open the lines, and hear who is there; and which machines have ended, where it `may_lack` some."""
        machines, slots = self._generations.machines, self.spec.slots
        ended = self._lines.open_all(machines, slots, watch, may_lack=may_lack)
        self._ledger = Ledger(self.spec.world_size, self._sources, self.spec.image.includes)
        hellos: list[Hello] = []
        # What comes from one machine before another one has answered is for who asks next.
        early: list[Incoming] = []

        def told(event: Event | None) -> None:
            watch(event if isinstance(event, Phase) else None)

        for event in self._lines.pump(told, time.monotonic() + _CONNECT_LIMIT):
            if isinstance(event, Hello):
                self._check_python(event)
                hellos.append(event)
                if len(hellos) == len(self._lines.links) - len(ended):
                    self._lines.put_back(early)
                    return hellos, ended
            elif event is not None:
                early.append(event)
        raise StartError(self.spec.name, f"its agent did not answer in {_CONNECT_LIMIT:g} s")

    async def _acquire(self, tell: Tell) -> None:
        """Get the machines; here, so that an interrupt cannot lose them between two threads."""
        self._generations.machines = await self._provider.acquire(self.spec, self.pool_id, tell)

    def agent_logs(self) -> list[AgentLog]:
        """The ends of the logs of the agents, as far as they can be had now."""
        return agent_logs(self._generations.machines)

    def _keep_agent_logs(self) -> None:
        """What agents have logged is kept here: where they are it goes with the pool."""
        for log in self.agent_logs():
            self._nodelog.say(log.host, log.nodes, "agent.log", log.text)
        self._nodelog.close()

    def _note(self, error: SkyError) -> None:
        """A start has failed: keep what tells why, and have the error say where that is."""
        self._keep_agent_logs()
        if self._provider.shares_files or not self._nodelog.hosts:
            return
        if self._nodelog.trouble:
            error.add_note(f"what was said there is not kept: {self._nodelog.trouble}")
            return
        match error:
            case HostError(hosts=hosts) if len(hosts) <= _MOST_NAMED:
                which = ",".join(hosts)
            case HostNotReady(host=host):
                which = host
            case _:
                which = "all"
        command = "skyward-nb" if self._client.program else "%sky"
        error.add_note(f"all that was said there: {command} logs node={which} pool={self.pool_id}")

    def _check_python(self, hello: Hello) -> None:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if hello.python.rpartition(".")[0] != here:
            raise StartError(
                self.spec.name,
                f"its ranks have Python {hello.python}, this notebook {here}: ask for "
                f"python={here}. Code does not travel between minor versions.",
            )

    def _new_generation(
        self, watch: Watch, *, stubborn: bool = False, was_ready: bool = False
    ) -> None:
        """Have ranks forked anew, their namespaces empty; what is not there then, the next run has.

        Other machines are rented before for those that were taken back; where that fails ranks are
        as ready as they were.
        """
        self._ready = False
        if self._replacing is not None and self._replacing.lacking():
            machines = self._generations.machines
            try:
                self._replace(self._replacing, watch)
            except BaseException:
                # Those that are only said to end are there as before.
                are_there = machines is self._generations.machines and not self._replacing.ended
                self._ready = was_ready and are_there
                raise
        self._losses.clear()
        self._unsettled.clear()
        self._path.forget()
        self.ledger.forget()
        self._ready = self._generations.begin(watch, stubborn=stubborn)
        if self._stores is not None and self._replacing is not None:
            self._stores.are_on(self._generations.machines, self._generations.homes)

    # ── machines that are taken back ────────────────────────────────────────────────────

    def _ended(self, link: Link, ended: MachineEnded) -> list[Event]:
        """A machine is no more: what is lost with it, and what the others cost, where the pool goes on."""
        assert self._replacing is not None
        why = str(ended)
        over = self._why_over()
        if over or not self.generation:
            no_other = f", and no other is rented: {over}" if over else ""
            self._gone(f"{spell_ended(link.machine, why)}{no_other}")
        came_of_it: list[Event] = [*self._replacing.has_ended(link, why)]
        if self.bill is not None:
            self.bill = self._replacing.cheaper(self.bill)
            came_of_it.append(Priced(self.bill))
            self._list()
        return came_of_it

    @property
    def notices(self) -> tuple[str, ...]:
        """Which machines whoever rents them out takes back, and when, in words."""
        return tuple(
            f"{link.machine} is taken back at {link.noticed.at} ({link.noticed.action})"
            for link in self._lines.links
            if link.noticed is not None and not link.is_over
        )

    def _why_over(self) -> str:
        """Why the pool gets nothing new any more, in words; empty while it may."""
        left, bill = self._seconds_left, self.bill
        if left is not None and left <= 0:
            return f"its time is over (ttl={self.spec.ttl:g} s)"
        if bill is None or bill.max_cost is None:
            return ""
        now = time.time()
        spent = bill.spent(now) or 0.0
        # Machines end for it a little before, and cost nothing from then on.
        if spent >= bill.max_cost or bill.is_over(now):
            return f"it has cost ${spent:.2f} of max_cost={bill.max_cost:g}"
        return ""

    def _replace(self, replacing: Replacing, watch: Watch) -> None:
        """Have other machines for those that were taken back; raises a `SkyError`, or KeyboardInterrupt."""
        if over := self._why_over():
            raise PoolError(self.spec.name, f"{replacing.lacking_words()} is not replaced: {over}")
        tell, hear = self._telling(watch)

        def lack(lost: tuple[Machine, ...], why: str) -> ReplacementRequest:
            return ReplacementRequest(lost, why, self._seconds_left, self.bill)

        try:
            replacing.replace(self.spec, lack, self._start_agents, tell, hear)
        except AgentGone as gone:
            self._gone(str(gone))
        finally:
            hear(None)
            self._nodelog.close()
            if not self.closed:
                self._list()  # also of what came to nothing there are costs
        if self._stores is not None:
            self._stores.are_on(self._generations.machines, {})

    def _made_whole(
        self, request: RunRequest, watch: Watch
    ) -> tuple[dict[int, RankLost], list[str]]:
        """Replace machines before a run that needs them: the ranks and names that were lost with those."""
        replacing = self._replacing
        if replacing is None or self.closed or self._goings:
            return {}, []
        self._know_who_is_there(watch)
        if not replacing.lacking():
            return {}, []
        if not request.is_work:
            if replacing.ended:
                name = self.spec.name
                raise PoolError(
                    name,
                    f"pool {name!r} is not whole: {replacing.lacking_words()}. The next run rents "
                    "another machine in its place; what ranks had is lost.",
                )
            return {}, []
        with self._beginning_anew() as was_ready:
            if not replacing.lacking():  # another thread has seen to it meanwhile
                self._ready = was_ready
                return {}, []
            lost = {**replacing.losses(), **self._losses}, self.ledger.names_made_on_ranks()
            self._new_generation(watch, was_ready=was_ready)
        return lost

    def _know_who_is_there(self, watch: Watch) -> None:
        """Where a line is cut, wait until it is open again, or its machine is known to have ended."""
        if not self._lines.is_cut:
            return
        with self._turn(), self._lines.interrupts():
            for event in self._lines.pump(watch, None):
                if isinstance(event, RankLost) and event.generation == self.generation:
                    self._miss(event)
                if not self._lines.is_cut:
                    break
            self._look(watch)

    # ── runs ────────────────────────────────────────────────────────────────────────────

    def run(
        self, request: RunRequest, watch: Watch, planned: Callable[[Plan], None] = lambda _: None
    ) -> Outcome:
        """Send what a run needs and have it run; returns however it ended. `planned` hears what is sent.

        What `look` took notice of before is put right first. Raises `PayloadError` before anything
        is sent, `PoolError` when the pool itself is lost.
        """
        outcome = self._run(request, watch, planned)
        # Where ranks have dropped what it was to point at, it goes whole now.
        return self._run(request, watch, planned) if outcome.ran_nothing else outcome

    def _run(self, request: RunRequest, watch: Watch, planned: Callable[[Plan], None]) -> Outcome:
        with contextlib.ExitStack() as calm:
            return self.finish(self.begin(request, watch, planned, calm), watch)

    def begin(
        self,
        request: RunRequest,
        watch: Watch,
        planned: Callable[[Plan], None] = lambda _: None,
        calm: contextlib.ExitStack | None = None,
    ) -> Going:
        """Send what a run needs and let it run; `finish` is to be called, from any thread.

        From then on, while `calm` is open, an interrupt waits for who listens: none comes between.
        Until it is finished nothing else runs on its ranks. Raises what `run` raises before anything is sent,
        and `PoolError` where something runs there, or anywhere if it is a cell, or where no money is left.
        """
        self._check_budget(request)
        losses, names_lost = self._untold
        self._untold = {}, []
        try:
            while True:
                before = self.generation
                lost_now, names_lost_now = self._made_whole(request, watch)
                losses |= lost_now
                names_lost += names_lost_now
                try:
                    return self._begin(request, watch, planned, calm, losses, names_lost)
                except MachineLost as lost:
                    # Nothing has begun: with another machine it goes as it would have.
                    self._notice_end(lost, before, watch)
                if request.call is not None:
                    self._busy()  # others may run beside it, which are to end before
        except BaseException:
            # Whoever begins next is told.
            self._untold[0].update(losses)
            self._untold[1].extend(names_lost)
            raise

    def _begin(
        self,
        request: RunRequest,
        watch: Watch,
        planned: Callable[[Plan], None],
        calm: contextlib.ExitStack | None,
        losses: dict[int, RankLost],
        names_lost: list[str],
    ) -> Going:
        with contextlib.ExitStack() as shortly:
            machines = self._generations.machines
            # Not at the helm: it may take long, and others have something to hear.
            call = shortly.enter_context(self._call_there(request, watch))
            shortly.enter_context(self._helm)
            self._check_room(request)
            losses |= self._losses
            if not self._ready:
                with self._helm.held(), self._lines.interrupts():
                    # Another thread may have seen to it while this one waited.
                    self._check_room(request)
                    if not self._ready:
                        names_lost += self.ledger.names_made_on_ranks()
                        self._new_generation(watch)
            if request.call is not None and machines is not self._generations.machines:
                self._busy()  # what was sent lies on one that is no more
            plan, parcels = self._pack(request, watch, planned)
            (calm or shortly).enter_context(self._lines.interrupts())
            going = self._launch(request, plan, parcels, call, losses, names_lost)
            self._goings[going.run] = going
            if len(self._goings) == 1:
                self._pace.begin()
            else:
                self._lines.nudge()
        return going

    def _notice_end(self, lost: MachineLost, generation: int, watch: Watch) -> None:
        """A machine has ended, as its store said: listen until its ranks are known to be gone, too.

        Raises KeyboardInterrupt; and `lost` where nothing is heard of that for long.
        """
        replacing = self._replacing
        assert replacing is not None
        watch(Phase("a machine has ended: listening for which ranks went with it"))
        is_front = threading.current_thread() is threading.main_thread()
        until = time.monotonic() + max(_NOTICE_LIMIT, _NOTICE_BEATS * self.spec.heartbeat)
        for anew in itertools.chain((True,), itertools.repeat(False)):
            # At the helm only for moments: whoever waits for runs goes on.
            with self._lines.interrupts(anew=anew):
                was_interrupted = self._look_shortly(watch)
            if was_interrupted and is_front:
                raise KeyboardInterrupt
            is_known = bool(replacing.lacking()) and not self._ready
            if is_known or self.closed or self.generation != generation:
                break
            if time.monotonic() > until:
                raise lost
            time.sleep(_NOTICES)
            watch(None)
        watch(Phase(""))

    def finish(self, going: Going, watch: Watch) -> Outcome:
        """Wait for the end of a run that was begun, however it ends; raises `PoolError`."""
        try:
            with self._lines.interrupts(anew=False):
                return self._finish(going, watch)
        finally:
            with self._helm:
                self._goings.pop(going.run, None)
                self._helm.tell()

    def await_any(
        self,
        goings: Collection[Going],
        watch: Callable[[Going, Event | None], None],
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait until one of these runs is over, or `until` says so; raises `PoolError`."""
        with self._lines.interrupts(anew=False):
            self._conduct(goings, watch, until)

    def asking(self) -> contextlib.AbstractContextManager[None]:
        """While inside, code of the user's own runs here, and an interrupt is meant for that."""
        return self._lines.outside()

    def tell(self, command: Command) -> None:
        """Say something to the ranks of a run; from any thread."""
        self._lines.send(command)

    def follow(self, watch: Watch) -> Outcome:
        """Conduct the `unseen` run of a pool that was attached to its end."""
        began = self.unseen
        assert began is not None
        card = began.card
        left = None
        if card.timeout is not None:
            # It may have ended in time, which is told again first.
            left = max(card.began + card.timeout - time.time(), _TOLD_AGAIN)
        with self._helm:
            self.check_free()
            conductor = self._conductor(began.run, began.ranks, left, card)
            # Who was here before may have begun another generation since, as after a death.
            going = Going(began.generation, began.ranks, Plan(), conductor, {}, {}, [], card.limit)
            self._goings[going.run] = going
            why = "never began: whoever began it elsewhere was gone before it was told"
            lacking = [RankLost(began.generation, rank, why) for rank in self._never_begun]
            # Of machines that had ended when it was attached nothing more comes, whatever began since.
            lacking += [
                replace(lost, generation=began.generation)
                for rank, lost in self._losses.items()
                if rank in began.ranks
                and (lost.generation == began.generation or self._has_ended_with_its_machine(rank))
            ]
            for lost in lacking:
                for order in conductor.died(lost, self._pace.now()):
                    self._lines.send(order)
        with self._lines.interrupts():
            """What was meant for something before is forgotten."""
        return self.finish(going, watch)

    def _check_room(self, request: RunRequest) -> None:
        """Raise `PoolError` where something else runs."""
        if self.closed:
            raise self.closed_error()
        if request.call is None or not self._ready:
            self.check_free()
        elif any(set(going.ranks) & set(request.ranks) for going in self._goings.values()):
            self._busy()

    def _check_budget(self, request: RunRequest) -> None:
        """Raise `BudgetSpent` for new work once the pool has cost what it may; names still move."""
        bill = self.bill
        if self.closed or bill is None or bill.max_cost is None or not request.is_work:
            return
        spent = bill.spent(time.time())
        if spent is not None and spent >= bill.max_cost:
            raise BudgetSpent(self.spec.name, spent, bill.max_cost, in_python=self.in_python)

    def closed_error(self) -> PoolError:
        """What to raise for a use of the pool after its end."""
        name = self.spec.name
        if self.over is not None:
            most, spent = self.over
            return BudgetSpent(
                name, spent, most, is_gone=True, how=self.gone, in_python=self.in_python
            )
        return PoolError(name, self._why_closed or f"pool {name!r} is closed")

    @contextlib.contextmanager
    def _turn(self) -> Generator[None]:
        """Nothing else runs, and nobody else listens."""
        self.check_free()
        with self._helm.held():
            self.check_free()
            yield

    @contextlib.contextmanager
    def _beginning_anew(self) -> Generator[bool]:
        """A turn for a new generation, during which nothing else begins; whether ranks were ready."""
        with self._turn(), self._lines.interrupts():
            with self._helm:
                # What another thread was just sending has begun before this, or waits.
                self.check_free()
                was_ready, self._ready = self._ready, False
            yield was_ready

    def _busy(self) -> NoReturn:
        name = self.spec.name
        raise PoolBusy(name, f"pool {name!r} is running another cell; wait, or use pool=other")

    def _launch(
        self,
        request: RunRequest,
        plan: Plan,
        parcels: tuple[Parcel, ...],
        call: Packed | None,
        losses: dict[int, RankLost],
        names_lost: list[str],
    ) -> Going:
        self._runs += 1
        card = request.card
        conductor = self._conductor(self._runs, request.ranks, card.timeout, card)
        self._lines.send(self._command(request, plan, parcels, call))
        self.ledger.sent(plan, request.ranks)
        return Going(
            generation=self.generation,
            ranks=request.ranks,
            plan=plan,
            conductor=conductor,
            namespace=request.namespace,
            lost_before=losses,
            names_lost=names_lost,
            limit=request.limit,
            apart=request.call is not None,
            in_store=_in_store(request.call, plan),
        )

    def _conductor(
        self, run: int, ranks: tuple[int, ...], timeout: float | None, card: RunCard
    ) -> Conductor:
        return Conductor(
            run,
            ranks,
            self.spec.grace + (_WRITING if card.profile else 0),
            everyone=self.ranks,
            waits=card.on_error == "wait",
            timeout_due=None if timeout is None else self._pace.now() + timeout,
        )

    def _finish(self, going: Going, watch: Watch) -> Outcome:
        conductor = going.conductor
        names_lost = going.names_lost
        was_reformed = began_anew = False
        on_reformed = going.generation if self._generations.reformed_in == going.generation else 0
        lost_beside: set[int] = set()
        self._conduct((going,), lambda _, event: watch(event))
        with self._helm:
            is_alone = self._goings.keys() <= {going.run}
            if is_alone:
                self._lines.arrived()
            self.ledger.settle(conductor.done, going.namespace, going.plan)
            if conductor.broken or conductor.torn or conductor.cutting:
                # While others run, that is left to the last of them.
                self._ready = False
                self._unsettled.append(conductor)
        if is_alone and self._unsettled:
            with self._helm.held():
                lost_beside.update(*(each.lost for each in self._unsettled))
                was_reformed, began_anew = self._settle(watch)
                if began_anew:
                    names_lost += self.ledger.names_made_on_ranks()
                    self._new_generation(watch, stubborn=True)
        return Outcome(
            ranks=going.ranks,
            plan=going.plan,
            done=conductor.done,
            lost=conductor.lost,
            failed=conductor.failed,
            killed=frozenset(conductor.killed),
            interrupted=conductor.interrupts > 0,
            lost_before=going.lost_before,
            names_lost=sorted(set(names_lost)),
            limit=going.limit,
            timed_out=conductor.timed_out,
            was_cut=conductor.was_cut,
            was_reformed=was_reformed,
            on_reformed=on_reformed,
            began_anew=began_anew,
            lost_beside=tuple(sorted(lost_beside - conductor.lost.keys())),
            apart=going.apart,
            in_store=going.in_store,
            waited_in=conductor.waited_in,
            stacks=conductor.stacks,
            pool_lost=self.told_once(),
        )

    def _settle(self, watch: Watch) -> tuple[bool, bool]:
        """Put right what runs left behind: whether the group was formed again, whether ranks are to begin anew."""
        is_lacking = self._replacing is not None and bool(self._replacing.lacking())
        if self._losses or is_lacking:
            return False, False  # the next run tells of those, and begins anew
        unsettled, self._unsettled = self._unsettled, []
        is_lost = any(each.broken for each in unsettled) or not all(
            self._generations.all_have_answered(each, watch) for each in unsettled
        )
        is_torn = any(each.torn for each in unsettled)
        was_reformed = is_torn and not is_lost and self._generations.reform(watch)
        self._ready = not is_lost and was_reformed >= is_torn
        return was_reformed, is_lost or was_reformed < is_torn

    def told_once(self) -> tuple[str, ...]:
        """What there is to tell of the pool that this one stands for, of its machines, and of its cost."""
        words, self.instead_of = self.instead_of, ""
        costs = "" if self._warned_of_cost or self.bill is None else self.bill.warning(time.time())
        self._warned_of_cost = self._warned_of_cost or bool(costs)
        of_machines = () if self._replacing is None else self._replacing.words()
        return tuple(each for each in (words, *of_machines, costs) if each)

    def _pack(
        self, request: RunRequest, watch: Watch, planned: Callable[[Plan], None]
    ) -> tuple[Plan, tuple[Parcel, ...]]:
        """What a run sends, stowed where the ranks find it; raises `PayloadError`."""
        told: list[str] = []

        def tell(name: str) -> None:
            told.append(name)
            watch(Phase(f"packing {name}"))

        plan = plan_of(request, self.ledger, tell)
        planned(plan)
        which = ""
        if not self._provider.shares_files and plan.sent_bytes > WARN_FROM:
            which = f": {plan.largest()}"
        text = f"sending {spell_size(plan.sent_bytes)}{which}"
        with self.reaching(), self.stores.telling(text, plan.sent_bytes, watch) as tick:
            parcels = plan.stow(self._store_of(request.ranks), tick)
        if told:
            watch(Phase(""))
        return plan, parcels

    def _store_of(
        self, everyone: tuple[int, ...]
    ) -> Callable[[tuple[int, ...] | None], ContentStore]:
        """What finds the store of ranks of a run; None: of all that it is for."""

        def find(ranks: tuple[int, ...] | None) -> ContentStore:
            return self.stores.of(everyone if ranks is None else ranks)

        return find

    def stow(self, call: Bundle) -> Packed:
        """Keep a call as it is now, until it has run; raises `PayloadError` where there is no room.

        What is asked for with it is as it was then.
        """
        try:
            return self.stores.hold(call)
        except OSError as error:
            raise no_room("the call", "its arguments", error) from error

    def let_go(self, call: Bundle) -> None:
        """A call that was stowed has run, or never will."""
        self.stores.let_go(call)

    @contextlib.contextmanager
    def _call_there(self, request: RunRequest, watch: Watch) -> Generator[Packed | None]:
        """The call of a request where its ranks find it, kept for this long; raises `PayloadError`."""
        call, is_here = request.call, self._provider.shares_files
        if call is None or (request.packed is not None and is_here):
            yield request.packed
            return
        if is_here and not call.is_stowed:
            yield call.stowed(self.store)
            return
        with self._helm:
            self._check_room(request)
        with contextlib.ExitStack() as kept:
            kept.enter_context(self.stores.keeping(call))
            there = self._sent(call, request.ranks, watch)
            for bundle in self._ahead(request):
                kept.enter_context(self.stores.keeping(bundle))
                self._sent(bundle, request.ranks, watch)
            yield there

    def _ahead(self, request: RunRequest) -> list[Bundle]:
        """What a call needs beside its arguments that would keep others from hearing while it is sent."""
        with self._helm:
            if self._provider.shares_files or not self._goings or not self._ready:
                return []
            plan = plan_of(request, self.ledger)
            return [unit.bundle for unit, _ in plan.sending if unit.bundle.is_stowed]

    def _sent(self, call: Bundle, ranks: tuple[int, ...], watch: Watch) -> Packed:
        text = f"sending {spell_size(call.size)} of arguments"
        with self.reaching():
            try:
                with self.stores.telling(text, call.size, watch) as tick:
                    return self.stores.send(call, ranks, tick)
            except OSError as error:
                raise no_room("the call", "its arguments", error) from error
            except Damaged as error:
                raise changed("the call", "its arguments", error) from error

    def bring(self, values: Mapping[int, Packed], watch: Watch) -> None:
        """Bring what ranks sent home here; raises OSError, or `PoolError` where the pool is gone.

        One that cannot be reached is left, so that whoever attaches it later finds what is there.
        """
        size = sum(each.size for each in values.values())
        text = f"gathering {spell_size(size)} of {count_ranks(values)}"
        with self.reaching():
            try:
                with self.stores.telling(text, size, watch) as tick:
                    self.stores.fetch(values, tick)
            except TimeoutError as error:
                self._cut_off(error.strerror or str(error))

    @contextlib.contextmanager
    def reaching(self) -> Generator[None]:
        """While inside, a machine whose agent has ended is the end of the pool: `PoolError`.

        `MachineLost` where that one alone is lost, and the pool goes on.
        """
        try:
            yield
        except AgentGone as gone:
            if isinstance(gone, MachineEnded) and self._replacing is not None:
                name, over = self.spec.name, self._why_over()
                raise MachineLost(name, str(gone), over=over, in_python=self.in_python) from gone
            self._gone("the agent of one of its machines has ended")

    def _command(
        self, request: RunRequest, plan: Plan, parcels: tuple[Parcel, ...], call: Packed | None
    ) -> Run:
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
            call=call,
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
            card=request.card,
            parcels_from=self.ledger.parcels_from,
            path=self._changed_path(request.ranks),
            aside=request.aside,
        )

    def _changed_path(self, ranks: tuple[int, ...]) -> tuple[str, ...]:
        """The notebook's `sys.path`, if ranks do not have it yet and its folders are theirs, too."""
        path = tuple(folder for folder in sys.path if folder)
        if not self._provider.shares_files or not self._path.lacking({_PATH: path}, ranks):
            return ()
        self._path.note({_PATH: path}, ranks)
        return path

    # ── listening ───────────────────────────────────────────────────────────────────────

    def _conduct(
        self,
        goings: Collection[Going],
        watch: Callable[[Going, Event | None], None],
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take part in listening until one of these runs is over, or `until` says so.

        `watch` gets what comes for them, in this thread.
        """
        in_front = threading.current_thread() is threading.main_thread()
        for going in goings:
            going.is_in_front = in_front
        while not (until() or any(going.is_over for going in goings)):
            if self.closed:
                raise self.closed_error()
            if self._helm.take(_FOLLOWS):
                try:
                    self._listen(goings, watch, until)
                finally:
                    self._helm.give()
            else:
                self._take_in(goings, watch)
        self._take_in(goings, watch, ticks=False)

    def _listen(
        self,
        goings: Collection[Going],
        watch: Callable[[Going, Event | None], None],
        until: Callable[[], bool],
    ) -> None:
        """Listen for all runs, at the helm, until one of these is over."""
        first = next(iter(goings))

        def deliver(event: Event | None) -> None:
            if event is not None:
                self._deliver(event, first)
            self._take_in(goings, watch)

        pump = self._lines.pump(deliver, None, self._next_due, interrupts=True)
        for event in pump:
            self._hear(event)
            if isinstance(event, SigInt):
                self._take_in(goings, watch)
            if self.closed or until() or any(going.is_over for going in goings):
                return

    def _next_due(self) -> float | None:
        """When a run that goes on has something to do next."""
        with self._helm:
            dues = [going.conductor.next_due() for going in self._goings.values()]
        return self._pace.real(min((due for due in dues if due is not None), default=None))

    def _deliver(self, event: Event, first: Going) -> None:
        """Give an event to whom it concerns: its run, else its rank's, else all; `first` else."""
        run, rank = getattr(event, "run", 0), getattr(event, "rank", None)
        with self._helm:
            if run in self._goings:
                self._goings[run].inbox.append(event)
                return
            goings = list(self._goings.values())
            if rank is not None and len(goings) > 1:
                goings = [going for going in goings if rank in going.ranks] or [first]
            for going in [first] if run else goings:
                going.inbox.append(event)

    def _take_in(
        self,
        goings: Collection[Going],
        watch: Callable[[Going, Event | None], None],
        *,
        ticks: bool = True,
    ) -> None:
        """Give what has come for runs to their `watch`, or a tick where nothing has."""
        for going in goings:
            some = False
            while going.inbox:
                some = True
                self._pace.stopped(functools.partial(watch, going), going.inbox.popleft())
            if ticks and not some:
                self._pace.stopped(functools.partial(watch, going), None)

    def _hear(self, event: Incoming | None) -> None:
        """Do what follows from what came in, or from the time, for all runs that go on.

        Time passes for a run once all is heard that came until then: where this process was stopped, a
        rank that has ended in time must not seem late.
        """
        now, until = self._pace.now(), self._lines.heard_until()
        if self._pace.is_sample_due():
            self._lines.send(Sample())
        with self._helm:
            goings = list(self._goings.values())
            ended, were_over = False, all(going.is_over for going in goings)
            for going in goings:
                if going.is_over:
                    continue
                if isinstance(event, SigInt) and going.is_in_front:
                    going.interrupts += 1
                orders = self._orders(going, event, now)
                while going.interrupts:
                    going.interrupts -= 1
                    orders += self._interrupted(going, now)
                if until is not None:
                    orders += going.conductor.tick(self._pace.at(until))
                for order in orders:
                    self._lines.send(order)
                ended = ended or going.is_over
            if were_over and isinstance(event, RankLost) and event.generation == self.generation:
                self._miss(event)  # what is over, and not finished yet, has no use for it
            if ended or len(goings) > 1:
                self._helm.tell()

    def _interrupted(self, going: Going, now: float) -> list[Command]:
        """The person, or another thread, interrupts a run."""
        conductor = going.conductor
        if not conductor.interrupts:
            self._leave_if_asked()
        orders = conductor.interrupt(now)
        if conductor.running:
            stopping = count_ranks(conductor.running)
            going.inbox.append(Phase(f"interrupted, waiting for {stopping} to stop"))
        return orders

    def _leave_if_asked(self) -> None:
        """A kernel that is restarted is interrupted first: what runs is not meant by that."""
        if self.is_left_by_interrupt():
            self.leave()
            raise RunLeft

    def _orders(self, going: Going, event: Incoming | None, now: float) -> list[Command]:
        """What follows from what came in."""
        conductor = going.conductor
        match event:
            case RankDone():
                return conductor.finished(event, now)
            case Spread():
                return conductor.spread(event)
            case WasCut():
                return conductor.cut(event)
            case Stopping():
                conductor.stopping(event, now)
            case Stack():
                conductor.told(event, now)
            case RankLost(generation=generation) if generation == going.generation:
                if going.apart and event.rank not in going.ranks:
                    self._miss(event)
                    return []
                return conductor.died(event, now)
            case RankLost(generation=generation) if generation == self.generation:
                self._miss(event)
                if event.rank in going.ranks and self._has_ended_with_its_machine(event.rank):
                    return conductor.died(replace(event, generation=going.generation), now)
            case _:
                pass
        return []

    def _has_ended_with_its_machine(self, rank: int) -> bool:
        """Whether nothing more comes of a rank, of whatever generation."""
        return self._replacing is not None and rank in self._replacing.ended_ranks()

    def look(self, watch: Watch) -> dict[int, RankLost]:
        """Take notice of what happened between cells; the ranks that are gone.

        Raises `PoolError` when the pool is.
        """
        if self.closed:
            raise self.closed_error()
        if not self._goings:
            self._look_shortly(watch)
        return self._losses

    def _look_shortly(self, watch: Watch) -> bool:
        """Take notice of what has come, unless somebody listens; whether there was an interrupt."""
        if not self._helm.take(0):
            return False
        try:
            return self._look(watch)
        finally:
            self._helm.give()

    def _look(self, watch: Watch) -> bool:
        """Take notice of what has come, for runs, too; whether there was an interrupt."""
        was_interrupted = False
        while (event := self._lines.next(0)) is not None:
            was_interrupted |= isinstance(event, SigInt)
            with self._helm:
                goings = list(self._goings.values())
            if goings:  # begun just now, by another thread
                if not isinstance(event, SigInt):
                    self._deliver(event, goings[0])
                self._hear(event)
                continue
            if isinstance(event, RankLost) and event.generation == self.generation:
                self._miss(event)
            if not isinstance(event, SigInt):
                watch(event)
        self._lines.keep_up(watch)
        if self._goings:
            self._hear(None)
        return was_interrupted

    def _miss(self, event: RankLost) -> None:
        """A rank is gone that runs nothing, or what another waits for."""
        self._ready = False
        self.pids.pop(event.rank, None)
        conductors = [going.conductor for going in self._goings.values()]
        if not any(event.rank in {*each.running, *each.lost} for each in conductors):
            self._losses[event.rank] = event

    def _cut_off(self, why: str) -> NoReturn:
        """The person will not wait for a machine that cannot be reached."""
        self.is_cut_off = True
        self._leave_for(
            f"pool {self.spec.name!r} cannot be reached: {why}. What runs there goes on for "
            f"{self.spec.idle:g} s without us: `%sky attach` brings it back, `%sky down` gives it up."
        )

    def _refused(self, who: str) -> NoReturn:
        """Somebody else conducts this pool, or has since we were cut off."""
        name = self.spec.name
        if self.generation:
            self._leave_for(
                f"pool {name!r} was taken over by {who} while it could not be reached from here: "
                "`%sky attach` brings it back once that is done, or take another with pool=NAME"
            )
        self._leave_for(
            f"pool {name!r} is in use by {who}: end it there, or take another with pool=NAME"
        )

    def _leave_for(self, why: str) -> NoReturn:
        self._why_closed = why
        self.leave()
        raise PoolError(self.spec.name, why)

    def _gone(self, why: str) -> NoReturn:
        name = self.spec.name
        names = ", ".join(self._ledger.names_made_on_ranks()) if self._ledger else ""
        lost = f"; lost with it: {names}" if names else ""
        if not self.closed:
            self._keep_agent_logs()
        now, bill = time.time(), self.bill
        if not self.closed and bill is not None and bill.max_cost is not None and bill.is_over(now):
            self.over = bill.max_cost, bill.spent(now) or 0.0
            why = f"max_cost={bill.max_cost:g} is spent, and its machines end then ({why})"
        self.gone = self.gone or f"pool {name!r} is gone: {why}{lost}"
        self._why_closed = f"{self.gone}. The next run makes a new one."
        self.close()
        raise self.closed_error()


def _in_store(call: Bundle | None, plan: Plan) -> frozenset[str]:
    """Digests of what a run finds in the store."""
    bundles = [*([call] if call else []), *(unit.bundle for unit, _ in plan.sending)]
    return frozenset(bundle.digest for bundle in bundles if bundle.is_stowed)
