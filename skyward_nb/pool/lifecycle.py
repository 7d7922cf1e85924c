"""The ways to bring up a pool: start it, attach it, ready it for other frameworks."""

from __future__ import annotations

import contextlib
import sys
import time

from msgspec.structs import replace

from skyward_nb.names.ledger import Ledger, SourceFinder
from skyward_nb.plugins.plugin_table import check_installed, uses_of
from skyward_nb.pool import installing, registry
from skyward_nb.pool.client_names import spell_client
from skyward_nb.pool.closing import Closing
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.generations import unseen_of
from skyward_nb.pool.installing import InstalledPackages, PoolChange
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.link import Link
from skyward_nb.pool.renewal import Renewal
from skyward_nb.pool.run_executor import RunExecutor
from skyward_nb.pool.state import Incoming
from skyward_nb.protocol.commands import PluginUse
from skyward_nb.protocol.events import Event, Hello, Phase, RankLost, Remark, Step
from skyward_nb.protocol.message_parts import FIRST_CLIENT, Client
from skyward_nb.providers.provider_protocol import AgentGone, MachineEnded, MachinesEnded, Tell
from skyward_nb.words.errors import (
    HostError,
    HostNotReady,
    PoolError,
    SkyError,
    StartError,
    TakenBack,
)
from skyward_nb.words.spec import PoolSpec

_CONNECT_LIMIT = 60.0
_MOST_NAMED = 4


class Lifecycle:
    """Brings up a pool, or leaves nothing behind; `Closing` ends it."""

    def __init__(
        self,
        context: PoolContext,
        closing: Closing,
        renewal: Renewal,
        runs: RunExecutor,
        sources: SourceFinder,
    ) -> None:
        self._context = context
        self._closing = closing
        self._renewal = renewal
        self._runs = runs
        self._sources = sources
        self.forked_by_other: str = ""
        """In words, who had the ranks of an attached pool begin anew, if that was neither this client nor its notebook."""
        self.found_used: frozenset[int] = frozenset()
        """Processes of an attached pool's ranks in which code of a person had run."""

    def start(self, watch: Watch) -> None:
        """Start the pool; raises a `SkyError`, or KeyboardInterrupt, and then leaves nothing behind."""
        context = self._context
        self._check(context.spec, context.plugins)
        try:
            try:
                with context.lines.interrupts():
                    self._connect(watch)
                    self._renewal.begin(watch, keeps=context.spec.resume)
                self._runs.probe(watch)
                self._resume(watch)
            except AgentGone as gone:
                idle = f"no client came for {max(context.spec.idle, FIRST_CLIENT):g} s"
                why = f"its agents ended before they were reached: {idle}"
                why = str(gone) if isinstance(gone, MachinesEnded) else why
                raise StartError(context.spec.name, why) from gone
            context.nodelog.close()
        except BaseException as error:
            with contextlib.closing(context.nodelog):
                try:
                    if isinstance(error, SkyError):
                        self._note(error)
                finally:
                    self._closing.close(is_lost=True)
            raise

    def _resume(self, watch: Watch) -> None:
        """Give the first ranks names of a checkpoint; where that cannot be, the pool stays, and its first cell says why.

        Code that calls functions would not see that: there it is an error.
        """
        try:
            self._runs.resume(watch)
        except PoolError as error:
            # A pool that was lost, or taken back, has an error of its own kind.
            context = self._context
            if type(error) is not PoolError or context.state.has_ended or context.in_python:
                raise
            watch(Phase(""))
            watch(Remark(error.message))

    def become(self, spec: PoolSpec, watch: Watch) -> PoolChange:
        """Begin a new generation with the frameworks and the packages of `spec`; what came of it.

        Packages are installed first, while the ranks are as they were. Ranks that have run something keep
        their processes and names where nothing was, and they can enter the frameworks that are added. Raises
        what `start` raises; the pool then keeps its spec.
        """
        context, state = self._context, self._context.state
        before = context.spec, context.plugins
        plugins = uses_of(spec)
        self._check(spec, plugins)
        added = frozenset(use.name for use in plugins if use not in before[1])
        only_adds = all(use in plugins for use in before[1])
        installed, lost, is_whole = InstalledPackages(), list[str](), False
        begins = ended = False

        def end_present() -> None:
            nonlocal lost, ended
            lost, ended = context.ledger.only_on_ranks(), True
            installing.use(context, installed)

        try:
            with self._renewal.beginning_anew() as was_ready:
                is_whole = was_ready
                if installing.is_needed(context, spec):
                    installed = installing.install(context, spec, watch)
                is_as_it_was = plugins == before[1] and not installed.environments
                is_whole = was_ready and is_as_it_was
                context.becomes(spec, plugins)
                goes_on = was_ready and only_adds and state.last_run > 0
                if is_whole or (
                    goes_on
                    and not installed.environments
                    and context.generations.reform(watch, added)
                ):
                    state.has_begun(is_whole=True)
                else:
                    begins = True
                    self._renewal.begin(
                        watch,
                        was_ready=was_ready,
                        resumes=self._runs.had_names,
                        end_present=end_present,
                    )
        except BaseException as error:
            if context.spec is not before[0]:
                context.becomes(*before)
            if ended:
                installing.use_earlier(context, installed)
                for words in installing.unused_words(spec, before[0]):
                    error.add_note(words)
            if not begins:
                state.has_begun(is_whole=is_whole)
            for words in installing.lost_words(lost):
                error.add_note(words)
            raise
        context.enter_in_registry()
        return PoolChange(installed, tuple(lost))

    def attach(self, watch: Watch) -> None:
        """Take over a pool that another process has left alive; the caller follows its `unseen` run.

        Machines that have ended meanwhile are replaced, if the pool does that. Raises `PoolError` if the
        pool is gone, or another client conducts it.
        """
        context, name = self._context, self._context.spec.name
        may_lack = self._renewal.replacing is not None
        try:
            context.generations.machines = context.provider.find(context.spec, context.pool_id)
            with context.lines.interrupts():
                hellos, ended = self._greet(watch, may_lack=may_lack)
        except AgentGone as gone:
            self._closing.leave()
            # Other machines may live: the pool's entry is removed when none does.
            registry.condition(context.entry)
            if isinstance(gone, MachinesEnded):
                raise TakenBack(name, str(gone), context.pool_id, gone.left) from None
            raise PoolError(name, f"pool {name!r} is gone: its agent has ended") from None
        except OSError as error:
            self._closing.leave()
            if context.provider.shares_files and isinstance(error, ConnectionRefusedError):
                # On this machine, an agent that does not listen is about to end.
                raise PoolError(name, f"pool {name!r} is gone: its agent has ended") from None
            why = error.strerror or str(error) or type(error).__name__
            raise PoolError(
                name,
                f"pool {name!r} cannot be reached now: {why}. It lives on until nobody has been "
                f"there for {context.spec.idle:g} s: try again.",
            ) from error
        except BaseException:
            self._closing.leave()
            raise
        state, first = context.state, max(hellos, key=lambda hello: hello.generation)
        if first.generation > 1 and first.forked_by and not self._is_ours(first.forked_by):
            self.forked_by_other = spell_client(first.forked_by)
        state.last_run = max(hello.runs for hello in hellos)
        self.found_used = frozenset(
            pid for each in hellos if each.used for pid in each.pids.values()
        )
        context.ledger.adopt(state.last_run)
        state.has_begun(is_whole=context.generations.adopt(hellos))
        self._runs.attached(*unseen_of(hellos))
        self._conduct()
        for link, why in ended.items():
            for event in self._renewal.machine_ended(link, why):
                if isinstance(event, RankLost):
                    state.handle(event, context.run_clock.now())
                else:
                    watch(event)

    def _conduct(self) -> None:
        """Have others know that this process is the pool's client."""
        registry.conducted(self._context.entry, self._context.known_client)
        if (replacing := self._renewal.replacing) is not None:
            replacing.conducted()
        self._becomes_client()

    def _becomes_client(self) -> None:
        """From now on others take this process for the pool's client, and are told when it leaves."""
        if (replacing := self._renewal.replacing) is not None:
            self._closing.on_leave = replacing.left

    def _is_ours(self, client: Client) -> bool:
        """Whether it is this process, or a kernel of the same notebook."""
        own = self._context.client
        is_notebooks = bool(own.notebook) and not own.program and not client.program
        same = (client.pid, client.host, client.since) == (own.pid, own.host, own.since)
        return same or (is_notebooks and client.notebook == own.notebook)

    def _check(self, spec: PoolSpec, plugins: tuple[PluginUse, ...]) -> None:
        """Raise what prevents a pool of this spec; remote machines have their own packages."""
        if self._context.provider.shares_files:
            for use in plugins:
                check_installed(use)
        self._context.provider.check(spec)

    # ── machines and agents ─────────────────────────────────────────────────────────────

    def _connect(self, watch: Watch) -> None:
        context = self._context
        tell, hear = context.telling(watch)
        try:
            context.lines.wait_for(
                self._acquire(tell), hear, f"the start of pool {context.spec.name}"
            )
        finally:
            hear(None)
        machines = context.generations.machines
        if context.spec.ssh is not None:
            access = context.spec.ssh.living_on([machine.name for machine in machines])
            context.spec = replace(context.spec, ssh=access)
        for machine in machines:
            watch(Step(machine.nodes, "agent"))
        # Before the agents start: if this process is killed meanwhile, others find them, and end them.
        context.enter_in_registry()
        self._becomes_client()
        context.lines.wait_for(self._renewal.start_agents(machines), watch)
        self._greet(watch)
        for machine in machines:
            watch(Step(machine.nodes, "agent", done=True))

    async def _acquire(self, tell: Tell) -> None:
        """Get the machines; stored here, so that an interrupt cannot lose them between two threads."""
        context = self._context
        found = await context.provider.acquire(context.spec, context.pool_id, tell)
        context.generations.machines = found

    def _greet(
        self, watch: Watch, *, may_lack: bool = False
    ) -> tuple[list[Hello], dict[Link, MachineEnded]]:
        """Open the lines: the agents' greetings, and, if the pool `may_lack` some, the machines that ended."""
        context, spec, lines = self._context, self._context.spec, self._context.lines
        machines = context.generations.machines
        ended = lines.open_all(machines, spec.slots, watch, may_lack=may_lack)
        context.known_ledger = Ledger(spec.world_size, self._sources, spec.image.includes)
        # Events before the last greeting are for the next reader.
        early: list[Incoming] = []

        def told(event: Event | None) -> None:
            watch(event if isinstance(event, Phase) else None)

        for event in lines.pump(told, time.monotonic() + _CONNECT_LIMIT):
            if isinstance(event, Hello):
                # An agent whose line was cut meanwhile greets twice.
                hellos = [link.greeting for link in lines.links if link.greeting]
                for hello in hellos:
                    self._check_python(hello)
                if len(hellos) == len(lines.links) - len(ended):
                    lines.put_back(early)
                    return hellos, ended
            elif event is not None:
                early.append(event)
        raise StartError(spec.name, f"its agent did not answer in {_CONNECT_LIMIT:g} s")

    def _check_python(self, hello: Hello) -> None:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if hello.python.rpartition(".")[0] != here:
            raise StartError(
                self._context.spec.name,
                f"its ranks have Python {hello.python}, this notebook {here}: ask for "
                f"python={here}. Code does not travel between minor versions.",
            )

    def _note(self, error: SkyError) -> None:
        """Keep the logs of a failed start, and have the error name the command that shows them."""
        context = self._context
        context.keep_agent_logs()
        if context.provider.shares_files or not context.nodelog.hosts:
            return
        if context.nodelog.trouble:
            error.add_note(f"what was said there is not kept: {context.nodelog.trouble}")
            return
        match error:
            case HostError(hosts=hosts) if len(hosts) <= _MOST_NAMED:
                which = ",".join(hosts)
            case HostNotReady(host=host):
                which = host
            case _:
                which = "all"
        command = "skyward-nb" if context.client.program else "%sky"
        error.add_note(
            f"all that was said there: {command} logs node={which} pool={context.pool_id}"
        )
