"""What commands and events are made of, both ways.

A user's values travel inside `Packed` as bytes that only the kernel and the ranks ever unpickle.
"""

from __future__ import annotations

import msgspec


class Packed(msgspec.Struct, frozen=True):
    """A pickled value: inline as `data`, or in the machine's store under `digest`."""

    digest: str
    size: int
    data: bytes | None = None
    on_disk: bool = False


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who conducts a pool: a process by its number and start, and the notebook it runs.

    `program` says who it is where it is no kernel.

    `key` is drawn anew by each client: one that comes again with the same key goes on.
    """

    key: str
    pid: int
    host: str
    since: float
    notebook: str = ""
    program: str = ""


class RunCard(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever attaches must know to show a run and to end it: the cell and its options.

    `values` says whether the cell ends with a value, `began` when it did (seconds since 1970).
    What is no cell has a `name` instead of a number: a script's.
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

    @property
    def what(self) -> str:
        """What runs, in words: `Cell In[3]`, `train.py`."""
        return f"Cell In[{self.number}]" if self.number else self.name or "a run"


class Endpoint(msgspec.Struct, frozen=True):
    """An address of a machine at which it listens for the others, on `port`, by its own `number`."""

    number: int
    address: str
    interface: str
    port: int
