"""A set of ranks that live between runs: start it, run cells on it, close it.

`PoolState` decides, `Driver` listens and does what that says; each of the other parts does one thing.
"""

from __future__ import annotations

import contextlib

from skyward_nb.names.ledger import Ledger, SourceFinder
from skyward_nb.pool.closing import Closing
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.driver import Driver
from skyward_nb.pool.lifecycle import Lifecycle
from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.outcome import RunObserver, RunOutcome, RunRequest
from skyward_nb.pool.registry import PoolEntry
from skyward_nb.pool.renewal import Renewal
from skyward_nb.pool.run import ActiveRun
from skyward_nb.pool.run_executor import RunExecutor
from skyward_nb.pool.sending import Sending
from skyward_nb.protocol.commands import RunSeen
from skyward_nb.protocol.events import RankLost
from skyward_nb.providers.base import Provider
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec


class Pool:
    """Ranks that live between runs, of which several go on at once on ranks of their own.

    Whoever waits for a run gets its events through `watch`, and `watch(None)` when a tick of time has
    passed.
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
        self.renewal: Renewal = Renewal(context, self.closing, self.driver, self.sending)
        self.runs: RunExecutor = RunExecutor(context, self.driver, self.sending, self.renewal)
        self.lifecycle: Lifecycle = Lifecycle(
            context, self.closing, self.renewal, self.runs, sources
        )

    # ── what it is ──────────────────────────────────────────────────────────────────────

    @property
    def spec(self) -> PoolSpec:
        """What was asked for."""
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
        """The processes of the ranks that are there."""
        return self.context.state.pids

    @property
    def generation(self) -> int:
        """The number of the generation that there is."""
        return self.context.state.generation

    @property
    def is_ready(self) -> bool:
        """Whether all ranks are there, as far as is known."""
        return self.context.state.is_ready

    @property
    def closed(self) -> bool:
        """Whether it was closed or left."""
        return self.context.state.has_ended

    @property
    def next_run(self) -> int:
        """The number that the next run will have, or the one after a first try of it."""
        return self.context.state.last_run + 1

    @property
    def ledger(self) -> Ledger:
        """What the ranks have; there is one once the pool has started."""
        return self.context.ledger

    @property
    def store(self) -> ContentStore:
        """The content stores of all machines as one, where ranks put large values."""
        return self.context.stores.all

    @property
    def bill(self) -> Bill | None:
        """What its machines cost."""
        return self.context.bill

    @property
    def entry(self) -> PoolEntry:
        """How other processes find it."""
        return self.context.entry

    # ── life ────────────────────────────────────────────────────────────────────────────

    def start(self, watch: Watch) -> None:
        """Bring the pool up; raises a `SkyError`, or KeyboardInterrupt, with nothing left behind."""
        self.lifecycle.start(watch)

    def attach(self, watch: Watch) -> None:
        """Go on with a pool that another process has left alive; raises `PoolError`."""
        self.lifecycle.attach(watch)

    def restart(self, watch: Watch) -> None:
        """Begin a new generation: ranks forked anew, their namespaces empty."""
        self.renewal.restart(watch)

    def become(self, spec: PoolSpec, watch: Watch) -> list[str]:
        """Go on with other frameworks; the names that were lost on ranks. Raises what `start` raises."""
        return self.lifecycle.become(spec, watch)

    def leave(self) -> None:
        """Hang up, and let the pool live on for its lease."""
        self.closing.leave()

    def close(self) -> None:
        """End ranks and agents and remove their files; returns when all is gone, interrupted or not."""
        self.closing.close()

    # ── runs ────────────────────────────────────────────────────────────────────────────

    def look(self, watch: Watch) -> dict[int, RankLost]:
        """Take notice of what happened between runs: the ranks that are gone. Raises `PoolError`."""
        return self.driver.look(watch)

    def run(self, request: RunRequest, watch: RunObserver) -> RunOutcome:
        """Send what a run needs and have it run; returns however it ended.

        What `look` took notice of before is put right first. Raises `PayloadError` before anything
        is sent, `PoolError` when the pool itself is lost.
        """
        return self.runs.run(request, watch)

    def begin(
        self,
        request: RunRequest,
        watch: RunObserver,
        calm: contextlib.ExitStack | None = None,
    ) -> ActiveRun:
        """Send what a run needs and let it run; `finish` is to be called, from any thread.

        From then on, while `calm` is open, an interrupt waits for who listens: none comes between.
        Until it is finished nothing else runs on its ranks. Raises what `run` raises before anything is sent,
        and `PoolError` where something runs there, or anywhere if it is a cell, or where no money is left.
        """
        return self.runs.begin(request, watch, calm)

    def finish(self, run: ActiveRun, watch: Watch) -> RunOutcome:
        """Wait for the end of a run that was begun, however it ends; raises `PoolError`."""
        return self.runs.finish(run, watch)

    def interrupt(self, run: int | None = None) -> None:
        """Interrupt the run of a number, or all that go on; from any thread."""
        self.driver.interrupt(run)

    def clean(self, outcome: RunOutcome | None = None) -> None:
        """Drop results that were fetched, and of older values those beyond the spare room."""
        self.sending.clean(outcome)

    def seen(self) -> None:
        """All of the last run has been shown and bound: agents hear it with what is said next."""
        state = self.context.state
        with self.context.lock:
            for link in self.lines.links if not state.runs else ():  # of those nobody has seen all
                if link.offset is not None:
                    link.send_later(RunSeen(state.last_run, link.offset))
