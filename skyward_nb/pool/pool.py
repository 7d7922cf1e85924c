"""A set of ranks that live between runs: start it, run cells on it, close it.

`PoolState` decides, `Driver` listens and carries that out; each other part does one thing.
"""

from __future__ import annotations

import contextlib

from skyward_nb.names.ledger import Ledger, SourceFinder
from skyward_nb.pool.closing import Closing
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.driver import Driver
from skyward_nb.pool.installing import PoolChange
from skyward_nb.pool.lifecycle import Lifecycle
from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.outcome import ActiveRun, RunObserver, RunOutcome, RunRequest, run_whole
from skyward_nb.pool.registry import PoolEntry
from skyward_nb.pool.renewal import Renewal
from skyward_nb.pool.resuming import Resuming
from skyward_nb.pool.run_executor import RunExecutor
from skyward_nb.pool.sending import Sending
from skyward_nb.protocol.events import RankLost
from skyward_nb.providers.provider_protocol import Provider
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec


class Pool:
    """Ranks that live between runs; several calls may run at once, each on its own ranks.

    `watch` gets the events of a run, and None when a tick of time has passed.
    """

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
        context = PoolContext(spec, provider, pool_id, notebook, program)
        self.context: PoolContext = context
        self.lines: Lines = context.lines
        self.pool_id: str = context.pool_id
        self.closing: Closing = Closing(context)
        self.driver: Driver = Driver(context, self.closing)
        self.sending: Sending = Sending(context, self.closing, self.driver)
        resuming = Resuming(context)
        self.renewal: Renewal = Renewal(context, self.closing, self.driver, self.sending, resuming)
        self.runs: RunExecutor = RunExecutor(
            context, self.driver, self.sending, self.renewal, resuming
        )
        self.lifecycle: Lifecycle = Lifecycle(
            context, self.closing, self.renewal, self.runs, sources
        )

    # ── properties ──────────────────────────────────────────────────────────────────────

    @property
    def spec(self) -> PoolSpec:
        """Its options."""
        return self.context.spec

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, in order."""
        return self.context.state.ranks

    @property
    def infos(self) -> tuple[InstanceInfo, ...]:
        """The places of the ranks."""
        return self.context.generations.infos

    @property
    def pids(self) -> dict[int, int]:
        """The process ids of the ranks that live."""
        return self.context.state.pids

    @property
    def generation(self) -> int:
        """The number of the present generation."""
        return self.context.state.generation

    @property
    def is_ready(self) -> bool:
        """Whether all ranks live, as far as is known."""
        return self.context.state.is_ready

    @property
    def closed(self) -> bool:
        """Whether it was closed or left."""
        return self.context.state.has_ended

    @property
    def ledger(self) -> Ledger:
        """What the ranks have; raises `PoolError` before the pool has started."""
        return self.context.ledger

    @property
    def store(self) -> ContentStore:
        """The content stores of all machines as one."""
        return self.context.stores.all

    @property
    def bill(self) -> Bill | None:
        """The cost of its machines."""
        return self.context.bill

    @property
    def entry(self) -> PoolEntry:
        """Its entry in the registry, by which other processes find it."""
        return self.context.entry

    # ── life ────────────────────────────────────────────────────────────────────────────

    def start(self, watch: Watch) -> None:
        """Start the pool; raises a `SkyError`, or KeyboardInterrupt, and then leaves nothing behind."""
        self.lifecycle.start(watch)

    def attach(self, watch: Watch) -> None:
        """Take over a pool that another process has left alive; raises `PoolError`."""
        self.lifecycle.attach(watch)

    def restart(self, watch: Watch) -> None:
        """Begin a new generation: ranks forked anew, their namespaces empty."""
        self.renewal.restart(watch)

    def become(self, spec: PoolSpec, watch: Watch) -> PoolChange:
        """Change its frameworks and packages; what came of it. Raises what `start` raises, and is unchanged then."""
        return self.lifecycle.become(spec, watch)

    def leave(self) -> None:
        """Disconnect, and let the pool live on for its `idle` time."""
        self.closing.leave()

    def close(self, *, for_good: bool = False, image: str = "") -> None:
        """End ranks and agents and remove their files; interrupts do not stop that.

        With `for_good`, machines end that would be stopped for a later pool (`warm=`). An `image` of this name is made of
        the head's machine.
        """
        self.closing.close(for_good=for_good, image=image)

    # ── runs ────────────────────────────────────────────────────────────────────────────

    def look(self, watch: Watch, patience: float = 0.0) -> dict[int, RankLost]:
        """Handle the events since the last run; the ranks that are lost. Raises `PoolError`."""
        return self.driver.look(watch, patience)

    def run(self, request: RunRequest, watch: RunObserver) -> RunOutcome:
        """Execute a run; returns however it ended.

        Lost ranks are replaced first. Raises `PayloadError` before anything is sent, and `PoolError` if
        the pool itself is lost.
        """
        return run_whole(
            lambda calm: self.begin(request, watch, calm), lambda run: self.finish(run, watch)
        )

    def begin(
        self, request: RunRequest, watch: RunObserver, calm: contextlib.ExitStack | None = None
    ) -> ActiveRun:
        """Send a run to its ranks; `finish` must be called, from any thread.

        From then on, while `calm` is open, SIGINT is queued for the listener, not raised. Until the run is
        finished, nothing else runs on its ranks. Raises what `run` raises, and `PoolError` if a run goes
        on there (for a cell: anywhere), or if no money is left.
        """
        return self.runs.begin(request, watch, calm)

    def finish(self, run: ActiveRun, watch: Watch) -> RunOutcome:
        """Wait for the end of a run that was begun, however it ends; raises `PoolError`."""
        return self.runs.finish(run, watch)

    def interrupt(self, run: int | None = None) -> None:
        """Interrupt the run of a number, or all that go on; from any thread."""
        self.driver.interrupt(run)

    def clean(self, outcome: RunOutcome | None = None) -> None:
        """Drop results that were fetched, and old values if room is short."""
        self.sending.clean(outcome)

    def seen(self) -> None:
        """Have agents know, with the next command, that all of the last run was shown and bound."""
        self.runs.seen()
