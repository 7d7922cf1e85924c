"""Every error this package raises on its own account, drawn as one tree.

    SkyError
    ├── OptionError            an option, its value, or a verb is not one we know
    ├── MissingDependency      a package that the work needs is not installed
    ├── AcceleratorError       the accelerator asked for is not here
    ├── AccountError           the account of a cloud cannot be used: credentials, region, rights
    ├── NothingFits            no machine that can be rented is what is asked for
    ├── NotAgreed              nobody has agreed to what machines would cost
    ├── HostNotReady           a machine that one logs in to cannot be made ready
    ├── PayloadError           a value cannot travel
    │   └── ResultTooLarge         a value of a rank is over the limit of what comes back
    ├── PoolError              a pool could not be made, or is not there
    │   ├── BudgetSpent            it has cost what it may cost
    │   ├── MachineLost            a machine of it has ended, and what was on its way from there
    │   ├── RuntimeFolderError     no folder to keep sockets and values in
    │   └── StartError             machines, agent or ranks did not come up
    │       ├── HostError              too few hosts could be logged in to
    │       └── LaunchError            no machines could be rented
    ├── RunGoesOn              a run in the background has not ended yet
    ├── RankDied               a rank's process ended under a run
    ├── RunTimeout             a run took longer than its `timeout`; a TimeoutError, too
    └── RemoteError            a rank's exception that cannot be rebuilt here

A user's own exception is never wrapped in one of these: it is raised as itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class SkyError(Exception):
    """Base of all errors of skyward_nb; its text says what happened and what to do next."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def _render_traceback_(self) -> list[str]:
        """Show the message alone in IPython: our frames say nothing to the user."""
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
    """The accelerator `asked` for is not here; `found` says what is."""

    def __init__(self, asked: str, found: str, message: str) -> None:
        super().__init__(message)
        self.asked = asked
        self.found = found


class AccountError(SkyError):
    """The account of a cloud cannot be used as it is; the text has the command or option that helps."""


class NothingFits(SkyError):
    """No machine that can be rented is what is asked for; `nearest` names those that come near."""

    def __init__(self, message: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nearest = nearest


class NotAgreed(SkyError):
    """Machines would cost `dollars` an hour, which nobody has agreed to; None: the price is not known."""

    def __init__(self, dollars: float | None, message: str) -> None:
        super().__init__(message)
        self.dollars = dollars


class HostNotReady(SkyError):
    """The machine `host` could not be made ready; `detail` has the last words of what failed."""

    def __init__(self, host: str, message: str, detail: str = "") -> None:
        text = f"{host}: {message}"
        super().__init__(f"{text}\n{detail}" if detail else text)
        self.host = host
        self.detail = detail


class PayloadError(SkyError):
    """A value cannot travel: which `name`, at which `path` in it, of which type, and why.

    `lack` says in a word what it cannot.
    """

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
    """A value of `rank` has `size` bytes, over the `limit` of what may come back."""

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
    """A pool has cost `spent` dollars, and may cost `max_cost`: it runs nothing new, or has ended by that.

    What to do next is for one `in_python`, or for cells; `how` says how it ended, where that was seen.
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
    """The folder for sockets or values cannot be made or written; `folder` says which."""

    def __init__(self, pool: str, folder: str, reason: str) -> None:
        super().__init__(
            pool,
            f"cannot use {folder}: {reason}. It must be a folder of yours that you can write"
            "; set SKYWARD_RUNTIME_DIR to another place for sockets and locks.",
        )
        self.folder = folder


class StartError(PoolError):
    """A pool did not come up; `why`, and in `detail` the last words of what failed."""

    def __init__(self, pool: str, message: str, detail: str = "") -> None:
        text = f"pool {pool!r} did not start: {message}"
        super().__init__(pool, f"{text}\n{detail}" if detail else text)
        self.why = message
        self.detail = detail


class HostError(StartError):
    """Too few hosts can be used; `hosts` maps each that cannot to why, and to what helps."""

    def __init__(self, pool: str, hosts: Mapping[str, str], nodes: int, of: int) -> None:
        if of == len(hosts) == 1:
            ((host, why),) = hosts.items()
            super().__init__(pool, f"{host}: {why}")
        else:
            lines = "\n".join(f"  {host}: {why}" for host, why in hosts.items())
            there = f"{len(hosts)} of {of} hosts cannot be used, and {nodes} are needed"
            super().__init__(pool, f"{there}\n{lines}")
        self.hosts: dict[str, str] = dict(hosts)


class LaunchError(StartError):
    """No machines could be rented; `tried` has what was asked for, and why it could not be had.

    With `is_clean` none of what was launched for it is left, as far as EC2 says.
    """

    def __init__(
        self, pool: str, tried: Sequence[tuple[str, str]], more: str = "", *, is_clean: bool = True
    ) -> None:
        lines = "\n".join(_spell_tried(tried))
        left = ", and none is left" if is_clean else ""
        super().__init__(pool, f"no machines could be rented{left}\n{lines}", more)
        self.tried: tuple[tuple[str, str], ...] = tuple(tried)


def _spell_tried(tried: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A line for what could not be had, and why; zones that one type lacks for one reason have one."""
    alike = itertools.groupby(tried, lambda each: (each[0].partition(" in ")[0], each[1]))
    for (_, why), found in alike:
        first, *others = [what for what, _ in found]
        zones = "".join(f", {each.rpartition(' in ')[2]}" for each in others)
        yield f"  {first}{zones}: {why}"


class NotReplaced(PoolError):
    """Machines that were taken back have no others in their place; `lost` says which, `why` what hindered it.

    The pool keeps its other machines, of which there are so many `left`.
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
    """The pool with this id is gone with machines that were taken back, which `why` names.

    There are so many others `left`; None: some, which nobody has counted.
    """

    def __init__(self, pool: str, why: str, pool_id: str, left: int | None) -> None:
        then = "The next run makes a new one"
        if left != 0:
            then = (
                f"{spell_rest(pool_id)}; the next run makes a new one. With on_preempt=replace a pool "
                "goes on, and rents another machine in its place"
            )
        super().__init__(pool, f"pool {pool!r} is gone: {why}. {then}.")
        self.why = why
        self.pool_id = pool_id
        self.left = left


def spell_rest(pool_id: str) -> str:
    """What becomes of the rest of a pool that is gone with some of its machines."""
    return (
        f"`%sky down pool={pool_id}` ends the rest of it now; it ends itself after idle= without a "
        "client"
    )


class PoolBusy(PoolError):
    """Something else runs there now."""


class MachineLost(PoolError):
    """A machine of `pool` has ended, and with it what was on its way.

    The next work has another in its place, if it is not `over`, in words, with that.
    """

    def __init__(self, pool: str, why: str, *, over: str = "", in_python: bool = False) -> None:
        then = "call it again" if in_python else "run the cell again"
        then = f"no other is rented: {over}" if over else then
        super().__init__(
            pool,
            f"a machine of pool {pool!r} has ended ({why}), and the values on their way from it are lost; {then}",
        )


class RankDied(SkyError):
    """Processes of ranks ended under a run; `ranks` maps each to how it ended."""

    def __init__(self, ranks: dict[int, str], message: str) -> None:
        super().__init__(message)
        self.ranks = ranks
        self.results: object = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.ranks, self.message)


class RunGoesOn(SkyError, TimeoutError):
    """A run in the background has not ended after the time that was to be waited."""

    def __init__(self, run: str, seconds: float) -> None:
        super().__init__(f"run {run} has not ended after {seconds:g} s; it goes on")
        self.run = run
        self.seconds = seconds

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.run, self.seconds)


class RunTimeout(SkyError, TimeoutError):
    """A run was stopped after its `timeout`; the text says who waited for whom, the notes where.

    `running` are the ranks that still ran, and `stacks` maps each of them to its threads, with
    `frames` that have a file, a line and a function, innermost first; no threads of one that did
    not answer. `results` holds the values of the ranks that had finished.
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
