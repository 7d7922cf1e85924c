"""The client of a pool without a notebook: of one that is up and stays, or of one made for this client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, cast

from msgspec import UNSET

from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.defaults import Default, for_new_pool, sources_told
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.options.lacked_packages import lacked_note
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.options.specs import extended, extended_by_choice, made_by_choice, spec_of
from skyward_nb.plugins.plugin_table import is_installed
from skyward_nb.pool.outcome import RunRequest
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.reports.cost_approval import make_sure, say_kept
from skyward_nb.reports.execution import execute
from skyward_nb.reports.found_pools import FoundPool, choose, others
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.show.log import LogCanvas
from skyward_nb.show.pool_displays import PoolDisplays
from skyward_nb.words.errors import OptionError, PoolError, SkyError
from skyward_nb.words.frameworks import AUTO
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


class PoolClient:
    """A pool that is up, and the runs of this client; `is_guest` when another client made it."""

    def __init__(self, pool: Pool, *, is_guest: bool) -> None:
        self.pool = pool
        self.is_guest = is_guest
        self._displays = PoolDisplays(pool)

    @property
    def stays(self) -> bool:
        """Whether the pool outlives this client."""
        return self.is_guest or self.pool.spec.keep

    def run(self, request: RunRequest, display: RunDisplay, title: str = "") -> object:
        """Run under a display and return the value; raises the error that ended the run."""
        # Its imports are not needed to start a pool.
        from skyward_nb.reports.run_ending import conclude

        world = self.pool.spec.world_size
        title = title or f"Running on {spell_result(request.ranks, world)}"
        try:
            outcome = execute(self._displays, request, display, title)
        except SkyError as error:
            display.error_follows = True
            display.fail(error)
            raise
        options = CellOptions(timeout=request.card.timeout)
        return conclude(self._displays, outcome, display, options, {}, goes_on=False)

    def ask(self, module: str, call: str, ranks: tuple[int, ...] = ()) -> Mapping[int, Any]:
        """By rank, the value of a call of a module of the runtime; raises as a run does."""
        ranks = ranks or self.pool.ranks
        card = RunCard(began=time.time(), name="skyward-nb check")
        request = RunRequest.question(module, call, ranks, card)
        display = RunDisplay(LogCanvas(), quiet=True, title=f"Checking pool {self.pool.spec.name}")
        values = cast("Sequence[Any]", self.run(request, display, display.view.title) or ())
        return dict(zip(ranks, values, strict=False))

    def begin_afresh(self) -> tuple[str, ...]:
        """Begin new ranks if the present ones have run anything; returns the names that they had."""
        ranks = self.pool.ranks
        request = RunRequest(None, 0, {}, ranks, push=(), lists_names=True)
        done = self.pool.run(request, lambda _: None).done.values()
        names = sorted({each.name for end in done for each in end.variables})
        if names or self.pool.lifecycle.found_used.intersection(self.pool.pids.values()):
            self.pool.restart(lambda _: None)
        return tuple(names)

    def end(self) -> None:
        """Leave the pool as it is, or take it down."""
        pool = self.pool
        try:
            with contextlib.suppress(PoolError):  # it is gone
                self._displays.look()
        finally:
            if self.stays:
                pool.leave()
            else:
                pool.close()
                say_kept(pool)
        self._displays.renew()


@contextlib.contextmanager
def open_pool(
    stated: PoolOptions,
    known: list[Default],
    display: RunDisplay,
    program: str,
    choose_frameworks: Callable[[], FrameworkChoice] | None = None,
    for_new: Callable[[PoolOptions], PoolOptions] = lambda options: options,
    modules: Callable[[], frozenset[str]] = frozenset,
) -> Generator[PoolClient]:
    """The pool that the `stated` options and the defaults name, while inside.

    That is the one of the name that is given, if it is up; else one is made. `choose_frameworks` tells
    those of the code that will run there, where there is code, and `modules` what it imports; `for_new` completes the options of a new pool. Raises `OptionError` or `PoolError`
    before anything is started.
    """
    options = for_new_pool(ParsedOptions(pool=stated), known)
    if choose_frameworks is None and AUTO in (options.framework, stated.framework):
        raise OptionError(
            "framework",
            "framework=auto needs code whose imports it can read: name a framework instead",
        )
    choose_frameworks = choose_frameworks or _no_frameworks
    left = _alive(options.pool) if options.pool else None
    if left is None:
        with sources_told(stated, known):
            spec, note = _new_spec(for_new(options), choose_frameworks)
        pool = Pool(spec, PROVIDERS[spec.provider](), lambda _: None, program=program)
    else:
        spec, note = _extended(left, stated, choose_frameworks)
        pool = _found(left, program)
    if note:
        display.change(notes=(note,))
    there: PoolClient | None = None
    try:
        if left is None:
            display.note(*filter(None, [lacked_note(modules(), pool.spec)]))
            make_sure(pool.spec, display)
            display.change(title=f"Starting {pool.spec}", awaited=pool.spec.world_size)
            pool.start(display.watch)
        else:
            display.change(title=f"Attaching to {pool.spec}", awaited=0)
            pool.attach(display.watch)
            if pool.spec != spec:
                display.note(*pool.become(spec, display.watch).notes)
        there = PoolClient(pool, is_guest=left is not None)
        yield there
    except SkyError as error:
        if display.drawn and display.view.ended is None:
            display.error_follows = True
            display.fail(error)
        raise
    finally:
        if there is not None:
            there.end()
        elif left is None:
            pool.close()
        else:
            pool.leave()


def take_down(left: FoundPool, program: str, *, for_good: bool = False, image: str = "") -> Pool:
    """End a pool without a client, with `for_good` machines that would be stopped, too; returns the pool, closed.

    An `image` of this name is made of its head's machine.

    Raises `PoolError` when it is gone, or has a client.
    """
    pool = _found(left, program)
    pool.attach(lambda _: None)
    pool.close(for_good=for_good, image=image)
    return pool


def _new_spec(
    options: PoolOptions, choose_frameworks: Callable[[], FrameworkChoice]
) -> tuple[PoolSpec, str]:
    """The spec of a pool to be made, and a note on the frameworks that were chosen, or ""."""
    if not options.chooses_frameworks:
        return spec_of(PoolSpec(), options), ""
    is_asked, chosen = options.framework == AUTO, choose_frameworks()
    if not is_asked and options.provider in (UNSET, "local"):
        chosen = chosen.of(is_installed)
    return made_by_choice(options, chosen, asked=is_asked)


def _extended(
    left: FoundPool, stated: PoolOptions, choose_frameworks: Callable[[], FrameworkChoice]
) -> tuple[PoolSpec, str]:
    """The spec of a pool that is up, with frameworks to be added, and a note on those, or ""."""
    asked = stated.without(("pool", "keep"))
    if not asked.chooses_frameworks:
        return extended(left.entry.spec, asked), ""
    spec = extended(left.entry.spec, asked.without(["framework"]))
    return extended_by_choice(spec, choose_frameworks(), asked=asked.framework == AUTO)


def _alive(name: str) -> FoundPool | None:
    """The pool of this name or id that is up; raises `PoolError` when it is not free."""
    there = [left for left in others(()) if name in (left.entry.spec.name, left.entry.pool_id)]
    if not there:
        return None
    left = choose(name, "", there)
    if left.condition.unseen is not None:
        raise PoolError(
            name,
            f"pool {name!r} is up, and {left.doing()}: wait for it, or `%sky attach` shows it in a "
            f"notebook, `%sky down {name}` ends it, and pool=NAME takes another",
        )
    return left


def _found(left: FoundPool, program: str) -> Pool:
    entry = left.entry
    provider = PROVIDERS[entry.spec.provider]()
    pool = Pool(entry.spec, provider, lambda _: None, program=program, pool_id=entry.pool_id)
    pool.context.started, pool.context.bill = entry.started, entry.bill
    return pool


def _no_frameworks() -> FrameworkChoice:
    return FrameworkChoice((), "there is no code")
