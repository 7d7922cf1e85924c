"""How a cell goes through one of the notebook's pools.

Between the magics, which only parse and delegate, and the pool, which knows nothing of IPython.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Generator, Mapping
from typing import Any, cast

import msgspec
from IPython.core.interactiveshell import InteractiveShell
from msgspec import UNSET

from skyward_nb.cell.source import Cell
from skyward_nb.functions.notebook_names import NotebookNames
from skyward_nb.notebook.altered_names import AlteredNames
from skyward_nb.notebook.background import Background
from skyward_nb.notebook.cells import Cells, is_cell_file
from skyward_nb.notebook.dry_runs import dry_run
from skyward_nb.notebook.every_cell import EveryCell
from skyward_nb.notebook.pool_finder import PoolFinder, ResolvedPool, Work
from skyward_nb.notebook.pools import Pools
from skyward_nb.notebook.run_handle import RunHandle
from skyward_nb.notebook.value_history import ValueHistory
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.options.specs import check_profile
from skyward_nb.pickling.home_namespace import set_home
from skyward_nb.pool.outcome import RunLeft, RunOutcome, RunRequest
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import RunBegan
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.reports.execution import Execution, execute
from skyward_nb.reports.found_pools import choose, notebook_of
from skyward_nb.reports.present_debugger import unfollowed
from skyward_nb.reports.rank_failures import show
from skyward_nb.reports.resource_choices import first_to_be_had
from skyward_nb.reports.results import RankResults, UnreturnedValue
from skyward_nb.reports.run_ending import conclude
from skyward_nb.reports.scripts import Script
from skyward_nb.show.canvas_choice import canvas_of
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.view.run_view import MOST_TEXT
from skyward_nb.words.controls import spelt
from skyward_nb.words.errors import OptionError, PoolError, SkyError, StartError
from skyward_nb.words.ranks import parse_ranks, shown_ranks
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.units import near_words

_GOES_ON = "The kernel is restarted, and the cell goes on on its ranks: %sky attach shows it"


class Session:
    """The runs of one IPython shell, on its `pools`."""

    def __init__(self, shell: InteractiveShell, every_cell: EveryCell | None = None) -> None:
        self.shell = shell
        self.cells: Cells = Cells(shell)
        self.pools: Pools = Pools(shell, self.cells.source_of, every_cell or EveryCell(shell))
        self.finder: PoolFinder = PoolFinder(shell, self.cells, self.pools)
        self.values: ValueHistory = ValueHistory(shell)
        self.altered: AlteredNames = AlteredNames(shell, self.pools)
        set_home(shell.user_ns)

    def display(self, title: str = "", *, quiet: bool = False) -> RunDisplay:
        """A display of the running cell."""
        return RunDisplay(canvas_of(self.shell), title, quiet=quiet)

    def _aside(self, title: str = "") -> RunDisplay:
        """A display of a run that belongs to no cell, seen only if there are notes or an error."""
        display = self.display(title, quiet=True)
        display.is_aside = True
        return display

    # ── one cell ────────────────────────────────────────────────────────────────────────

    def run(self, asked: ParsedOptions, body: str) -> object:
        """Run a cell on a pool; returns what the notebook shows as its value.

        Raises the user's own exception, KeyboardInterrupt, or a `SkyError`.
        """
        return self._run(asked, self.cells.compile(body))

    def run_script(self, asked: ParsedOptions, script: Script) -> object:
        """Run a script on a pool, in the processes that its ranks have, whose names stay.

        Returns the handle of one in the background. Raises `OptionError` and SyntaxError for what is no
        script, and what `run` raises.
        """
        script.check()
        return first_to_be_had(script.name, script.choices(), lambda each: self._run(asked, each))

    @unfollowed()
    def _run(self, asked: ParsedOptions, work: Work) -> object:
        options = self.finder.completed(asked).cell
        options.check_values_wanted(has_value=isinstance(work, Cell) and work.has_value)
        writes = work.own_names if isinstance(work, Cell) else frozenset[str]()
        display = self.display(quiet=options.quiet)
        display.change(most_text=MOST_TEXT if options.text is None else options.text)
        with _trouble_shown(display, "the cell did not begin on the ranks"):
            meant = self.finder.find(asked, display, work)
            spec = meant.spec
            check_profile(spec, options.profile)
            request = self._request_of(work, options, spec)
            name = f"{request.card.name} ".lstrip()
            if options.dry_run:
                dry_run(request, meant, display, self.cells.source_of)
                return None
            _show_only(display, options, spec.world_size)
            pool = self._made_ready(meant, asked, display)
            ran_on = f"Running {name}on {spell_result(request.ranks, spec.world_size)}"
            if options.detach:
                return self._detach(pool, request, display, options, writes)
            outcome = self._execute(pool, request, display, ran_on)
        value = self._conclude(pool, outcome, display, options, writes)
        return self.values.returned(value, request.number, outcome.returned_bytes)

    def _made_ready(self, meant: ResolvedPool, asked: ParsedOptions, display: RunDisplay) -> Pool:
        """The pool as its spec is to be: started, or with the frameworks that it lacked.

        If a framework that nobody asked for does not start, a note says so, and the cell runs without it.
        """
        pool, spec = meant.pool, meant.spec
        try:
            if (busy := pool or meant.replaced) is not None:
                self.check_free(busy)
            if pool is None:
                return self.pools.start(spec, display, meant.replaced)
            if pool.spec != spec:
                self.pools.become(pool, spec, display)
        except StartError as error:
            is_asked = asked.pool.framework is not UNSET or not spec.adds_frameworks
            if is_asked or not spec.framework or spec.aws is not None:  # those are paid for
                raise
            words = ",".join(spec.framework)
            display.change(notes=(f"no process group of {words}: {error.why}",))
            pool = pool or self.pools.start(msgspec.structs.replace(spec, framework=()), display)
        return pool

    def move(self, pool: Pool, options: CellOptions, *, lists_names: bool = False) -> RunOutcome:
        """Send the names of `push`, fetch those of `pull`, and run nothing.

        Raises `OptionError` for a name that is not there, or what a run of a cell raises.
        """
        self.check_free(pool)
        display = self._aside(f"Moving names, pool {pool.spec.name}")
        request = self._request(None, options, pool.spec)
        request = dataclasses.replace(request, lists_names=lists_names)
        outcome = self._execute(pool, request, display, display.view.title)
        self._conclude(pool, outcome, display, options, frozenset())
        return outcome

    def ask(
        self, pool: Pool, module: str, call: str, ranks: tuple[int, ...] = ()
    ) -> Mapping[int, Any]:
        """By rank, the value of a call of a module of the runtime; names on ranks stay as they are.

        Raises `PoolError` while a run goes on there, and what a run of a cell raises.
        """
        self.check_free(pool)
        ranks = ranks or pool.ranks
        display = self._aside(f"Checking pool {pool.spec.name}")
        names = NotebookNames(self.shell.user_ns)
        request = RunRequest.question(module, call, ranks, self._card(None, CellOptions()), names)
        outcome = self._execute(pool, request, display, display.view.title)
        # Without `_show_unreturned`, which asks.
        displays, names_here = self.pools.displays(pool), self.shell.user_ns
        values = conclude(displays, outcome, display, CellOptions(), names_here, frozenset())
        return dict(zip(ranks, cast("RankResults[Any]", values or ()), strict=False))

    def _execute(
        self, pool: Pool, request: RunRequest, display: RunDisplay, title: str
    ) -> RunOutcome:
        return execute(self.pools.displays(pool), request, display, title)

    def check_free(self, pool: Pool) -> None:
        """Raise `PoolError` while a run goes on there, before anything of its picture is touched."""
        name = pool.spec.name
        work = self.pools.background.get(name)
        if work is not None and work.pool is pool and not work.is_over:
            raise PoolError(
                name,
                f"pool {name!r} runs a cell in the background ({work.name}): wait for it with "
                "`.wait()` of its handle, end it with `.cancel()`, or take another pool=NAME",
            )
        pool.driver.check_free()

    def _detach(
        self,
        pool: Pool,
        request: RunRequest,
        display: RunDisplay,
        options: CellOptions,
        writes: frozenset[str],
    ) -> RunHandle:
        """Let a run go on in the background; its handle."""
        ran_on = f"Running in the background on {spell_result(request.ranks, pool.spec.world_size)}"
        execution = Execution(self.pools.displays(pool), display, ran_on)
        with contextlib.ExitStack() as calm:
            execution.begin(request, calm)
            inner = dataclasses.replace(options, out="")
            return self._in_background(execution, inner, writes, options.out)

    def _in_background(
        self, execution: Execution, options: CellOptions, writes: frozenset[str], out: str
    ) -> RunHandle:
        """Let a thread wait for a run whose handle is `out`; the main thread shows it and ends it."""
        pool, display = execution.pool, execution.display
        displays = self.pools.displays(pool)
        displays.rest()
        name, number = pool.spec.name, self.cells.present()[0]

        def over() -> None:
            if self.pools.background.get(name) is work:
                del self.pools.background[name]
            if not pool.closed:
                displays.listen()  # before the log's end, which has the agent told of it
            execution.end_log()

        def conclude(outcome: RunOutcome) -> object:
            over()
            self.values.has_grown(number, outcome.returned_bytes)
            return self._conclude(pool, outcome, display, options, writes, raises=False)

        def closed(why: str) -> None:
            over()
            display.end("failed", why)

        work = Background(execution, conclude, closed)
        ranks = execution.run.state.ranks
        handle = RunHandle(work.name, spell_result(ranks, pool.spec.world_size), work)
        if out:
            # Before its end is heard: ranks may have bound that name, and theirs is newer than the handle.
            self.shell.user_ns[out] = execution.run.before[out] = handle
        self.pools.background[name] = work
        work.start()
        display.show()
        return self.values.returned(handle, number, 0)

    def attach(self, name: str | None, *, detach: bool = False) -> object:
        """Go on with a pool that was left alive, and with the run there; returns the run's value.

        A run that was begun in the background stays there: its handle is returned. Raises
        `PoolError` when there is no such pool or somebody else conducts it, and what the run raised.
        """
        there = self.pools.others()
        left = choose(name, notebook_of(self.shell.user_ns), there, self.pools.silent(there))
        if self.pools.live(left.entry.spec.name) is not None:
            mine = left.entry.spec.name
            raise PoolError(
                mine, f"this notebook has a pool {mine!r} of its own: `%sky down pool={mine}` first"
            )
        display = self.display()
        with _trouble_shown(display, "the pool was not attached"):
            pool = self.pools.adopt(left, display)
        began = pool.runs.unseen
        if began is None:
            names = pool.renewal.lacks or self._list_names(pool)
            display.end("finished", f"Attached to pool {pool.spec.name}: {pool.spec}", notes=names)
            return None
        return self._follow(pool, began, display, detach=detach or began.card.detached)

    def _follow(self, pool: Pool, began: RunBegan, display: RunDisplay, *, detach: bool) -> object:
        """Show a run from its beginning, and end it as the cell would have."""
        card = began.card
        options = CellOptions.of_card(card, only_values=pool.spec.only_values)
        world = pool.spec.world_size
        _show_only(display, options, world)
        display.change(most_text=card.most_text or MOST_TEXT)
        title = (
            f"Attached to {card.what.removeprefix('Cell ')} on {spell_result(began.ranks, world)}"
        )
        if card.filename and (is_cell_file(card.filename) or not pool.spec.only_values):
            self.cells.learn(card)
        writes = frozenset(card.writes)
        execution = Execution(self.pools.displays(pool), display, title)
        with _trouble_shown(display), contextlib.ExitStack() as calm:
            execution.follow(began, calm)
            if detach:
                # In the background `out=` is the name of the handle.
                out = options.out if card.detached else ""
                inner = dataclasses.replace(options, out="" if out else options.out)
                return self._in_background(execution, inner, writes, out)
            outcome = execution.finish()
        value = self._conclude(pool, outcome, display, options, writes)
        return self.values.returned(value, self.cells.present()[0], outcome.returned_bytes)

    def _list_names(self, pool: Pool) -> tuple[str, ...]:
        """The names that ranks have, which the ledger learns of; in words."""
        request = self._request(None, CellOptions(push=()), pool.spec)
        request = dataclasses.replace(request, lists_names=True)
        display = self._aside()
        done = self._execute(pool, request, display, "").done
        ranks: dict[str, list[int]] = {}
        for rank, end in done.items():
            for variable in end.variables:
                ranks.setdefault(variable.name, []).append(rank)
        pool.sending.found(ranks)
        pool.seen()
        return (f"names on ranks: {', '.join(sorted(ranks))}",) if ranks else ()

    def _conclude(
        self,
        pool: Pool,
        outcome: RunOutcome,
        display: RunDisplay,
        options: CellOptions,
        writes: frozenset[str],
        *,
        raises: bool = True,
    ) -> object:
        displays, names = self.pools.displays(pool), self.shell.user_ns
        display.error_follows = raises
        value = conclude(displays, outcome, display, options, names, writes)
        if isinstance(value, RankResults):
            self._show_unreturned(pool, cast("RankResults[Any]", value))
        return value

    def _show_unreturned(self, pool: Pool, results: RankResults[Any]) -> None:
        """Have values show themselves that came back and could not be rebuilt here."""
        waiting = {
            rank: value
            for rank, value in zip(results.ranks, results, strict=True)
            if isinstance(value, UnreturnedValue) and not value.shown
        }
        if waiting:
            with contextlib.suppress(SkyError):  # their words are in the picture
                for rank, text in self.ask(pool, "last_value", "shown_last()", (*waiting,)).items():
                    waiting[rank].shown = spelt(str(text))

    def _request_of(self, work: Work, options: CellOptions, spec: PoolSpec) -> RunRequest:
        """What is asked of the pool for a cell, or a script; raises `OptionError`."""
        if isinstance(work, Cell):
            return self._request(work, options, spec)
        work.check_pool(spec)
        request = work.request(parse_ranks("ranks", options.ranks, spec.world_size), options, spec)
        return dataclasses.replace(request, namespace=NotebookNames(self.shell.user_ns))

    def _request(self, cell: Cell | None, options: CellOptions, spec: PoolSpec) -> RunRequest:
        """What is asked of the pool."""
        ranks = parse_ranks("ranks", options.ranks, spec.world_size)
        namespace = NotebookNames(self.shell.user_ns)
        for each in options.push or ():
            if each not in namespace:
                near = near_words(each, namespace)
                raise OptionError("push", f"push={each}: the notebook has no such name{near}")
        wants_value = cell is not None and cell.has_value
        senders = {"all": ranks, "head": ranks[:1], "none": ()}[options.gather]
        return RunRequest(
            cell=cell,
            number=self.cells.present()[0],
            namespace=namespace,
            ranks=ranks,
            value_from=senders if wants_value or options.pull else (),
            wants_value=wants_value,
            pull=options.pull,
            push=options.push,
            limit=options.limit,
            card=self._card(cell, options),
        )

    def _card(self, cell: Cell | None, options: CellOptions) -> RunCard:
        """The data by which another kernel can show this run, and end it."""
        number, text = self.cells.present()
        return msgspec.structs.replace(
            options.card(),
            number=number,
            filename=cell.filename if cell else "",
            text=text,
            began=time.time(),
            values=cell is not None and cell.has_value,
            writes=tuple(cell.own_names) if cell else (),
        )


@contextlib.contextmanager
def _trouble_shown(display: RunDisplay, interrupted: str = "") -> Generator[None]:
    """End the display if the run cannot begin; `interrupted` says what an interrupt did."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        words = _GOES_ON if isinstance(interrupt, RunLeft) else interrupted
        display.end("interrupted", f"Interrupted: {words}" if words == interrupted else words)
        show(interrupt, [f"KeyboardInterrupt: {words}"])
        raise
    except SkyError as error:
        if display.drawn:
            display.error_follows = True
            display.fail(error)
        raise


def _show_only(display: RunDisplay, options: CellOptions, world: int) -> None:
    """Hide the output of ranks that `stdout=` and `stderr=` leave out."""
    display.show_only("stdout", shown_ranks("stdout", options.stdout, world))
    display.show_only("stderr", shown_ranks("stderr", options.stderr, world))
