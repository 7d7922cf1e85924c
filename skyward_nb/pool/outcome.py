"""A run of a pool: its request, its handle while it goes on, and its outcome."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from skyward_nb.cell.cell_names import CellNames
from skyward_nb.cell.source import Cell, own_cell
from skyward_nb.names.ledger import Ledger
from skyward_nb.names.plan import Plan
from skyward_nb.pickling.payload import Bundle
from skyward_nb.pickling.pickler import code_names
from skyward_nb.pool.inbox import Inbox
from skyward_nb.pool.run_state import RunState
from skyward_nb.protocol.commands import DebugPlan
from skyward_nb.protocol.events import Event, RankDone, RankLost
from skyward_nb.protocol.message_parts import Packed, RunCard
from skyward_nb.workdir.working_folder import WorkingFolder

R = TypeVar("R")
RunEvent = Event | Plan
"""An event of a run; a `Plan` is what it will send."""
RunObserver = Callable[[RunEvent | None], None]
"""Gets the events of a run, and None when a tick of time has passed."""


@dataclass(frozen=True)
class RunRequest:
    """A cell to run, or a `call`: its code, its number, its ranks, and the values to bring.

    Without either, names are sent and brought, and nothing is run. A call is a `Call`, packed when it was
    made; the names that it needs are found when it begins.
    """

    cell: Cell | None
    number: int
    namespace: Mapping[str, Any]
    ranks: tuple[int, ...]
    call: Bundle | None = None
    packed: Packed | None = None
    """The call in its ranks' store, if it is there already."""
    value_from: tuple[int, ...] = ()
    wants_value: bool = False
    pull: tuple[str, ...] = ()
    push: tuple[str, ...] | None = None
    """Names to send; None: those that the cell needs."""
    limit: int | None = None
    """Most bytes of a value that comes back; None: the pool's limit."""
    lists_names: bool = False
    aside: bool = False
    """It is not a person's cell, and leaves no trace in the namespaces of ranks."""
    modules: frozenset[str] = frozenset()
    """Modules of the project that it needs beside those that the cell imports."""
    debug: DebugPlan | None = None
    """What a front end's debugger asks for; None: none is on."""
    folder: WorkingFolder | None = None
    """The working folder of a script."""
    beside: tuple[WorkingFolder, ...] = ()
    """Other folders that it needs."""
    fewest: int = 0
    """How many ranks have to end well, where others may be lost; 0: all."""
    card: RunCard = field(default_factory=RunCard)
    """What a client that attaches needs to know, such as its `timeout` and `on_error`."""

    @classmethod
    def question(
        cls,
        module: str,
        call: str,
        ranks: tuple[int, ...],
        card: RunCard,
        namespace: Mapping[str, Any] | None = None,
    ) -> RunRequest:
        """A request for the value of a call of a runtime module; names on ranks do not change."""
        code = f"__import__('skyward_nb.runtime.{module}', fromlist=['_']).{call}"
        return cls(
            cell=own_cell(code),
            number=card.number,
            namespace=namespace or {},
            ranks=ranks,
            value_from=ranks,
            wants_value=True,
            push=(),
            aside=True,
            card=card,
        )

    @property
    def is_work(self) -> bool:
        """Whether it is a person's cell or call, not a mere transfer of names or a question."""
        return self.call is not None or (self.cell is not None and not self.aside)


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run, rank by rank; `lost_before` are ranks that were found dead at its start."""

    ranks: tuple[int, ...]
    plan: Plan
    done: dict[int, RankDone]
    lost: dict[int, RankLost]
    failed: list[RankDone]
    killed: frozenset[int]
    interrupted: bool
    lost_before: dict[int, RankLost] = field(default_factory=dict)
    names_lost: list[str] = field(default_factory=list)
    limit: int | None = None
    timed_out: bool = False
    reclaimed: bool = False
    """Whether it was stopped since a machine of its ranks is about to be reclaimed."""
    was_cut: bool = False
    """Whether communication was cut, to stop ranks in collectives."""
    was_reformed: bool = False
    regained: Mapping[str, str] = field(default_factory=dict)
    """By framework, what goes on of what users made for the group before, if it was formed again."""
    on_reformed: int = 0
    """The generation that it ran on, if its process group was one formed again, and objects were to be made again."""
    began_anew: bool = False
    """Whether the ranks that it ran on were replaced after it."""
    resumes: bool = False
    """Whether the next run gives those in their place the names of a checkpoint."""
    why_anew: str = ""
    """Why they could not go on in a new group, if they tried."""
    kept: str = ""
    """What to do for the state of models that a rank kept before they were, in words."""
    lost_beside: tuple[int, ...] = ()
    """Ranks that were lost in concurrent runs."""
    apart: bool = False
    """Whether it was a call, which neither reads nor leaves names on ranks."""
    in_store: frozenset[str] = frozenset()
    """Digests of the values in the store that it used."""
    waited_in: dict[int, str] = field(default_factory=dict)
    """By rank that was stopped, the collective in which it waited."""
    stacks: dict[int, str] = field(default_factory=dict)
    """By rank, its stacks before it was stopped, in the format of `faulthandler`."""
    folder: WorkingFolder | None = None
    """The working folder of a script."""
    fewest: int = 0
    """How many ranks had to end well; 0: all."""
    pool_lost: tuple[str, ...] = ()
    """The end of the pool before this one, in words."""

    @property
    def returned_bytes(self) -> int:
        """Bytes of the value that came back, of all ranks."""
        return sum(end.value.size for end in self.done.values() if end.value is not None)

    @property
    def back_on_disk(self) -> list[int]:
        """Ranks whose values found no room in memory on their way back."""
        return sorted(
            rank
            for rank, end in self.done.items()
            if (end.value is not None and end.value.on_disk)
            or (end.pulled and any(each.on_disk for each in end.pulled.values()))
        )

    @property
    def went_well(self) -> bool:
        """Whether there is nothing to tell of how it went, as nearly always: no rank failed, was stopped or lost."""
        return not (
            self.failed or self.lost or self.killed or self.interrupted or self.timed_out or self.reclaimed
            or self.lost_before or self.names_lost or self.lost_beside or self.pool_lost
            or self.was_cut or self.was_reformed or self.began_anew or self.kept
            or self.waited_in or any(end.interrupted for end in self.done.values()) or self.took_uneven_checkpoints
        )  # fmt: skip

    @property
    def took_uneven_checkpoints(self) -> bool:
        """Whether ranks took different numbers of checkpoints, though none failed."""
        ends = self.done.values()
        return len({end.checkpoints for end in ends}) > 1 and not any(end.failure for end in ends)

    @property
    def results_in_store(self) -> dict[int, set[str]]:
        """By rank, the digests of what it returned that lies in its store."""
        found: dict[int, set[str]] = {}
        for rank, end in self.done.items():
            raised = (end.failure, *end.failure.before) if end.failure else ()
            errors = (failure.value for failure in raised)
            sent = [end.value, *errors, end.profile, *end.pulled.values()]
            digests = {each.digest for each in sent if each is not None and each.data is None}
            if digests:
                found[rank] = digests
        return found

    @property
    def ran_nothing(self) -> bool:
        """Whether ranks lack a value that the run refers to, so that nothing was bound or run."""
        ends = self.done.values()
        return not self.lost and all(end.rejected and end.rejected.gone for end in ends)


@dataclass(eq=False)
class ActiveRun:
    """A handle on a run that was begun; its pool's `finish` is to be called."""

    state: RunState
    plan: Plan = field(default_factory=Plan)
    namespace: Mapping[str, Any] = field(default_factory=dict[str, Any])
    names: CellNames | None = None
    """Those of its text, if it is a cell's."""
    before: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the notebook had of what its text binds as it began, or had bound to it as `out=`: it may bind them itself meanwhile."""
    lost_before: dict[int, RankLost] = field(default_factory=dict[int, RankLost])
    names_lost: list[str] = field(default_factory=list[str])
    limit: int | None = None
    in_store: frozenset[str] = frozenset()
    """Digests of the values in the store that it uses."""
    folder: WorkingFolder | None = None
    fewest: int = 0
    is_work: bool = True
    """Whether it is a person's cell or call; see `RunRequest`."""
    inbox: Inbox = field(default_factory=Inbox)
    """Events that the thread that waits for the run has yet to read."""

    def __post_init__(self) -> None:
        writes = self.names.writes if self.names else ()
        self.before = {name: self.namespace[name] for name in writes if name in self.namespace}

    def had(self) -> dict[str, Any]:
        """What the notebook had of what it may have bound; of names that its text does not show, what it has."""
        if self.names is None or not self.names.blind:
            return self.before
        writes = self.names.writes
        found = {name: each for name, each in self.namespace.items() if name not in writes}
        return found | self.before

    def let_go(self) -> None:
        """Hold nothing of the notebook any more: a handle of it may be kept for long."""
        self.namespace, self.before = {}, {}

    @property
    def number(self) -> int:
        """Its number in its pool."""
        return self.state.run

    @property
    def is_over(self) -> bool:
        """Whether it has ended on all ranks."""
        return not self.state.running

    def outcome(
        self,
        *,
        on_reformed: int = 0,
        was_reformed: bool = False,
        regained: Mapping[str, str] = MappingProxyType({}),
        began_anew: bool = False,
        resumes: bool = False,
        why_anew: str = "",
        kept: str = "",
        lost_beside: tuple[int, ...] = (),
        pool_lost: tuple[str, ...] = (),
    ) -> RunOutcome:
        """Its end, with these consequences for its pool."""
        state = self.state
        return RunOutcome(
            ranks=state.ranks,
            plan=self.plan,
            done=state.done,
            lost=state.lost,
            failed=state.failed,
            killed=frozenset(state.killed),
            interrupted=state.interrupts > 0,
            lost_before=self.lost_before,
            names_lost=sorted(set(self.names_lost)),
            limit=self.limit,
            timed_out=state.timed_out,
            reclaimed=state.reclaimed,
            was_cut=state.was_cut,
            apart=state.is_call,
            in_store=self.in_store,
            waited_in=state.waited_in,
            stacks=state.stacks,
            folder=self.folder,
            fewest=self.fewest,
            on_reformed=on_reformed,
            was_reformed=was_reformed,
            regained=regained,
            began_anew=began_anew,
            resumes=resumes,
            why_anew=why_anew,
            kept=kept,
            lost_beside=lost_beside,
            pool_lost=pool_lost,
        )


def run_whole(
    begin: Callable[[contextlib.ExitStack], R], finish: Callable[[R], RunOutcome]
) -> RunOutcome:
    """Begin a run and wait for its end; again if ranks lack a value that it refers to, which is sent then.

    While the stack that `begin` gets is open, SIGINT is queued for the listener, not raised.
    """

    def once() -> RunOutcome:
        with contextlib.ExitStack() as calm:
            return finish(begin(calm))

    outcome = once()
    return once() if outcome.ran_nothing else outcome


class RunLeft(KeyboardInterrupt):
    """The kernel that waits for a run is restarted, and the run goes on."""


def plan_of(
    request: RunRequest, ledger: Ledger, tell: Callable[[str], None] = lambda _: None
) -> Plan:
    """The plan of what a run sends, by the ledger; raises `PayloadError`.

    `tell` gets the names of values that take a moment to pack.
    """
    cell, call = request.cell, request.call
    if call is not None:
        return ledger.plan(
            call.reads,
            request.namespace,
            request.ranks,
            tokens=frozenset(call.tokens),
            imports=frozenset(call.modules),
            definitions=call.definitions,
            files=call.files,
            tell=tell,
        )
    reads = request.push
    if cell is None and reads:  # nothing but to send them is asked
        ledger.renew(reads, request.ranks)
    tokens, imports = frozenset[str](), request.modules
    if cell is not None:
        reads = cell.names.reads if reads is None else reads
        parts = [code_names(part) for part in (cell.body, cell.last) if part is not None]
        tokens = frozenset[str]().union(*(part.tokens for part in parts))
        imports |= cell.names.imports
    return ledger.plan(
        reads or (), request.namespace, request.ranks, tokens=tokens, imports=imports, tell=tell
    )
