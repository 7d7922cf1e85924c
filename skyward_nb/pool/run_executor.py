"""Runs of a pool: begun, or followed from their middle, then waited for and finished."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection

from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.driver import Driver, RunWatch
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.outcome import ActiveRun, RunObserver, RunOutcome, RunRequest
from skyward_nb.pool.renewal import Lost, Renewal
from skyward_nb.pool.resuming import Resuming
from skyward_nb.pool.run_state import PATIENCE, RunState
from skyward_nb.pool.sending import Sending, digests_in_store
from skyward_nb.pool.state import Remedy, Send
from skyward_nb.protocol.commands import RunSeen
from skyward_nb.protocol.events import Event, Phase, RankLost, RunBegan
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.words.errors import MachineLost
from skyward_nb.words.frameworks import with_what_they_need
from skyward_nb.workdir.working_folder import WorkingFolder, attached_folder

_WRITING = 10.0
"""Seconds that ranks have to write what they recorded of a run that is stopped."""
_TICK = 0.1
_NOTICE_LIMIT, _NOTICE_BEATS = 60.0, 5
"""Seconds in which the end of a machine is noticed, or so many heartbeats, if that is longer."""
_TOLD_AGAIN = 5.0
"""Seconds in which all events of a run that the agent has kept have surely come."""


class RunExecutor:
    """Executes runs: lost ranks and machines are replaced before a run, and broken groups repaired after it."""

    def __init__(
        self,
        context: PoolContext,
        driver: Driver,
        sending: Sending,
        renewal: Renewal,
        resuming: Resuming,
    ) -> None:
        self._context = context
        self._state = context.state
        self._driver = driver
        self._sending = sending
        self._renewal = renewal
        self._resuming = resuming
        self._untold: Lost = {}, []
        """The losses before a run that could not begin: the next run reports them."""
        self._warned_of_cost = False
        self.instead_of: str = ""
        """The end of the pool that this one replaces, in words: the next run reports it."""
        self.unseen: RunBegan | None = None
        """The run that went on, or whose end no client had seen, when this pool was attached."""
        self.never_begun: tuple[int, ...] = ()
        """Ranks of that run which never got its command."""

    # ── begun ───────────────────────────────────────────────────────────────────────────

    def begin(
        self, request: RunRequest, watch: RunObserver, calm: contextlib.ExitStack | None = None
    ) -> ActiveRun:
        """Send what a run needs and let it run; see `Pool.begin`."""
        if request.is_work:  # names still move
            self._context.check_budget()
        losses, names_lost = self._untold
        self._untold = {}, []
        try:
            while True:
                before = self._state.generation
                if request.call is None and request.is_work and self._resuming.is_to_keep:
                    with self._driver.turn(), self._context.lines.interrupts():
                        was_interrupted = self._resuming.keep(watch)
                    if was_interrupted:
                        raise KeyboardInterrupt
                lost_now, names_lost_now = self._renewal.made_whole(request, watch)
                losses |= lost_now
                names_lost += names_lost_now
                if request.call is not None and self._driver.owes_interrupt:
                    raise KeyboardInterrupt  # nothing has begun, and its value would be lost
                try:
                    run = self._begin(request, watch, calm, (losses, names_lost))
                    if run is not None:
                        return run
                    given = self.resume(watch)
                    names_lost[:] = [name for name in names_lost if name not in given]
                    continue
                except MachineLost as lost:
                    # Nothing has begun: the run can begin as soon as there is another machine.
                    self._notice_end(lost, before, watch)
                if request.call is not None:
                    self._driver.busy()  # calls that run beside it must end first
        except BaseException:
            # The next run reports them.
            self._untold[0].update(losses)
            self._untold[1].extend(names_lost)
            raise

    def _begin(
        self, request: RunRequest, watch: RunObserver, calm: contextlib.ExitStack | None, lost: Lost
    ) -> ActiveRun | None:
        """Send what a run needs and let it run; None if ranks are to have names of a checkpoint first."""
        context, sending, state = self._context, self._sending, self._state
        losses, names_lost = lost
        with contextlib.ExitStack() as shortly:
            machines = context.generations.machines
            # Without the lock: it may take long, and other threads must hear events.
            call = shortly.enter_context(sending.call_there(request, watch))
            shortly.enter_context(context.lock)
            sending.check_room(request)
            losses |= state.losses
            if not state.is_ready:
                with context.lock.turn(), context.lines.interrupts():
                    # Another thread may have begun anew while this one waited.
                    sending.check_room(request)
                    if not state.is_ready:
                        names_lost += context.ledger.only_on_ranks()
                        self._renewal.begin(watch, keeps=True)
            if self._resuming.is_due and request.is_work:
                if state.runs:
                    self._driver.busy()  # calls that began before these ranks were due
                return None
            if request.call is not None and machines is not context.generations.machines:
                self._driver.busy()  # the call was sent to a machine that has ended
            plan, parcels = sending.pack(request, watch)
            limit = request.limit or sending.result_limit(len(request.ranks))
            if request.call is None:
                self._driver.forget_interrupts()
            (calm or shortly).enter_context(context.lines.interrupts(anew=False))
            state.last_run += 1
            card = request.card
            run = ActiveRun(
                state=self._state_of(
                    state.last_run,
                    request.ranks,
                    state.generation,
                    card,
                    card.timeout,
                    is_call=request.call is not None,
                ),
                plan=plan,
                namespace=request.namespace,
                names=request.cell.names if request.cell else None,
                lost_before=losses,
                names_lost=names_lost,
                limit=limit,
                in_store=digests_in_store(request.call, plan),
                folder=request.folder,
                fewest=request.fewest,
                is_work=request.is_work,
            )
            if request.is_work:
                self._resuming.last_work = run.number
            context.lines.send(sending.command(request, plan, parcels, call, limit))
            context.ledger.sent(plan, request.ranks, run.number)
            self._driver.add(run)
        return run

    @property
    def begins_alone(self) -> bool:
        """Whether nothing may run as the next run begins: ranks are begun anew, or get names of a checkpoint, first."""
        return not self._state.is_ready or self._resuming.is_due

    @property
    def had_names(self) -> bool:
        """Whether the ranks may have had names: of a run, of a checkpoint, or of another client."""
        is_known = self._resuming.last_work > 0 or self._context.spec.resume
        return is_known or self._resuming.may_have_names

    def resume(self, watch: Watch) -> frozenset[str]:
        """Give ranks that were begun anew the names of a checkpoint, if they are due; which. Raises `PoolError`."""
        if not self._resuming.is_due:
            return frozenset()
        watch(Phase("taking the names of a checkpoint"))
        given = self._resuming.resume(self._asking(watch))
        watch(Phase(""))
        return given

    def attached(self, unseen: RunBegan | None, never_begun: tuple[int, ...]) -> None:
        """Note the run of an attached pool whose end no client has seen, and the ranks that never got its command."""
        self.unseen, self.never_begun = unseen, never_begun
        if unseen is None or unseen.generation < self._state.generation or unseen.aside:
            self._resuming.attached()

    def probe(self, watch: Watch) -> None:
        """Have the ranks of a new pool try the place of checkpoints; what is wrong with it is told."""
        self._resuming.probe(self._asking(watch))

    def _asking(self, watch: Watch) -> Callable[[RunRequest], RunOutcome]:
        """What runs a question, and leaves what there is to tell to the next run."""

        def tick(event: object) -> None:
            watch(event if isinstance(event, Phase) else None)

        def ask(request: RunRequest) -> RunOutcome:
            with contextlib.ExitStack() as calm:
                outcome = self.finish(self.begin(request, tick, calm), tick)
            self._resuming.tell_later(outcome.pool_lost)
            self.seen()  # else a client that attaches would show it, and wait for its end
            return outcome

        return ask

    def seen(self) -> None:
        """Have agents know, with the next command, that all of the last run was shown and bound."""
        with self._context.lock:
            # While runs go on, their ends are unseen.
            for link in () if self._state.runs else self._context.lines.links:
                if link.offset is not None:
                    link.send_later(RunSeen(self._state.last_run, link.offset))

    def _state_of(
        self,
        number: int,
        ranks: tuple[int, ...],
        generation: int,
        card: RunCard,
        timeout: float | None,
        *,
        is_call: bool = False,
    ) -> RunState:
        return RunState(
            number,
            ranks,
            self._context.spec.grace + (_WRITING if card.profile else 0),
            everyone=self._state.ranks,
            generation=generation,
            is_call=is_call,
            waits=card.on_error == "wait",
            timeout_due=None if timeout is None else self._context.run_clock.now() + timeout,
            patience=PATIENCE
            if "torch" in with_what_they_need(self._context.spec.framework)
            else 0,
        )

    def _notice_end(self, lost: MachineLost, generation: int, watch: Watch) -> None:
        """Wait for the loss of the ranks of a machine that has ended, as its store reported.

        Raises KeyboardInterrupt, and `lost` if nothing comes for long.
        """
        replacing, state = self._renewal.replacing, self._state
        assert replacing is not None
        watch(Phase("a machine has ended: listening for which ranks went with it"))
        is_front = threading.current_thread() is threading.main_thread()
        beats = _NOTICE_BEATS * self._context.spec.heartbeat
        until = time.monotonic() + max(_NOTICE_LIMIT, beats)
        is_first = True
        while state.generation == generation and not state.has_ended:
            with self._context.lines.interrupts(anew=is_first):
                was_interrupted = self._driver.look_shortly(watch, _TICK)
            is_first = False
            if was_interrupted and is_front:
                raise KeyboardInterrupt
            if replacing.lacking() and not state.is_ready:
                break
            if time.monotonic() > until:
                raise lost
            watch(None)
        watch(Phase(""))

    def follow(self, began: RunBegan, calm: contextlib.ExitStack) -> ActiveRun:
        """Go on with the `unseen` run of a pool that was attached; `finish` is to be called.

        From then on, while `calm` is open, SIGINT is queued for the listener, not raised.
        """
        card = began.card
        left = None
        if card.timeout is not None:
            # It may have ended in time: those events come first.
            left = max(card.began + card.timeout - time.time(), _TOLD_AGAIN)
        calm.enter_context(self._context.lines.interrupts())
        with self._context.lock:
            self._driver.check_free()
            # The client before may have begun another generation since, as after a death.
            state = self._state_of(began.run, began.ranks, began.generation, card, left)
            run = ActiveRun(state, limit=card.limit, folder=self._folder_of(card))
            self._resuming.last_work = run.number
            self._driver.add(run)
            why = "never began: the client that began it was gone before this rank heard of it"
            lacking = [RankLost(began.generation, rank, why) for rank in self.never_begun]
            # No more events come from machines that had ended before the pool was attached.
            for lost in [*lacking, *self._state.losses_of(state)]:
                self._driver.carry_out(
                    map(Send, state.on_lost(lost, self._context.run_clock.now()))
                )
        return run

    def _folder_of(self, card: RunCard) -> WorkingFolder | None:
        """The working folder of a script that another client began."""
        spec = self._context.spec
        trusted = not spec.only_values
        folder = attached_folder(card.root, card.folder, card.fetch, spec.name, trusted=trusted)
        if folder is not None and not folder.not_ours:
            self._sending.folders.last = folder
        return folder

    # ── waited for ──────────────────────────────────────────────────────────────────────

    def await_any(
        self,
        runs: Collection[ActiveRun],
        watch: RunWatch,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait until one of these runs is over, or `until` says so; raises `PoolError`."""
        with self._context.lines.interrupts(anew=False):
            self._driver.conduct(runs, watch, until)

    def finish(self, run: ActiveRun, watch: Watch) -> RunOutcome:
        """Wait for the end of a run that was begun, however it ends; raises `PoolError`."""
        outcome = None
        with self._context.lines.interrupts(anew=False):
            try:
                outcome = self._finish(run, watch)
                return outcome
            finally:
                self._driver.remove(run, outcome)

    def _finish(self, run: ActiveRun, watch: Watch) -> RunOutcome:
        context, state = self._context, self._state
        generations = context.generations
        is_on_reformed = (
            generations.reformed_in == run.state.generation and "torch" not in generations.regained
        )

        def watched(_: ActiveRun, event: Event | None) -> None:
            watch(event)
            self._resuming.look(run)

        self._driver.conduct((run,), watched)
        with context.lock:
            is_last = state.is_last(run.number)
            if is_last:
                context.lines.arrived()
            context.ledger.settle(run.state.done, run.had(), run.plan)
            run.let_go()
            state.is_over(run.number)
        run.state.reclaimed |= self._resuming.was_stopped_there(run)
        is_cell = is_last and not run.state.is_call and not run.state.broken
        if is_cell and self._resuming.is_to_keep:
            with context.lock.turn():
                self._resuming.keep(watch)
        remedy, lost_beside = Remedy.NOTHING, frozenset[int]()
        if is_last and state.is_unsettled:  # while others run, the last of them does that
            with context.lock.turn():
                lost_beside = state.lost_beside()
                remedy = self._renewal.settle(watch)
                if remedy is Remedy.BEGIN_ANEW:
                    run.names_lost += context.ledger.only_on_ranks()
                    self._renewal.begin(watch, stubborn=True, keeps=True)
        return run.outcome(
            on_reformed=run.state.generation if is_on_reformed else 0,
            was_reformed=remedy is Remedy.REFORM,
            regained=generations.regained if remedy is Remedy.REFORM else {},
            began_anew=remedy is Remedy.BEGIN_ANEW,
            resumes=remedy is Remedy.BEGIN_ANEW and self._resuming.is_due,
            why_anew=generations.why_not_reformed if remedy is Remedy.BEGIN_ANEW else "",
            kept=generations.kept if remedy is Remedy.BEGIN_ANEW or run.lost_before else "",
            lost_beside=tuple(sorted(lost_beside - run.state.lost.keys())),
            pool_lost=self.told_once(),
        )

    def told_once(self) -> tuple[str, ...]:
        """News of the pool that this one replaces, of its machines and its cost, each once."""
        words, self.instead_of = self.instead_of, ""
        bill, replacing = self._context.bill, self._renewal.replacing
        costs = "" if self._warned_of_cost or bill is None else bill.warning(time.time())
        self._warned_of_cost = self._warned_of_cost or bool(costs)
        of_machines = () if replacing is None else replacing.words()
        of_names = self._resuming.told_once()
        return tuple(each for each in (words, *of_machines, *of_names, costs) if each)
