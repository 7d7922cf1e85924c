"""The values of a run on their way: names are planned, large values go to stores, the rest into a command."""

from __future__ import annotations

import contextlib
import marshal
import sys
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace

from skyward_nb.names.plan import Plan, changed, no_room
from skyward_nb.names.rank_versions import RankVersions
from skyward_nb.pickling.payload import Bundle
from skyward_nb.pool.closing import Closing
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.driver import Driver
from skyward_nb.pool.folder_transfer import FolderTransfer
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.outcome import RunObserver, RunOutcome, RunRequest, plan_of
from skyward_nb.protocol import commands
from skyward_nb.protocol.commands import Parcel, SourceFile
from skyward_nb.protocol.events import Phase
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.providers.folders import store_root
from skyward_nb.runtime import number_settings
from skyward_nb.store.blobs import CorruptValue, memory_room
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.errors import spell_size
from skyward_nb.words.ranks import count_ranks

_PATH = "sys.path"
WARN_FROM = 256_000_000
"""Bytes that take a moment to send, so that the display says so."""
_ROOM_LASTS = 1.0
"""Seconds for which a measurement of the room in memory is used."""


class Sending:
    """Brings values to ranks, and results home."""

    def __init__(self, context: PoolContext, closing: Closing, driver: Driver) -> None:
        self._context = context
        self._closing = closing
        self._driver = driver
        self.folders: FolderTransfer = FolderTransfer(context, closing)
        self._path: RankVersions[tuple[str, ...]] = RankVersions()
        self._settings: RankVersions[str] = RankVersions(number_settings.DEFAULTS)
        self._room, self._room_seen = 0, float("-inf")

    def forget(self) -> None:
        """Note that ranks begin anew and have nothing."""
        self._path.forget()
        self._settings.forget()
        self._context.ledger.forget(resumes=bool(self._context.spec.checkpoint))

    # ── names ───────────────────────────────────────────────────────────────────────────

    def pack(self, request: RunRequest, watch: RunObserver) -> tuple[Plan, tuple[Parcel, ...]]:
        """What a run sends, with large values in the ranks' store; raises `PayloadError`."""
        stores, told = self._context.stores, list[str]()

        def tell(name: str) -> None:
            told.append(name)
            watch(Phase(f"packing {name}"))

        def store_of(ranks: tuple[int, ...] | None) -> ContentStore:
            return stores.of(request.ranks if ranks is None else ranks)

        plan = plan_of(request, self._context.ledger, tell)
        size = plan.sent_bytes
        if request.folder is not None and request.folder.key:
            self.folders.last = request.folder
        for folder in (request.folder, *request.beside):
            if folder is not None and folder.key:
                row, notes = self.folders.send(folder, request.ranks, watch)
                plan = replace(plan, rows=(*plan.rows, row), notes=(*plan.notes, *notes))
        watch(plan)
        which = ""
        if not self._context.provider.shares_files and size > WARN_FROM:
            which = f": {plan.largest()}"
        text = f"sending {spell_size(size)}{which}"
        with self._closing.reaching(), stores.telling(text, size, watch) as tick:
            parcels = plan.stow(store_of, tick)
        if told:
            watch(Phase(""))
        return plan, parcels

    def command(
        self,
        request: RunRequest,
        plan: Plan,
        parcels: tuple[Parcel, ...],
        call: Packed | None,
        limit: int,
    ) -> commands.Run:
        """The command for the next run."""
        cell, ledger, state = request.cell, self._context.ledger, self._context.state
        sources = tuple(plan.sources)
        let_go, unused = ledger.to_let_go(request.ranks)
        if cell is not None:
            sources = (SourceFile(cell.filename, request.number, cell.text), *sources)
        return commands.Run(
            run=state.last_run,
            generation=state.generation,
            ranks=request.ranks,
            number=request.number,
            body=marshal.dumps(cell.body) if cell and cell.body else None,
            last=marshal.dumps(cell.last) if cell and cell.last else None,
            call=call,
            wants_value=request.wants_value,
            only_values=self._context.spec.only_values,
            parcels=parcels,
            removed=plan.removed,
            let_go=let_go,
            unused=unused,
            lets_go=ledger.parcels_of(cell.names.writes, plan) if cell else {},
            modules=plan.modules,
            imports=plan.imports,
            writes=tuple(cell.names.writes) if cell else (),
            sure=tuple(cell.names.sure) if cell else (),
            opaque=bool(cell and cell.names.blind),
            alters=ledger.sent_among(cell.alters, plan) if cell else (),
            sources=sources,
            value_from=request.value_from,
            pull=request.pull,
            limit=limit,
            lists_names=request.lists_names,
            card=request.card,
            parcels_from=ledger.parcels_from,
            path=self._changed_path(request.ranks),
            settings=self._changed_settings(request.ranks),
            aside=request.aside,
            debug=request.debug,
        )

    def _changed_path(self, ranks: tuple[int, ...]) -> tuple[str, ...]:
        """The notebook's `sys.path`, if ranks share its folders and do not have it yet."""
        path = tuple(filter(None, sys.path))
        shares = self._context.provider.shares_files
        if not shares or not self._path.lacking({_PATH: path}, ranks):
            return ()
        self._path.note({_PATH: path}, ranks)
        return path

    def _changed_settings(self, ranks: tuple[int, ...]) -> dict[str, str]:
        """What the notebook has set of types and precisions of numbers, and these ranks have otherwise."""
        now = number_settings.as_they_are()
        changed = {name: now[name] for name in self._settings.lacking(now, ranks)}
        self._settings.note(changed, ranks)
        return changed

    def result_limit(self, ranks: int) -> int:
        """Most bytes of a value that comes back from one of so many ranks, if the run has no limit.

        Over a network 256 MB; on one machine an amount for which its memory has room for each rank.
        """
        if not self._context.provider.shares_files:
            return WARN_FROM
        now = time.monotonic()
        if now - self._room_seen > _ROOM_LASTS:
            self._room_seen, self._room = now, memory_room(store_root())
        return max(WARN_FROM, self._room // (2 * ranks))

    # ── calls ───────────────────────────────────────────────────────────────────────────

    def stow(self, call: Bundle) -> Packed:
        """Keep a call as it is now, until it has run; raises `PayloadError` if there is no room."""
        try:
            return self._context.stores.hold(call)
        except OSError as error:
            raise no_room("the call", "its arguments", error) from error

    def let_go(self, call: Bundle) -> None:
        """Release a stowed call that has run, or never will."""
        self._context.stores.let_go(call)

    @contextlib.contextmanager
    def call_there(self, request: RunRequest, watch: Watch) -> Generator[Packed | None]:
        """The call of a request, in its ranks' store while inside; raises `PayloadError`."""
        # Only now: ranks may have begun anew on other machines.
        call, is_here = request.call, self._context.provider.shares_files
        if call is None or (request.packed is not None and is_here):
            yield request.packed
            return
        if is_here and not call.is_stowed:
            yield call.stowed(self._context.stores.all)
            return
        with self._context.lock:
            self.check_room(request)
        stores = self._context.stores
        with contextlib.ExitStack() as kept:
            kept.enter_context(stores.keeping(call))
            there = self._sent(call, request.ranks, watch)
            for bundle in self._ahead(request):
                kept.enter_context(stores.keeping(bundle))
                self._sent(bundle, request.ranks, watch)
            yield there

    def check_room(self, request: RunRequest) -> None:
        """Raise `PoolError` if another run is in the way, or the pool has ended."""
        self._context.check_open()
        if not self._context.state.has_room(request.ranks, is_call=request.call is not None):
            self._driver.busy()

    def _ahead(self, request: RunRequest) -> list[Bundle]:
        """Large names that a call needs, to be sent before the lock is taken: other threads must hear events."""
        context, state = self._context, self._context.state
        with context.lock:
            if context.provider.shares_files or not state.runs or not state.is_ready:
                return []
            plan = plan_of(request, context.ledger)
            return [unit.bundle for unit, _ in plan.sending if unit.bundle.is_stowed]

    def _sent(self, call: Bundle, ranks: tuple[int, ...], watch: Watch) -> Packed:
        stores, text = self._context.stores, f"sending {spell_size(call.size)} of arguments"
        with self._closing.reaching():
            try:
                with stores.telling(text, call.size, watch) as tick:
                    return stores.send(call, ranks, tick)
            except OSError as error:
                raise no_room("the call", "its arguments", error) from error
            except CorruptValue as error:
                raise changed("the call", "its arguments", error) from error

    # ── results ─────────────────────────────────────────────────────────────────────────

    def bound_here(self, name: str, value: object, ranks: Iterable[int]) -> None:
        """Note that the notebook has bound the value that these ranks have of a name."""
        self._context.ledger.bound_here(name, value, ranks)

    def found(self, names: Mapping[str, Iterable[int]]) -> None:
        """Note names that ranks were found to have."""
        for name, ranks in names.items():
            self._context.ledger.found(name, ranks)

    def rebound(self, names: Iterable[str]) -> None:
        """Note that the notebook goes on with values of its own of containers that ranks have altered."""
        for name in names:
            self._context.ledger.altered.pop(name, None)

    def bring(self, values: Mapping[int, Packed], watch: Watch) -> None:
        """Bring the results of ranks here; raises OSError, or `PoolError` if the pool is gone.

        A pool that cannot be reached is left, so that a later attach finds the results.
        """
        if not values:
            return
        stores, size = self._context.stores, sum(each.size for each in values.values())
        text = f"gathering {spell_size(size)} of {count_ranks(values)}"
        with self._closing.reaching():
            try:
                with stores.telling(text, size, watch) as tick:
                    stores.fetch(values, tick)
            except TimeoutError as error:
                self._closing.cut_off(error.strerror or str(error))

    def clean(self, outcome: RunOutcome | None = None) -> None:
        """Drop results that were fetched, and old values if room is short."""
        context = self._context
        if context.state.has_ended:
            return
        results = outcome.results_in_store if outcome else {}
        if outcome and not results and not outcome.in_store:
            return
        # First: a later client must not hear of a run whose results are gone.
        context.lines.flush()
        with context.lock:
            stores = context.stores
            needed = context.ledger.needed().union(self._driver.in_store, stores.kept)
            stores.drop(results, needed)
            if not context.state.runs:
                stores.all.trim(needed | self._driver.untaken)
            elif outcome:  # ranks may have packed results that nobody has heard of yet
                stores.drop(dict.fromkeys(outcome.ranks, outcome.in_store), needed)


def digests_in_store(call: Bundle | None, plan: Plan) -> frozenset[str]:
    """Digests of the values in the store that a run uses."""
    bundles = [*([call] if call else []), *(unit.bundle for unit, _ in plan.sending)]
    return frozenset(bundle.digest for bundle in bundles if bundle.is_stowed)
