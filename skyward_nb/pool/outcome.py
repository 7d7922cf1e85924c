"""A run as a pool is asked for it, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skyward_nb.cell.source import Cell, own_cell
from skyward_nb.names.ledger import Ledger
from skyward_nb.names.plan import Plan
from skyward_nb.pickling.payload import Bundle
from skyward_nb.pickling.pickler import code_names
from skyward_nb.protocol.events import Event, RankDone, RankLost
from skyward_nb.protocol.message_parts import Packed, RunCard

RunEvent = Event | Plan
"""What happens in a run; a `Plan` is what it is about to send."""
RunObserver = Callable[[RunEvent | None], None]
"""Hears the events of a run, and None when a tick of time has passed."""


@dataclass(frozen=True)
class RunRequest:
    """A cell to run, or a `call`: its code, its number, where it runs, and what shall come back.

    Without either, names are sent and brought, and nothing is run. A call is a `Call` as it was
    packed when it was made; what it needs of the namespace is found when it begins.
    """

    cell: Cell | None
    number: int
    namespace: Mapping[str, Any]
    ranks: tuple[int, ...]
    call: Bundle | None = None
    packed: Packed | None = None
    """The call where its ranks find it, if it is there already."""
    value_from: tuple[int, ...] = ()
    wants_value: bool = False
    pull: tuple[str, ...] = ()
    push: tuple[str, ...] | None = None
    """Names to send; None: those that the cell needs."""
    limit: int | None = None
    """Most bytes that a value may have to come back; None: what the pool has room for."""
    lists_names: bool = False
    aside: bool = False
    """It is no cell of the person's, and leaves no trace in the namespaces of ranks."""
    card: RunCard = field(default_factory=RunCard)
    """What whoever attaches has to know of it, its `timeout` and `on_error` among that."""

    @classmethod
    def question(
        cls,
        module: str,
        call: str,
        ranks: tuple[int, ...],
        card: RunCard,
        namespace: Mapping[str, Any] | None = None,
    ) -> RunRequest:
        """Ask ranks for the value of a call of a module of the runtime; their names stay as they are."""
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
        """Whether it is a person's cell or call, and not only names that move, or a look at ranks."""
        return self.call is not None or (self.cell is not None and not self.aside)


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, rank by rank; `lost_before` are ranks that were found dead at its start."""

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
    was_cut: bool = False
    """Whether communication was cut to stop ranks that waited in collectives."""
    was_reformed: bool = False
    on_reformed: int = 0
    """The generation that it ran on, if its process group was one formed again."""
    began_anew: bool = False
    """Whether the ranks there are now are others than those it ran on."""
    lost_beside: tuple[int, ...] = ()
    """Ranks that were lost in others that ran beside it."""
    apart: bool = False
    """Whether it was a call, which reads and leaves no names on ranks."""
    in_store: frozenset[str] = frozenset()
    """Digests of what was put into the store for it."""
    waited_in: dict[int, str] = field(default_factory=dict)
    """The collectives in which ranks waited that were stopped."""
    stacks: dict[int, str] = field(default_factory=dict)
    """Where ranks were before they were stopped, in faulthandler's words."""
    pool_lost: tuple[str, ...] = ()
    """How the pool was lost that there was before this one."""

    @property
    def returned_bytes(self) -> int:
        """Bytes of the value that came back, of all ranks."""
        return sum(end.value.size for end in self.done.values() if end.value is not None)

    @property
    def ran_nothing(self) -> bool:
        """Whether ranks lack what was pointed at, so that nothing was bound or run."""
        ends = self.done.values()
        return not self.lost and all(end.rejected and end.rejected.gone for end in ends)


class RunLeft(KeyboardInterrupt):
    """The kernel that waits for a run is restarted, and the run goes on."""


def plan_of(
    request: RunRequest, ledger: Ledger, tell: Callable[[str], None] = lambda _: None
) -> Plan:
    """What a run sends to ranks that have what the ledger says; raises `PayloadError`.

    `tell` hears the names of values that take a moment to pack.
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
    tokens, imports = frozenset[str](), frozenset[str]()
    if cell is not None:
        reads = cell.names.reads if reads is None else reads
        parts = [code_names(part) for part in (cell.body, cell.last) if part is not None]
        tokens = frozenset[str]().union(*(part.tokens for part in parts))
        imports = cell.names.imports
    return ledger.plan(
        reads or (), request.namespace, request.ranks, tokens=tokens, imports=imports, tell=tell
    )
