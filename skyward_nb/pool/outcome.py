"""A run as a pool is asked for it, while it goes on, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skyward_nb.cell.source import Cell
from skyward_nb.pool.conductor import Conductor
from skyward_nb.pool.ledger import Ledger, Plan
from skyward_nb.wire.pickler import code_names
from skyward_nb.words.events import RankDone, RankLost
from skyward_nb.words.parts import RunCard


@dataclass(frozen=True)
class RunRequest:
    """A cell to run: its code, its number, where it runs, and what shall come back.

    Without a cell, names are sent and brought, and nothing is run.
    """

    cell: Cell | None
    number: int
    namespace: Mapping[str, Any]
    ranks: tuple[int, ...]
    value_from: tuple[int, ...] = ()
    wants_value: bool = False
    pull: tuple[str, ...] = ()
    push: tuple[str, ...] | None = None
    """Names to send; None: those that the cell needs."""
    limit: int | None = None
    """Most bytes that a value may have to come back."""
    lists_names: bool = False
    aside: bool = False
    """It is no cell of the person's, and leaves no trace in the namespaces of ranks."""
    card: RunCard = field(default_factory=RunCard)
    """What whoever attaches has to know of it, its `timeout` and `on_error` among that."""


@dataclass(frozen=True)
class Going:
    """A run that goes on, on the ranks of a `generation`."""

    generation: int
    ranks: tuple[int, ...]
    plan: Plan
    conductor: Conductor
    namespace: Mapping[str, Any]
    lost_before: dict[int, RankLost]
    names_lost: list[str]
    limit: int | None


@dataclass(frozen=True)
class Outcome:
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
    began_anew: bool = False
    """Whether the ranks there are now are others than those it ran on."""
    waited_in: dict[int, str] = field(default_factory=dict)
    """The collectives in which ranks waited that were stopped."""
    stacks: dict[int, str] = field(default_factory=dict)
    """Where ranks were before they were stopped, in faulthandler's words."""


class RunLeft(KeyboardInterrupt):
    """The kernel that waits for a run is restarted, and the run goes on."""


def plan_of(
    request: RunRequest, ledger: Ledger, tell: Callable[[str], None] = lambda _: None
) -> Plan:
    """What a run sends to ranks that have what the ledger says; raises `PayloadError`.

    `tell` hears the names of values that take a moment to pack.
    """
    cell = request.cell
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
