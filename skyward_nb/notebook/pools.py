"""The pools of one notebook: those it made, those it went on with, and how they end with it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from IPython.core.interactiveshell import InteractiveShell

from skyward_nb.compat.ipykernel_private import shutdown_reply
from skyward_nb.names.ledger import SourceFinder
from skyward_nb.notebook.background import Background
from skyward_nb.notebook.every_cell import EveryCell
from skyward_nb.pool.installing import added_words
from skyward_nb.pool.pool import Pool
from skyward_nb.pool.registry import PoolEntry
from skyward_nb.protocol.events import RankLost
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.reports.cost_approval import make_sure
from skyward_nb.reports.found_pools import FoundPool, notebook_of, others, silent
from skyward_nb.reports.run_notes import gone_with
from skyward_nb.show.display import RunDisplay
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.words.errors import BudgetSpent, PoolError
from skyward_nb.words.offers import Bill, spell_dollars
from skyward_nb.words.simulation import simulation_notes
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.units import clock

_LOOKS = 10
"""How often it is looked whether a kernel that is interrupted is restarted, 10 ms apart."""
_RESUMES = "; with `resume replace` on its line, a cell goes on from the newest checkpoint"


@dataclass(frozen=True)
class LostPool:
    """A lost pool: its spec, and `how` it was lost, in words, until that was shown."""

    spec: PoolSpec
    how: str
    over: tuple[float, float] | None = None
    """If it ended for its cost: `max_cost`, and the amount spent."""

    cut_off: Pool | None = None
    """The pool, where it was left as a machine could not be reached: it may be alive."""
    names: tuple[str, ...] = ()
    """The names that had been made on its ranks."""

    def check(self, spec: PoolSpec) -> None:
        """Raise `BudgetSpent` where this one is to come in its place, and may cost no more than it did."""
        if self.over is not None and spec.max_cost is not None and spec.max_cost <= self.over[0]:
            most, spent = self.over
            raise BudgetSpent(spec.name, spent, most, is_gone=True)

    @property
    def advice(self) -> str:
        """How to have it again."""
        which = "" if self.spec.name == "default" else f" pool={self.spec.name}"
        return f"%sky restart{which}, or its next cell, starts it again"


@dataclass(frozen=True)
class EndedPoolCost:
    """What a pool has cost that is up no more, `ended` in seconds since 1970; `how` says why it is not."""

    name: str
    bill: Bill
    ended: float
    how: str

    @property
    def spent(self) -> str:
        """Dollars, and in which time."""
        spent = self.bill.spent(self.ended)
        words = "an unknown price" if spent is None else spell_dollars(spent)
        return f"{words} in {clock(max(0.0, self.ended - self.bill.since))}"


class Pools:
    """The pools of one IPython shell, by name; `sources` finds the text of its cells."""

    def __init__(
        self, shell: InteractiveShell, sources: SourceFinder, every_cell: EveryCell
    ) -> None:
        self.every_cell: EveryCell = every_cell
        self._shell = shell
        self._sources = sources
        self._pools: dict[str, Pool] = {}
        self._lost: dict[str, LostPool] = {}
        self._displays: dict[str, PoolDisplays] = {}
        self._ids: dict[str, list[str]] = {}
        self.background: dict[str, Background] = {}
        """Runs in the background, by the names of their pools."""
        self.paid: list[EndedPoolCost] = []
        """What pools have cost that were taken down here."""
        atexit.register(self.close)

    def __iter__(self) -> Iterator[str]:
        """The names of those that are up, as far as is known."""
        return iter(list(self._pools))

    def __getitem__(self, name: str) -> Pool:
        return self._pools[name]

    def get(self, name: str) -> Pool | None:
        """The pool of this name, as far as is known: nothing is looked up or drawn, so any thread may ask."""
        return self._pools.get(name)

    def with_id(self, pool_id: str) -> Pool | None:
        """The pool of this id, if it is up, as far as is known."""
        return next((pool for pool in self._pools.values() if pool.pool_id == pool_id), None)

    def lost(self, name: str) -> LostPool | None:
        """The pool of this name that was lost, and not made anew since."""
        return self._lost.get(name)

    def losses(self) -> list[LostPool]:
        """All that were lost, and not made anew since."""
        return list(self._lost.values())

    def close(self) -> list[str]:
        """Take every pool down, but for those that are to outlive the notebook, or its restart; what came of each, or the first error."""
        said: list[str] = []
        failed: list[BaseException] = []
        goes_on = _is_restarting(self._shell) and not self.every_cell.ends_at_restart
        for name, pool in list(self._pools.items()):
            try:
                said.append(self._leave_or_end(name, pool, stays=goes_on or pool.spec.keep))
            except BaseException as error:  # noqa: BLE001 - raised once all are
                failed.append(error)
            if pool.closed:  # else it can be ended again
                del self._pools[name]
        try:
            if not goes_on:
                self._end_left()
        finally:
            if failed:
                raise failed[0]
        atexit.unregister(self.close)
        return said

    def _leave_or_end(self, name: str, pool: Pool, *, stays: bool) -> str:
        if stays:
            pool.leave()
            why = f"pool {name!r} stays up, and this run goes on there: %sky attach shows it"
            self._abandon(name, why)
            return f"pool {name} stays up: %sky attach brings it back"
        pool.close()
        self._abandon(name, _was_closed(name))
        return f"pool {name} is down: {pool.closing.spell_end()}"

    def _end_left(self) -> None:
        """End pools that an earlier kernel of this notebook left, and no client took over."""
        notebook = notebook_of(self._shell.user_ns)

        def is_ours(entry: PoolEntry) -> bool:
            return bool(notebook) and entry.notebook == notebook and not entry.spec.keep

        for left in others(wanted=is_ours):
            if left.is_free:
                with contextlib.suppress(PoolError):  # it is gone, or somebody has taken it
                    pool = self._found(left)
                    pool.attach(lambda _: None)
                    pool.close()

    def _abandon(self, name: str, why: str, *, is_shown: bool = False) -> None:
        """End background work of a pool that is closed or left: no more events come."""
        if (work := self.background.pop(name, None)) is not None:
            work.abandon(why, is_shown=is_shown)

    def live(self, name: str, patience: float = 0.0) -> Pool | None:
        """The pool of this name, if it is up; one that was lost is forgotten but for its spec.

        It is waited up to `patience` seconds until lines that are cut are open again, or known to be lost.
        """
        pool = self._pools.get(name)
        if work := self.background.get(name):
            work.look()
        if pool is not None and not pool.closed:
            with contextlib.suppress(PoolError):
                self.look(pool, patience)
        if pool is not None and pool.closed:
            del self._pools[name]
            cut_off = pool if pool.closing.is_cut_off else None
            how = self.displays(pool).untold.removesuffix(".")
            made = tuple(pool.ledger.names_made_on_ranks()) if pool.generation else ()
            self._lost[name] = LostPool(pool.spec, how, pool.context.over, cut_off, made)
            if pool.context.gone:
                self._note_costs(name, pool, "is gone")
            return None
        return pool

    def _note_costs(self, name: str, pool: Pool, how: str) -> None:
        """A pool is up no more: note what its machines have cost, if anything."""
        if pool.bill is not None:
            now = pool.context.ended or time.time()
            self.paid.append(EndedPoolCost(name, pool.bill, min(now, pool.bill.ends() or now), how))

    def cut_off(self, name: str | None = None) -> list[str]:
        """The names of pools that were left as a machine could not be reached, or of that of this name or id."""
        for each in self:
            self.live(each)
        return [
            each
            for each, lost in self._lost.items()
            if lost.cut_off is not None and name in (None, each, lost.cut_off.pool_id)
        ]

    def forget(self, name: str | None = None) -> list[str]:
        """Forget lost pools, or the one of this name, so that they are not started again; returns their names."""
        cut_off = self.cut_off()
        found = [each for each in self._lost if name in (None, each) and each not in cut_off]
        for each in found:
            del self._lost[each]
        return found

    def take_down(self, name: str, *, for_good: bool = False, image: str = "") -> str:
        """End a pool that is up, once the last output of its ranks is shown; how it ended, in words.

        With `for_good`, machines end that would be stopped; an `image` of this name is made of the head's.
        Of one that was left as a machine could not be reached, what can be.
        """
        pool = self._pools.get(name) or self._lost[name].cut_off
        assert pool is not None
        if work := self.background.get(name):
            work.look()
        with contextlib.suppress(PoolError):
            self.look(pool)
        try:
            pool.close(for_good=for_good, image=image)
            pool.closing.give_up()
        finally:
            # Not before: an interrupt would leave one that nobody ends.
            if pool.closed and not pool.closing.is_cut_off:
                (self._pools if self._pools.get(name) is pool else self._lost).pop(name, None)
        may_run = f" ({pool.closing.may_run} may run on)" if pool.closing.may_run else ""
        self._note_costs(name, pool, f"is down{may_run}")
        self._abandon(name, _was_closed(name), is_shown=True)
        self.displays(pool).renew()
        return pool.closing.spell_end()

    def displays(self, pool: Pool) -> PoolDisplays:
        """The displays of a pool's runs."""
        displays = self._displays[pool.spec.name]
        displays.mark = self.every_cell.mark
        return displays

    def look(self, pool: Pool, patience: float = 0.0) -> Mapping[int, RankLost]:
        """Handle events between cells; returns the lost ranks.

        Raises `PoolError` when the pool is.
        """
        return self.displays(pool).look(patience)

    def left_over(self, name: str) -> FoundPool | None:
        """The pool of this name that an earlier kernel of this notebook has left alive, if any.

        Raises `PoolError` when something goes on there, or has ended and was not seen.
        """
        notebook = notebook_of(self._shell.user_ns)

        def is_meant(entry: PoolEntry) -> bool:
            return bool(notebook) and entry.notebook == notebook and entry.spec.name == name

        for left in others(self._mine(), is_meant):
            if left.is_free:
                if left.condition.unseen is not None:
                    which = "" if name == "default" else f" pool={name}"
                    raise PoolError(
                        name,
                        f"pool {name!r} is alive from an earlier kernel of this notebook: "
                        f"{left.doing()}. `%sky attach{which}` shows it, `%sky down pool={name}` "
                        "ends it, and pool=NAME takes another.",
                    )
                return left
        return None

    def _mine(self) -> set[str]:
        return {pool.pool_id for pool in self._pools.values()}

    def others(self) -> list[FoundPool]:
        """Pools that are alive and not this notebook's."""
        return others(self._mine())

    def silent(self, there: Collection[FoundPool]) -> list[PoolEntry]:
        """Pools elsewhere whose machines did not answer when pools `there` were listed."""
        return silent(there, self._mine())

    def start(self, spec: PoolSpec, display: RunDisplay, replaced: Pool | None = None) -> Pool:
        """Start a pool under `display`, in the place of one that is `replaced`, if any.

        Raises `NotAgreed` if the person does not agree to its cost.
        """
        make_sure(spec, display)
        if replaced is not None:
            lost = replaced.ledger.names_made_on_ranks()
            gone = f"; {gone_with('its', lost)}" if lost else ""
            self.take_down(spec.name)
            kept = f"; {replaced.closing.kept}" if replaced.closing.kept else ""
            display.note(
                f"pool {spec.name} ({replaced.spec}) was taken down for this one{gone}{kept}"
            )
        display.change(title=f"Starting {spec}", awaited=spec.world_size)
        pool = Pool(
            spec,
            PROVIDERS[spec.provider](),
            self._sources,
            notebook=notebook_of(self._shell.user_ns),
        )
        # Also of one that does not come up there is something to read.
        self._ids.setdefault(spec.name, []).append(pool.pool_id)
        try:
            pool.start(display.watch)
            if (lost := self._lost.get(spec.name)) is not None:
                pool.runs.instead_of = lost.how + (
                    _RESUMES if spec.checkpoint and lost.how and not spec.resume else ""
                )
            self._enter(pool)
        except BaseException:
            if pool.generation:  # an interrupt may come once it is up
                pool.close()
            self._note_costs(spec.name, pool, "did not come up")
            raise
        return pool

    def become(self, pool: Pool, spec: PoolSpec, display: RunDisplay) -> None:
        """Add frameworks and packages to a pool that is up, under `display`.

        Raises `StartError` where they do not come up, and `HostNotReady` where they are not installed.
        """
        display.change(title=f"Readying {added_words(spec, pool.spec)}", awaited=spec.world_size)
        display.note(*simulation_notes(spec, pool.spec))
        display.note(*pool.become(spec, display.watch).notes)

    def adopt(self, left: FoundPool, display: RunDisplay) -> Pool:
        """Go on with a pool that another kernel has left alive; raises `PoolError` when it is gone."""
        display.change(title=f"Attaching to {left.entry.spec}", awaited=0)
        pool = self._found(left)
        try:
            pool.attach(display.watch)
            if who := pool.lifecycle.forked_by_other:
                before = self._lost.get(pool.spec.name)
                names = f" ({', '.join(before.names)})" if before and before.names else ""
                display.note(f"ranks were begun anew by {who}: names from before{names} are gone")
            self._enter(pool)
        except BaseException:
            pool.leave()
            raise
        return pool

    def _found(self, left: FoundPool) -> Pool:
        entry = left.entry
        notebook = notebook_of(self._shell.user_ns)
        provider = PROVIDERS[entry.spec.provider]()
        pool = Pool(entry.spec, provider, self._sources, notebook=notebook, pool_id=entry.pool_id)
        pool.context.started, pool.context.bill = entry.started, entry.bill
        return pool

    def _enter(self, pool: Pool) -> None:
        name = pool.spec.name
        if pool.spec.keep or not self.every_cell.ends_at_restart:
            pool.driver.is_left_by_interrupt = functools.partial(
                _is_restarting, self._shell, _LOOKS
            )
        self._displays[name] = PoolDisplays(pool)
        ids = self._ids.setdefault(name, [])
        if pool.pool_id not in ids:
            ids.append(pool.pool_id)
        self._pools[name] = pool
        self._lost.pop(name, None)

    def ids(self, name: str | None = None) -> list[str]:
        """The pools that this notebook has had, or those of one name, whose logs are readable now."""
        for displays in self._displays.values():
            displays.flush()
        names = self._ids if name is None else [name]
        return [each for known in names for each in self._ids.get(known, [])]


def _was_closed(name: str) -> str:
    return f"pool {name!r} was closed while this ran on it"


def _is_restarting(shell: InteractiveShell, looks: int = 0) -> bool:
    """Whether the kernel was told to end and another one takes its place, or is so within some looks.

    Jupyter interrupts a kernel just before it tells it that, which comes to another thread. Looks are
    counted and not time: where the kernel was stopped, that thread has its turns all the same.
    """
    kernel = getattr(shell, "kernel", None)
    left = looks if kernel is not None else 0
    while (reply := shutdown_reply(kernel)) is None and left:
        left -= 1
        time.sleep(0.01)
    return bool(reply and reply["content"].get("restart"))
