"""Every error this package raises on its own account, drawn as one tree.

    SkyError
    ├── OptionError            an option, its value or a verb is unknown
    ├── MissingDependency      a package that the work needs is not installed
    ├── AcceleratorError       this machine lacks the accelerator
    ├── AccountError           the account of a cloud cannot be used: credentials, region, rights
    ├── NothingFits            no machine for rent meets the needs, or the budget
    ├── NotAgreed              the person did not agree to the price
    ├── HostNotReady           a host cannot be prepared
    ├── PayloadError           a value cannot travel
    │   └── ResultTooLarge         a value of a rank exceeds the limit for values that come back
    ├── PoolError              a pool could not be made or found
    │   ├── BudgetSpent            it has cost its max_cost=
    │   ├── MachineLost            a machine has ended, with values on their way from it
    │   ├── RuntimeFolderError     no folder to keep sockets and values in
    │   └── StartError             machines, agent or ranks did not come up
    │       ├── HostError              too few hosts could be logged in to
    │       ├── NodesRefused           Slurm, Kubernetes, Ray or SkyPilot gives no such nodes
    │       └── LaunchError            no machines could be rented
    ├── RunGoesOn              a run in the background has not ended yet
    ├── RankDied               a rank's process ended during a run
    ├── RunTimeout             a run took longer than its `timeout`; a TimeoutError, too
    └── RemoteError            a rank's exception that cannot be rebuilt here

A user's own exception is never wrapped in one of these: it is raised as itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from skyward_nb.words.controls import spelt


class SkyError(Exception):
    """Base of all errors of skyward_nb; its text says what happened and what to do next."""

    def __init__(self, message: str) -> None:
        self.message: str = spelt(message)  # it may quote a machine of others
        super().__init__(self.message)

    def _render_traceback_(self) -> list[str]:
        """Show only the message in IPython: frames of this package do not help users."""
        notes = getattr(self, "__notes__", ())
        return [f"{type(self).__name__}: {self.message}", *notes]


class OptionError(SkyError):
    """An option is unknown, misspelt, or has a value it cannot have.

    `option` is the word as given.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


class MissingDependency(SkyError):
    """A package is missing; `install` is the command to type."""

    def __init__(
        self, package: str, why: str, install: str, lack: str = "which is not installed"
    ) -> None:
        super().__init__(f"{why} needs the package {package}, {lack}: {install}")
        self.package = package
        self.install = install


class AcceleratorError(SkyError):
    """This machine lacks the accelerator `asked` for; `found` names its own."""

    def __init__(self, asked: str, found: str, message: str) -> None:
        super().__init__(message)
        self.asked = asked
        self.found = found


class AccountError(SkyError):
    """The account of a cloud cannot be used as it is; the text has the command or option that helps."""


class NothingFits(SkyError):
    """No machine for rent meets the needs or keeps within the budget; `nearest` names the closest types."""

    def __init__(self, message: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nearest = nearest


class NotAgreed(SkyError):
    """The person did not agree to `dollars`: of a pool an hour, of a rehearsal in all; None: the price is not known."""

    def __init__(self, dollars: float | None, message: str) -> None:
        super().__init__(message)
        self.dollars = dollars


class HostNotReady(SkyError):
    """The machine `host` could not be prepared; `detail` has the last output of the failed step."""

    def __init__(self, host: str, message: str, detail: str = "") -> None:
        text = f"{host}: {message}"
        super().__init__(f"{text}\n{detail}" if detail else text)
        self.host = host
        self.detail = detail


class PayloadError(SkyError):
    """A value cannot travel: its `name`, the `path` in it, the type, the `reason`."""

    def __init__(
        self,
        name: str,
        path: str,
        type_name: str,
        reason: str,
        advice: str,
        lack: str = "cannot be pickled",
    ) -> None:
        why = f": {reason}" if reason else ""
        super().__init__(f"{path}: {type_name} {lack}{why}\n{advice}")
        self.name = name
        self.path = path
        self.type_name = type_name
        self.reason = reason


class ResultTooLarge(PayloadError):
    """A value of `rank` has `size` bytes and exceeds the `limit` for values that come back."""

    def __init__(self, name: str, size: int, limit: int, rank: int) -> None:
        SkyError.__init__(
            self,
            f"{name} is {spell_size(size)} on rank {rank}, over the limit of {spell_size(limit)}\n"
            "It stays on the ranks: bind it to a name there and end the cell with `;`, or use "
            "gather=none. To get a part: big[:1000], big.mean(). To get all of it: "
            f"limit={spell_size(size * 1.1).replace(' ', '')}.",
        )
        self.name = name
        self.path = name
        self.type_name = ""
        self.reason = ""
        self.size = size
        self.limit = limit
        self.rank = rank


def spell_size(count: float) -> str:
    """Bytes as a person reads them: `256 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


class PoolError(SkyError):
    """A pool could not be made, changed or found; `pool` is its name."""

    def __init__(self, pool: str, message: str) -> None:
        super().__init__(message)
        self.pool = pool


class BudgetSpent(PoolError):
    """A pool has cost `spent` of its `max_cost` dollars: it runs nothing new, or has ended.

    `how` says how it ended, if that is known; with `in_python` the advice is for scripts.
    """

    def __init__(
        self,
        pool: str,
        spent: float,
        max_cost: float,
        *,
        is_gone: bool = False,
        how: str = "",
        in_python: bool = False,
    ) -> None:
        if is_gone:
            what = how or f"pool {pool!r} has ended by itself, as max_cost={max_cost:g} is spent"
            then = (
                f"No other is rented in its place before `%sky down pool={pool}` or a larger "
                "max_cost=."
            )
        else:
            what = f"pool {pool!r} has cost ${spent:.2f}, and max_cost={max_cost:g}: it runs nothing new"
            then = (
                f"`%sky pull` still brings values of ranks; then type `%sky down pool={pool}`, and make a "
                "pool with a larger max_cost=."
            )
        if in_python:
            then = (
                "Leave the `with` block, or close() it, and make another with a larger max_cost=."
            )
        super().__init__(pool, f"{what}. {then}")
        self.spent = spent
        self.max_cost = max_cost


class RuntimeFolderError(PoolError):
    """The `folder` for sockets or values cannot be made or written."""

    def __init__(self, pool: str, folder: str, reason: str) -> None:
        super().__init__(
            pool,
            f"cannot use {folder}: {reason}. It must be a folder of yours that you can write"
            "; set SKYWARD_RUNTIME_DIR to another place for sockets and locks.",
        )
        self.folder = folder


class StartError(PoolError):
    """A pool did not start: `why`, and in `detail` the last output of the failed part."""

    def __init__(self, pool: str, message: str, detail: str = "") -> None:
        text = f"pool {pool!r} did not start: {message}"
        super().__init__(pool, f"{text}\n{detail}" if detail else text)
        self.why = message
        self.detail = detail


class HostError(StartError):
    """Too few hosts can be used; `hosts` maps each unusable host to the reason and the remedy."""

    def __init__(self, pool: str, hosts: Mapping[str, str], nodes: int, of: int) -> None:
        if of == len(hosts) == 1:
            ((host, why),) = hosts.items()
            super().__init__(pool, f"{host}: {why}")
        else:
            lines = "\n".join(f"  {host}: {why}" for host, why in hosts.items())
            there = f"{len(hosts)} of {of} hosts cannot be used, and {nodes} are needed"
            super().__init__(pool, f"{there}\n{lines}")
        self.hosts: dict[str, str] = dict(hosts)


class NodesRefused(StartError):
    """Slurm, Kubernetes, Ray or SkyPilot gives no such nodes, or cannot be asked; `why` has its words."""


class LaunchError(StartError):
    """No machines could be rented; `tried` has each offer and the reason why it failed.

    With `is_clean` EC2 says that no machine of these launches is left.
    """

    def __init__(
        self, pool: str, tried: Sequence[tuple[str, str]], more: str = "", *, is_clean: bool = True
    ) -> None:
        lines = "\n".join(_spell_tried(tried))
        left = ", and none is left" if is_clean else ""
        super().__init__(pool, f"no machines could be rented{left}\n{lines}", more)
        self.tried: tuple[tuple[str, str], ...] = tuple(tried)


def _spell_tried(tried: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A line for each failed offer and its reason; zones with the same type and reason share a line."""
    alike = itertools.groupby(tried, lambda each: (each[0].partition(" in ")[0], each[1]))
    for (_, why), found in alike:
        first, *others = [what for what, _ in found]
        zones = "".join(f", {each.rpartition(' in ')[2]}" for each in others)
        yield f"  {first}{zones}: {why}"


class NotReplaced(PoolError):
    """Reclaimed machines, named by `lost`, could not be replaced; `why` is the reason.

    The pool keeps its other machines: `left` is their number.
    """

    def __init__(self, pool: str, lost: str, left: int, cause: SkyError) -> None:
        why = cause.message
        if isinstance(cause, LaunchError):
            why = "\n".join(_spell_tried(cause.tried))
        elif isinstance(cause, StartError):
            why = f"{cause.why}\n{cause.detail}".strip()
        stay = f"its other machine{'s' * (left != 1)} ({left})"
        super().__init__(
            pool,
            f"pool {pool!r} lacks {lost}, and no other could be rented in its place:\n{why}\n"
            f"It keeps {stay if left else 'its name alone'}: the next run tries again, `%sky down pool={pool}` "
            "ends it.",
        )
        self.lost = lost
        self.left = left
        self.why = why


class TakenBack(PoolError):
    """EC2 reclaimed machines of a pool, which `why` names, and the pool has ended.

    `left` is the number of its other machines; None: unknown.
    """

    def __init__(self, pool: str, why: str, pool_id: str, left: int | None) -> None:
        then = "The next run makes a new one"
        if left != 0:
            then = (
                f"{spell_rest(pool_id)}; the next run makes a new one. With on_preempt=replace a pool "
                "goes on, and gets another machine in its place"
            )
        super().__init__(pool, f"pool {pool!r} is gone: {why}. {then}.")
        self.why = why
        self.pool_id = pool_id
        self.left = left


def spell_rest(pool_id: str) -> str:
    """What happens to the other machines of a pool that is gone."""
    return (
        f"`%sky down pool={pool_id}` ends the rest of it now; it ends itself after idle= without a "
        "client"
    )


class PoolBusy(PoolError):
    """The pool runs something else now; wait until that has ended."""


class MachineLost(PoolError):
    """A machine of `pool` has ended, and the values on their way from it are lost.

    The next run replaces it, unless `over` says why not.
    """

    def __init__(self, pool: str, why: str, *, over: str = "", in_python: bool = False) -> None:
        then = "call it again" if in_python else "run the cell again"
        then = f"no other is rented: {over}" if over else then
        super().__init__(
            pool,
            f"a machine of pool {pool!r} has ended ({why}), and the values on their way from it are lost; {then}",
        )


class RankDied(SkyError):
    """Processes of ranks ended during a run; `ranks` maps each rank to the cause."""

    def __init__(self, ranks: dict[int, str], message: str) -> None:
        super().__init__(message)
        self.ranks = ranks
        self.results: object = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.ranks, self.message)


class RunGoesOn(SkyError, TimeoutError):
    """A run in the background has not ended within the given seconds; it goes on."""

    def __init__(self, run: str, seconds: float) -> None:
        super().__init__(f"run {run} has not ended after {seconds:g} s; it goes on")
        self.run = run
        self.seconds = seconds

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.run, self.seconds)


class RunTimeout(SkyError, TimeoutError):
    """A run was stopped after its `timeout`; the text says which ranks waited for which, the notes where.

    `running` are the ranks that had not finished; `stacks` maps each of them to its threads, whose
    `frames` have a file, a line and a function, innermost first (no threads for a rank that did not
    answer). `results` holds the values of the ranks that had finished.
    """

    def __init__(
        self,
        timeout: float,
        running: tuple[int, ...],
        stacks: Mapping[int, tuple[Any, ...]],
        message: str,
    ) -> None:
        super().__init__(message)
        self.timeout = timeout
        self.running = running
        self.stacks: dict[int, tuple[Any, ...]] = dict(stacks)
        self.results: object = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.timeout, self.running, self.stacks, self.message), self.__dict__


class RemoteError(SkyError):
    """A rank raised an exception that cannot be rebuilt here; its type and text are kept."""

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text
