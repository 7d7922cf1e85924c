"""The interface between a pool and its machines.

A provider gives machines; a machine starts an agent and opens streams to it. `fake` implements just this.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from skyward_nb.protocol.commands import UseEnvironment
from skyward_nb.protocol.events import CostChanged, Phase, Remark, Step
from skyward_nb.store.content_store import AgentGone as AgentGone
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.node_log_entry import NodeLogEntry
from skyward_nb.words.offers import Bill
from skyward_nb.words.reclaimed_machine import spell_ended
from skyward_nb.words.spec import PoolSpec

Told = Phase | Step | Remark | CostChanged | NodeLogEntry
Tell = Callable[[Told], None]
"""Gets reports while machines are readied: steps are shown, log entries are kept."""


class MachineEnded(AgentGone):
    """A machine has ended, as its cloud says; the text is the reason."""


class MachinesEnded(AgentGone):
    """Machines of a pool have ended; the text has their names and the reasons. `left` counts the others."""

    def __init__(self, ended: Mapping[str, str], left: int) -> None:
        super().__init__(" and ".join(spell_ended(name, why) for name, why in ended.items()))
        self.left = left


class Machine(Protocol):
    """One machine, on which an agent can be started."""

    name: str
    nodes: tuple[int, ...]
    """The nodes of the pool on it."""

    async def start_agent(self, idle: float, ttl: float, preload: list[str]) -> None:
        """Start the agent; returns when it listens. Raises `StartError` with its last words."""
        ...

    async def connect(self) -> socket.socket:
        """Open a stream to the agent: a socket, or one end of a pair.

        Raises `AgentGone` if the agent has ended, OSError if it cannot be reached now.
        """
        ...

    def last_words(self) -> str:
        """The end of the agent's log, for errors without another explanation."""
        ...

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log, at most so many bytes; "" if it cannot be read."""
        ...

    def store(self) -> ContentStore:
        """The machine's content store, always the same."""
        ...

    def leave(self) -> None:
        """Let the agent live on without this client."""
        ...

    async def release(self) -> str | None:
        """Wait until the agent, which was told to stop, is gone; else end it and remove its files.

        Returns the names of machines that may still run and cost money, if any.
        """
        ...


@dataclass(frozen=True)
class InstalledEnvironment:
    """The environment that ranks of a machine are to `use`, and the `earlier` one, which stays.

    `installed` are packages with their versions, in words. Where it `is_new`, ranks have to begin anew in it.
    """

    use: UseEnvironment
    earlier: UseEnvironment
    installed: tuple[str, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether it is another one than before."""
        return self.use != self.earlier


@runtime_checkable
class Installs(Protocol):
    """A machine that makes another environment while the pool is up."""

    async def install(
        self, spec: PoolSpec, present: UseEnvironment, tell: Tell
    ) -> InstalledEnvironment:
        """Make the environment that `spec` asks for; its ranks have the `present` one, and keep it.

        Raises a `SkyError`; nothing has changed then.
        """
        ...


@runtime_checkable
class MayStop(Protocol):
    """A machine that can be stopped at its pool's end, and not ended."""

    def may_stop(self, bill: Bill | None) -> None:
        """Have it stopped by its release, where its pool asks for that and its `bill` has room for it."""
        ...

    def end_for_good(self) -> None:
        """Have it ended by its release, even where another process is about to stop it."""
        ...

    @property
    def kept(self) -> str:
        """After its release: which machines are stopped, until when, at which price, or why none is; or ""."""
        ...


@runtime_checkable
class Bakes(Protocol):
    """A machine of which an image is made at its pool's end; `kept` of `MayStop` says then what came of it."""

    def bake(self, image: str) -> None:
        """Have an image of this name made of it by its release."""
        ...


@runtime_checkable
class KnowsItsEnd(Protocol):
    """A machine whose source says why it has ended: `connect` raises `MachineEnded` then."""

    async def why_ended(self) -> str:
        """Why it has ended; "" if it has not, or that cannot be asked now."""
        ...


class Provider(Protocol):
    """A source of machines."""

    name: str
    shares_files: bool
    """Whether its machines see this machine's files at the same paths."""

    def check(self, spec: PoolSpec) -> None:
        """Raise an error for a spec that cannot work, before anything is started."""
        ...

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[Machine, ...]:
        """The machines of a pool, head first, all or none; `tell` gets progress and costs."""
        ...

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[Machine, ...]:
        """The machines of an existing pool; raises `AgentGone`."""
        ...


@dataclass(frozen=True)
class ReplacementRequest:
    """The `lost` machines of a pool, which are to be replaced, and why.

    `seconds` is the rest of `ttl`, if there is one; `bill` is the pool's bill so far.
    """

    lost: tuple[Machine, ...]
    why: str
    seconds: float | None = None
    bill: Bill | None = None


Readied = Callable[[Sequence[Machine]], Awaitable[None]]
"""Completes the setup of new machines, for example starts their agents."""


@runtime_checkable
class Replaces(Protocol):
    """A provider that replaces reclaimed machines."""

    async def replace(
        self, spec: PoolSpec, pool_id: str, lack: ReplacementRequest, readied: Readied, tell: Tell
    ) -> tuple[Machine, ...]:
        """As many machines as were lost, for the same nodes, all or none; ends the lost ones.

        They belong to the pool once `readied` has returned; if that fails, they are ended again. After a
        `SkyError` the pool is as before.
        """
        ...

    def conducted(self, pool_id: str) -> None:
        """Know that this process is the pool's client from now on, and has its machines replaced."""
        ...

    def left(self, pool_id: str) -> None:
        """Know that this process, which was its client, has left the pool."""
        ...

    def cheaper(self, pool_id: str, lost: Sequence[Machine], bill: Bill) -> Bill:
        """The pool's bill from now on without these machines."""
        ...
