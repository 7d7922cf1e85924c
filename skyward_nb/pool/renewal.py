"""The ways to make a pool complete: first ranks, new ranks, other machines for those that ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Sequence

from skyward_nb.plugins.plugin_table import find_plugin
from skyward_nb.pool.closing import Closing
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.driver import Driver
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.link import Link
from skyward_nb.pool.outcome import RunRequest
from skyward_nb.pool.replacements import Replacements
from skyward_nb.pool.resuming import Resuming
from skyward_nb.pool.sending import Sending
from skyward_nb.pool.state import Close, PoolPhase, Refuse, Remedy
from skyward_nb.protocol.events import CostChanged, Event, RankLost
from skyward_nb.providers.provider_protocol import (
    AgentGone,
    Machine,
    MachineEnded,
    ReplacementRequest,
    Replaces,
)
from skyward_nb.words.errors import PoolError, StartError
from skyward_nb.words.ranks import count_ranks

Lost = tuple[dict[int, RankLost], list[str]]
"""Ranks that were lost, and names that were on them."""


class Renewal:
    """Begins generations of ranks, on other machines if some were reclaimed."""

    def __init__(
        self,
        context: PoolContext,
        closing: Closing,
        driver: Driver,
        sending: Sending,
        resuming: Resuming,
    ) -> None:
        self._context = context
        self._resuming = resuming
        self._state = context.state
        self._closing = closing
        self._driver = driver
        self._sending = sending
        self.replacing: Replacements | None = None
        """Replaces reclaimed machines; None if their end is the pool's end."""
        if context.spec.on_preempt == "replace" and isinstance(context.provider, Replaces):
            self.replacing = Replacements(
                context.pool_id, context.provider, context.lines, context.generations, context.state
            )
            context.lines.on_ended = self.machine_ended

    # ── ranks ───────────────────────────────────────────────────────────────────────────

    def restart(self, watch: Watch) -> None:
        """Begin a new generation: ranks forked anew, their namespaces empty."""
        with self.beginning_anew() as was_ready:
            self.begin(watch, was_ready=was_ready)

    def begin(
        self,
        watch: Watch,
        *,
        stubborn: bool = False,
        was_ready: bool = False,
        keeps: bool = False,
        resumes: bool = False,
        end_present: Callable[[], None] = lambda: None,
    ) -> None:
        """Have ranks forked anew, with empty namespaces; the next run replaces ranks that are lost meanwhile.

        Reclaimed machines are replaced first; if that fails, the ranks stay as they were, and `end_present` is not
        called. With `keeps`, a rank that lives keeps the state of its models for `sky.rejoin`; with it, or `resumes`, the
        new ones go on from a checkpoint.
        """
        resumes |= keeps
        context, state, is_whole = self._context, self._state, False
        state.becomes(PoolPhase.BEGINNING)
        try:
            if self.replacing is not None:
                machines = context.generations.machines
                try:
                    self._replace(self.replacing, watch)
                except BaseException:
                    # Machines whose end is only announced still work.
                    are_there = machines is context.generations.machines
                    is_whole = was_ready and are_there and not state.ended_machines
                    raise
            context.generations.kept = context.generations.keep_state(watch) if keeps else ""
            end_present()
            state.begins_anew()
            self._sending.forget()
            if not resumes:
                context.generations.names_since = state.generation + 1
            is_whole = context.generations.begin(watch, stubborn=stubborn)
            self._resuming.begun_anew(resumes=resumes)
        finally:
            state.has_begun(is_whole=is_whole)
        if context.known_stores is not None and self.replacing is not None:
            context.known_stores.are_on(context.generations.machines, context.generations.homes)

    @contextlib.contextmanager
    def beginning_anew(self) -> Generator[bool]:
        """A turn in which nothing else begins, for a new generation; whether ranks were ready."""
        with self._driver.turn(), self._context.lines.interrupts():
            with self._context.lock:
                # A run of another thread has begun before this, or waits.
                self._driver.check_free()
                was_ready = self._state.is_ready
                self._state.becomes(PoolPhase.BEGINNING)
            try:
                yield was_ready
            finally:
                if self._state.phase is PoolPhase.BEGINNING:
                    self._state.has_begun(is_whole=False)

    def settle(self, watch: Watch) -> Remedy:
        """Make the repair that runs have made necessary; which one that was."""
        self._context.generations.why_not_reformed = ""
        is_lacking = self.replacing is not None and bool(self.replacing.lacking())
        if not is_lacking:
            self._driver.await_cuts(watch)
            if late := self._state.awaits_cuts:
                why = f"{count_ranks(late)} did not leave the old one in time"
                self._context.generations.why_not_reformed = why
        remedy = self._state.remedy(is_lacking=is_lacking)
        if remedy is Remedy.REFORM and not self._context.generations.reform(watch):
            remedy = Remedy.BEGIN_ANEW
        if remedy in (Remedy.NOTHING, Remedy.REFORM):
            self._state.has_begun(is_whole=True)
        return remedy

    # ── reclaimed machines ──────────────────────────────────────────────────────────────

    @property
    def lacks(self) -> tuple[str, ...]:
        """The machines that have ended and that the next run replaces, in words."""
        return () if self.replacing is None else self.replacing.ended_words()

    @property
    def notices(self) -> tuple[str, ...]:
        """The machines whose end is announced, with times, in words."""
        return tuple(
            f"{link.machine} is taken back at {link.noticed.at} ({link.noticed.action})"
            for link in self._context.lines.links
            if link.noticed is not None and not link.is_over
        )

    def machine_ended(self, link: Link, ended: MachineEnded) -> list[Event]:
        """Handle a machine's end: its lost ranks and the new cost, or `PoolError` if the pool ends with it."""
        assert self.replacing is not None
        context, gone = self._context, self.replacing.reclaimed(link, str(ended))
        lost = self._state.machine_ended(gone, context.limits.why_over(time.time()))
        if isinstance(lost, Close):
            self._closing.gone(lost.why)
        came_of_it: list[Event] = [*lost.values()]
        if context.bill is not None:
            context.bill = self.replacing.cheaper(context.bill)
            came_of_it.append(CostChanged(context.bill))
            context.enter_in_registry()
        return came_of_it

    def made_whole(self, request: RunRequest, watch: Watch) -> Lost:
        """Replace machines before a run that needs them; the ranks and names that were lost."""
        replacing, state, name = self.replacing, self._state, self._context.spec.name
        if replacing is None or state.has_ended or state.runs:
            return {}, []
        self._driver.know_who_is_there(watch)
        due = state.before_run(replacing.noticed(), is_work=request.is_work)
        if isinstance(due, Refuse):
            raise PoolError(name, f"pool {name!r} {due.why}")
        if due is Remedy.NOTHING:
            return {}, []
        with self.beginning_anew() as was_ready:
            lacking = replacing.lacking()
            if not lacking:  # another thread has replaced them meanwhile
                state.has_begun(is_whole=was_ready)
                return {}, []
            names = self._context.ledger.only_on_ranks()
            lost = {**state.losses_with(lacking), **state.losses}, names
            self.begin(watch, was_ready=was_ready, keeps=True)
        return lost

    def _replace(self, replacing: Replacements, watch: Watch) -> None:
        """Replace reclaimed machines, if there are any; raises a `SkyError`, or KeyboardInterrupt."""
        context = self._context
        over = context.limits.why_over(time.time())
        due = self._state.before_generation(replacing.noticed(), over)
        if isinstance(due, Refuse):
            raise PoolError(context.spec.name, due.why)
        if due is None:
            return
        tell, hear = context.telling(watch)

        def terms(lost: tuple[Machine, ...], why: str) -> ReplacementRequest:
            left = context.limits.seconds_left(time.time())
            return ReplacementRequest(lost, why, left, context.bill)

        try:
            replacing.replace(context.spec, due.machines, terms, self.start_agents, tell, hear)
        except AgentGone as gone:
            self._closing.gone(str(gone))
        finally:
            hear(None)
            context.nodelog.close()
            if not self._state.has_ended:
                context.enter_in_registry()  # failed attempts have costs, too
        if context.known_stores is not None:
            context.known_stores.are_on(context.generations.machines, {})

    # ── agents ──────────────────────────────────────────────────────────────────────────

    async def start_agents(self, machines: Sequence[Machine]) -> None:
        """Start these agents at once; returns when each has started or failed.

        Raises `StartError` with the reasons of all that failed.
        """
        context = self._context
        asked = [find_plugin(use.name).preload(use.options) for use in context.plugins]
        preload = list(dict.fromkeys(itertools.chain(*asked)))
        idle, ttl = context.spec.idle, context.limits.seconds_left(time.time()) or 0
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
            raise StartError(context.spec.name, why, "\n".join(details))

    async def _start_agent(
        self, machine: Machine, idle: float, ttl: float, preload: list[str]
    ) -> None:
        began, nodelog = time.monotonic(), self._context.nodelog
        try:
            await machine.start_agent(idle, ttl, preload)
        except StartError as error:
            nodelog.say(machine.name, machine.nodes, "error", error.message)
            raise
        if not self._context.provider.shares_files:
            took = f"it listens after {time.monotonic() - began:.2f} s"
            nodelog.say(machine.name, machine.nodes, "agent", took)
