"""Pools that are alive and not this notebook's: left by a kernel that is gone, or another's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyward_nb.pool.client_names import NOTICED, has_ended, spell_client
from skyward_nb.pool.registry import PoolEntry, conditions, ended_of, entries, give_up
from skyward_nb.protocol.events import AgentStatus
from skyward_nb.words.errors import PoolError, TakenBack, spell_rest
from skyward_nb.words.ranks import count_ranks
from skyward_nb.words.units import clock


@dataclass(frozen=True)
class FoundPool:
    """A pool that is alive, and how it is doing."""

    entry: PoolEntry
    condition: AgentStatus

    @property
    def is_free(self) -> bool:
        """Whether no client conducts it."""
        return self.condition.client is None

    def handle(self, there: Collection[FoundPool]) -> str:
        """Its name, or its id if others `there` have that name."""
        name = self.entry.spec.name
        alike = sum(left.entry.spec.name == name for left in there)
        return self.entry.pool_id if alike > 1 else name

    def whose(self) -> str:
        """What made it, in words."""
        if self.entry.program:
            return f"of {self.entry.program}"
        return f"of {self.entry.notebook or 'a notebook without a name'}"

    def doing(self) -> str:
        """What goes on there, in words."""
        began = self.condition.unseen
        if began is None:
            return "idle"
        cell = began.card.what.removeprefix("Cell ")
        if self.condition.running:
            since = clock(time.time() - began.card.began)
            return f"{cell} has been running for {since} on {count_ranks(self.condition.running)}"
        client = self.condition.client
        if client is not None and not has_ended(client):
            return f"{cell} has ended"  # its client shows that, and says so with its next command
        return f"{cell} has ended, and its end may not have been shown yet"

    def where(self) -> str:
        """Whose it is, in words."""
        client = self.condition.client
        if client is not None and has_ended(client):
            return f"still held by {spell_client(client)}, which has ended: it is free within {NOTICED:g} s"
        if client is not None:
            return f"in use by {spell_client(client)}"
        of = f" of {self.entry.notebook}" if self.entry.notebook else ""
        rest = self.condition.left
        ends = f", ends itself in {clock(rest)}" if rest is not None else ""
        if self.entry.program:
            return f"left by {self.entry.program}{ends}"
        return f"left by a kernel{of} that is gone{ends}"


@dataclass(frozen=True)
class ForgottenPool:
    """A pool that did not answer and was forgotten; `may_run` names machines that may run on, and cost."""

    entry: PoolEntry
    may_run: str = ""


def notebook_of(namespace: Mapping[str, Any]) -> str:
    """The front end's name for this notebook; "" if it has none."""
    name = os.environ.get("JPY_SESSION_NAME") or namespace.get("__vsc_ipynb_file__") or ""
    return str(name)


def others(
    mine: Collection[str] = (), wanted: Callable[[PoolEntry], bool] = lambda _: True
) -> list[FoundPool]:
    """The pools of this user that are alive and `wanted`, but for those with these ids."""
    asked = [entry for entry in entries() if entry.pool_id not in mine and wanted(entry)]
    return [FoundPool(entry, now) for entry, now in conditions(asked)]


def silent(there: Collection[FoundPool], mine: Collection[str] = ()) -> list[PoolEntry]:
    """Pools elsewhere that are neither `there` nor these: their machines did not answer just now.

    One that somebody here conducts is none of them, and one whose machines said that it is gone is
    not listed any more.
    """
    heard = {left.entry.pool_id for left in there}.union(mine)
    return [
        entry
        for entry in entries()
        if not entry.is_here and not entry.is_used and entry.pool_id not in heard
    ]


def choose(
    name: str | None, notebook: str, there: list[FoundPool], silent: Collection[PoolEntry] = ()
) -> FoundPool:
    """The pool to attach: the one of this name or id, or the only one that is free.

    Of several of one name those of this notebook come first, and of these one in which something
    goes on. Raises `PoolError` when there is none, when it is not clear which one is meant, and where
    it may be one of those that are `silent`.
    """
    named = [left for left in there if name in (None, left.entry.spec.name, left.entry.pool_id)]
    free = [left for left in named if left.is_free]
    unheard = [entry for entry in silent if name in (None, entry.spec.name, entry.pool_id)]
    if not named and unheard:
        raise _unreached(name, unheard)
    if not named:
        which = f"no pool {name!r} is" if name else "no pool is"
        names = ", ".join(dict.fromkeys(left.entry.spec.name for left in there))
        raise PoolError(name or "", f"{which} alive" + f"; there is {names}" * bool(names))
    if not free:
        told = "; ".join(f"pool {left.entry.spec.name!r} is {left.where()}" for left in named)
        clients = [left.condition.client for left in named]
        ended = all(client and has_ended(client) for client in clients)
        advice = "try again then" if ended else "end it there, or take another with pool=NAME"
        if all(client and client.pid == os.getpid() for client in clients):
            advice = "it is of sky.Compute, and ends by its close() or with its block"
        raise PoolError(name or "", f"{told}: {advice}")
    ours = [left for left in free if notebook and left.entry.notebook == notebook]
    if len({left.entry.spec.name for left in free}) > 1 or (len(free) > 1 and not ours):
        told = " or ".join(f"pool={left.handle(there)} ({left.whose()})" for left in free)
        raise PoolError(name or "", f"several pools match: write {told}")
    return min(free, key=lambda left: _rank(left, notebook))


def _unreached(name: str | None, unheard: Sequence[PoolEntry]) -> PoolError:
    """The error if one of these is meant, of which none answers."""
    ended = {entry.pool_id: ended_of(entry) for entry in unheard}
    if len(unheard) == 1 and (why := ended[unheard[0].pool_id]):
        return TakenBack(unheard[0].spec.name, why, unheard[0].pool_id, None)
    told = [
        f"pool {entry.spec.name!r} ({entry.pool_id}) is gone: {why}. {spell_rest(entry.pool_id)}"
        for entry in unheard
        if (why := ended[entry.pool_id])
    ]
    away = [
        f"{entry.spec.name!r} ({entry.pool_id})" for entry in unheard if not ended[entry.pool_id]
    ]
    if away:
        told.append(
            f"pool {' and '.join(away)} was left on remote machines that cannot be reached now, so it "
            "may be alive or not: try again when you can reach them"
        )
    return PoolError(name or "", "\n".join(told))


def forget(name: str, there: Collection[FoundPool]) -> ForgottenPool | None:
    """Forget the pool of this name or id that does not answer, if there is one; what can be reached ends.

    Raises `PoolError` where several could be meant.
    """
    if any(name in (left.entry.spec.name, left.entry.pool_id) for left in there):
        return None
    meant = [entry for entry in silent(there) if name in (entry.spec.name, entry.pool_id)]
    if len(meant) > 1:
        ids = " or ".join(f"pool={entry.pool_id}" for entry in meant)
        raise PoolError(name, f"several pools of this name do not answer: write {ids}")
    for entry in meant:
        return ForgottenPool(entry, give_up(entry))
    return None


def forgotten(pool: ForgottenPool) -> str:
    """What to say of a pool that was forgotten."""
    entry = pool.entry
    if pool.may_run:
        return f"pool {entry.spec.name} is down: what was left of it was ended, but {pool.may_run} may run on"
    if entry.bill is not None:  # the provider knows whether its machines have ended
        return (
            f"pool {entry.spec.name} is down: what was left of it was ended, nothing left running"
        )
    return (
        f"pool {entry.spec.name} is forgotten: not all of its machines answered. The others end "
        f"themselves after {clock(entry.spec.idle)} without a client"
    )


def unanswered(there: Collection[FoundPool]) -> list[str]:
    """A line on each pool elsewhere that does not answer."""
    return [
        f"pool {entry.spec.name!r} ({entry.spec}) {why_silent(entry)}" for entry in silent(there)
    ]


def why_silent(entry: PoolEntry) -> str:
    """What is known of a pool elsewhere that does not answer, after its name."""
    if ended := ended_of(entry):
        return f"is gone: {ended}. {spell_rest(entry.pool_id)}"
    return (
        "does not answer: it is forgotten once it must have ended itself; "
        f"%sky down pool={entry.pool_id} forgets it now"
    )


def namesakes(name: str, there: Collection[FoundPool]) -> tuple[str, ...]:
    """A note on each pool of this name that is alive, where a new one is made."""
    found: list[str] = []
    for left in there:
        if left.entry.spec.name != name:
            continue
        advice = "`%sky down` there ends it, and pool=NAME here names this one otherwise"
        if left.is_free:
            advice = f"%sky attach pool={left.entry.pool_id} goes on with it once this one is down"
        found.append(
            f"another pool {name!r} is alive, {left.where()}; this is a new one, which shares no names with it: {advice}"
        )
    return tuple(found)


def _rank(left: FoundPool, notebook: str) -> tuple[bool, bool, float]:
    is_ours = bool(notebook) and left.entry.notebook == notebook
    return not is_ours, left.condition.unseen is None, -left.entry.started


def announcement(notebook: str) -> str:
    """A line for each pool that is free and could be attached; empty when there is none."""
    lines: list[str] = []
    free = [left for left in others(wanted=lambda entry: entry.is_here) if left.is_free]
    for left in free:
        ours = notebook and left.entry.notebook == notebook
        is_known = left.entry.notebook or left.entry.program
        of = " of this notebook" if ours else f" {left.whose()}" if is_known else ""
        earlier = "" if left.entry.program else " from an earlier kernel"
        handle = left.handle(free)
        which = "" if len(free) == 1 else f" pool={handle}"
        shows = "shows it" if left.condition.unseen else "goes on with it"
        lines.append(
            f"pool {handle!r}{of} is alive{earlier} ({left.entry.spec}): "
            f"{left.doing()}. %sky attach{which} {shows}, %sky down pool={handle} ends it."
        )
    # Who loads the extension does not wait for machines elsewhere.
    lines += [
        f"pool {entry.spec.name!r} ({entry.spec}) was left on remote machines: if it is still "
        f"alive, %sky attach pool={entry.pool_id} goes on with it"
        for entry in entries()
        if not entry.is_here and not entry.is_used
    ]
    return "\n".join(lines)
