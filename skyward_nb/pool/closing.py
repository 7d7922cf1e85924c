"""How a pool ends: closed by its user, left to live on, or gone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from typing import NoReturn

from skyward_nb.pool import registry
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.interrupt_handlers import calm
from skyward_nb.pool.state import PoolPhase
from skyward_nb.protocol.commands import Stop
from skyward_nb.providers.loop_thread import release
from skyward_nb.providers.provider_protocol import AgentGone, Bakes, MachineEnded, MayStop
from skyward_nb.words.errors import MachineLost, PoolError

_STOP_LIMIT = 2.0


class Closing:
    """Ends a pool; any use of it afterwards raises `closed_error`."""

    def __init__(self, context: PoolContext) -> None:
        self._context = context
        self.before_close: list[Callable[[], None]] = []
        self.on_leave: Callable[[], None] = lambda: None
        """Has those know of it who took this process for the client."""
        self.may_run: str = ""
        """Machines that may run on although it was closed, in words."""
        self.kept: str = ""
        """Machines that are stopped, not ended, until when, and at which price; the image that was made of one."""
        self.is_cut_off: bool = False
        """Whether it was left as a machine could not be reached, and may be alive."""
        lines = context.lines
        lines.on_gone, lines.on_left, lines.on_refused = self.gone, self.cut_off, self.refused

    def close(self, *, for_good: bool = False, is_lost: bool = False, image: str = "") -> None:
        """End ranks and agents and remove their files; returns when all is gone, interrupted or not.

        Machines of a pool with `warm=` are stopped, and with `for_good` ended like others; those of a pool that `is_lost`,
        too, unless another process stops them. An `image` of this name is made of the head's machine before.
        """
        context = self._context
        if context.state.has_ended:
            return
        # An interrupt that tore this would leave something.
        with context.lines.interrupts():
            context.state.becomes(PoolPhase.ENDED)
            context.lines.board.nudge()
            with context.lock.turn():
                context.lock.notify()
                failed = self._prepare()
                context.lines.send(Stop())
                with contextlib.suppress(PoolError):
                    context.lines.deliver(_STOP_LIMIT)
                machines = context.generations.machines
                stopping = [each for each in machines if isinstance(each, MayStop)]
                for machine in stopping:
                    if for_good:
                        machine.end_for_good()
                    elif not is_lost:
                        machine.may_stop(context.bill)
                if image and isinstance(machines[0], Bakes):
                    machines[0].bake(image)
                try:
                    self.may_run = release(machines)
                    self.kept = "; ".join(dict.fromkeys(filter(None, (m.kept for m in stopping))))
                finally:
                    registry.remove(context.entry)
                context.lines.close()
                if context.known_stores is not None:
                    context.known_stores.close()
        if failed:
            raise failed[0]

    def _prepare(self) -> list[Exception]:
        """Tell those who want to know before it ends; what failed in that keeps nothing from its end."""
        failed: list[Exception] = []
        for call in self.before_close:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - raised once all is gone
                failed.append(error)
        return failed

    def leave(self) -> None:
        """Hang up, and let the pool live on for its lease."""
        context = self._context
        if context.state.has_ended:
            return
        context.state.becomes(PoolPhase.ENDED)
        failed = self._prepare()
        context.lines.leave()
        if context.known_stores is not None:
            context.known_stores.close()
        for machine in context.generations.machines:
            machine.leave()
        registry.left(context.entry, context.known_client)
        self.on_leave()
        if failed:
            raise failed[0]

    def spell_end(self) -> str:
        """How a pool was closed, in words."""
        count = self._context.spec.world_size
        left = f"; {self.may_run} may run on" if self.may_run else ", nothing left running"
        left += f"; {self.kept}" if self.kept else ""
        return f"{count} rank{'s' * (count != 1)} ended{left}"

    def give_up(self) -> None:
        """End what can be reached of a pool that was left as one machine could not be; that one ends itself."""
        if self.is_cut_off:
            context = self._context
            # Their lines were hung up on: these are new ones.
            with calm():
                with contextlib.suppress(AgentGone):
                    self.may_run = release(context.provider.find(context.spec, context.pool_id))
                self.is_cut_off = False
                registry.remove(context.entry)

    # ── what ends it from outside ───────────────────────────────────────────────────────

    def gone(self, why: str) -> NoReturn:
        """Close the rest of a pool that is lost, and raise `PoolError` that says why."""
        context = self._context
        ledger, is_news = context.known_ledger, not context.state.has_ended
        names = ", ".join(ledger.only_on_ranks()) if ledger else ""
        lost = f"; lost with it: {names}" if names else ""
        if is_news:
            context.keep_agent_logs()
            context.ended = context.limits.latest_end(time.time())
            if over := context.limits.ended_by_money(context.ended):
                context.over = over
                why = f"max_cost={over[0]:g} is spent, and its machines end then ({why})"
        context.gone = context.gone or f"pool {context.spec.name!r} is gone: {why}{lost}"
        context.why_closed = f"{context.gone}. The next run makes a new one."
        self.close(is_lost=True)
        raise context.closed_error()

    def cut_off(self, why: str) -> NoReturn:
        """The person will not wait for a machine that cannot be reached."""
        self.is_cut_off = True
        spec = self._context.spec
        self._leave_for(
            f"pool {spec.name!r} cannot be reached: {why}. What runs there goes on for "
            f"{spec.idle:g} s without a client: `%sky attach` brings it back, `%sky down` gives it up."
        )

    def refused(self, who: str) -> NoReturn:
        """Somebody else conducts this pool, or has since we were cut off."""
        name = self._context.spec.name
        if self._context.state.generation:
            self._leave_for(
                f"pool {name!r} was taken over by {who} while it could not be reached from here: "
                "`%sky attach` brings it back once that is done, or take another with pool=NAME"
            )
        self._leave_for(
            f"pool {name!r} is in use by {who}: end it there, or take another with pool=NAME"
        )

    @contextlib.contextmanager
    def reaching(self) -> Generator[None]:
        """While inside, a machine whose agent has ended is the end of the pool: `PoolError`.

        `MachineLost` where that one alone is lost, and the pool goes on.
        """
        context = self._context
        try:
            yield
        except AgentGone as gone:
            if isinstance(gone, MachineEnded) and context.lines.on_ended is not None:
                name, over = context.spec.name, context.limits.why_over(time.time())
                raise MachineLost(name, str(gone), over=over, in_python=context.in_python) from gone
            self.gone("the agent of one of its machines has ended")

    def _leave_for(self, why: str) -> NoReturn:
        self._context.why_closed = why
        self.leave()
        raise PoolError(self._context.spec.name, why)
