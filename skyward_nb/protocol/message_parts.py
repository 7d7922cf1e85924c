"""Parts of commands and events.

A user's values travel inside `Packed`, as bytes that only the client and the ranks unpickle.
"""

from __future__ import annotations

import msgspec

RUN_VALUE = "the run's value"
"""The name of what a cell's last expression gave, where others are names of variables."""


class Packed(msgspec.Struct, frozen=True):
    """A pickled value: inline as `data`, or in the machine's store under `digest`."""

    digest: str
    size: int
    data: bytes | None = None
    on_disk: bool = False


FIRST_CLIENT: float = 20.0
"""Seconds for which an agent waits for its first client, at least: that has just had it started, and may be held up."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The client of a pool: a process by its pid and start, and its notebook.

    `program` names a client that is no kernel. Each client draws its own `key`; it attaches again
    with the same one to go on where it was.
    """

    key: str
    pid: int
    host: str
    since: float
    notebook: str = ""
    program: str = ""


class RunCard(msgspec.Struct, frozen=True, kw_only=True):
    """All that another client needs to show a run and to end it: the cell and its options.

    `values` says whether the cell ends with a value, `began` is in seconds since 1970.
    A script has a `name` instead of a number; its folder `root` is `folder` on machines elsewhere, of which it
    has files to `fetch`.
    """

    number: int = 0
    filename: str = ""
    text: str = ""
    began: float = 0.0
    values: bool = False
    out: str = ""
    pull: tuple[str, ...] = ()
    gather: str = "all"
    stdout: str = "all"
    stderr: str = "all"
    most_text: int | None = None
    limit: int | None = None
    writes: tuple[str, ...] = ()
    detached: bool = False
    timeout: float | None = None
    on_error: str = "stop"
    profile: str = ""
    name: str = ""
    root: str = ""
    folder: str = ""
    fetch: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """What runs, in words: `Cell In[3]`, `train.py`."""
        return f"Cell In[{self.number}]" if self.number else self.name or "a run"


class Endpoint(msgspec.Struct, frozen=True):
    """An address at which a machine listens for others, on `port`; `number` identifies it."""

    number: int
    address: str
    interface: str
    port: int


class Gpu(msgspec.Struct, frozen=True):
    """An accelerator, from its driver: bytes of memory, percent in use, degrees Celsius.

    None where the driver does not know, as for the load of a MIG slice.
    """

    used: int
    total: int
    busy: int | None = None
    celsius: int | None = None


class Frame(msgspec.Struct, frozen=True):
    """One place in a traceback: a label (`Cell In[3]`), line, source text."""

    where: str
    line: int
    text: str


class CodeFrame(msgspec.Struct, frozen=True):
    """One frame of a traceback, for another process to show."""

    file: str
    line: int
    function: str


class RaisedError(msgspec.Struct, frozen=True, kw_only=True):
    """An exception of a rank: itself if it can be pickled, and its frames from the user's outermost on.

    `suppresses`: Python shows its cause before it, if it has one, and not its context.
    """

    type_name: str
    message: str
    value: Packed | None
    frames: tuple[CodeFrame, ...] = ()
    suppresses: bool = False


class Failure(RaisedError, frozen=True, kw_only=True):
    """An exception that a rank raised, with its traceback.

    `before` are those that Python shows before it, the latest first: each is the cause or the context of the
    one that came of it.
    """

    at: Frame | None
    traceback: tuple[str, ...]
    before: tuple[RaisedError, ...] = ()


class Unsendable(msgspec.Struct, frozen=True):
    """A value of a rank that could not be returned: the fields of a `PayloadError`.

    `size` is in bytes if it was over the limit, else 0. `shown` is the repr of a run's value.
    """

    name: str
    path: str
    type_name: str
    reason: str
    size: int = 0
    shown: str = ""


class Rejected(msgspec.Struct, frozen=True):
    """A parcel that could not be rebuilt on a rank.

    `missing` is the module that it lacks, if any; `gone`: an object that it refers to is gone.
    """

    labels: tuple[str, ...]
    reason: str
    missing: str = ""
    gone: bool = False


class Variable(msgspec.Struct, frozen=True):
    """A name of a rank: its type, about how many bytes it holds, and the cell that bound it.

    `cell` is 0 for a name sent by the notebook, -1 for one that no known cell bound.
    `at_least`: counting bytes stopped early.
    """

    name: str
    type_name: str
    size: int
    at_least: bool = False
    cell: int = 0
