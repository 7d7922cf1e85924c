"""The seam between a pool and the machines it lives on.

A provider gives machines; a machine can start an agent and be talked to. A fake one needs
these few names and nothing else.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from skyward_nb.protocol.events import CostChanged, Phase, Remark, Step
from skyward_nb.store.content_store import AgentGone as AgentGone
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.node_log_entry import NodeLogEntry
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec

Told = Phase | Step | Remark | CostChanged | NodeLogEntry
Tell = Callable[[Told], None]
"""Hears what goes on while machines are readied: steps are shown, words on a node are kept."""


class MachineEnded(AgentGone):
    """A machine is no more, as who rents it out says; the text is why."""


class MachinesEnded(AgentGone):
    """Machines of a pool are no more, which the text names, and why; there are so many others `left`."""

    def __init__(self, ended: Mapping[str, str], left: int) -> None:
        super().__init__(" and ".join(spell_ended(name, why) for name, why in ended.items()))
        self.left = left


def spell_ended(machine: str, why: str) -> str:
    """That a machine has ended, and why, where that is known."""
    return f"the machine {machine} has ended{f' ({why})' if why else ''}"


class Machine(Protocol):
    """One machine, on which an agent can be started."""

    name: str
    nodes: tuple[int, ...]
    """Which nodes of the pool live on it."""

    async def start_agent(self, idle: float, ttl: float, preload: list[str]) -> None:
        """Start the agent; returns when it listens. Raises `StartError` with its last words."""
        ...

    async def connect(self) -> socket.socket:
        """Open a stream to the agent. A provider whose line is no socket gives one end of a pair.

        Raises `AgentGone` when there will be none any more, OSError when there is none now.
        """
        ...

    def last_words(self) -> str:
        """The end of the agent's log, for errors that nothing else explains."""
        ...

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log, of so many bytes; "" when it cannot be had, or there is none."""
        ...

    def store(self) -> ContentStore:
        """The machine's content store, always the same."""
        ...

    def leave(self) -> None:
        """Let the agent live on without us."""
        ...

    async def release(self) -> str | None:
        """Wait until the agent, told to stop, is gone; end it and remove its files otherwise.

        Returns what may run on all the same, and costs, where there is anything.
        """
        ...


class Provider(Protocol):
    """A source of machines."""

    name: str
    shares_files: bool
    """Whether its machines see this machine's files under the same names."""

    def check(self, spec: PoolSpec) -> None:
        """Raise what would hinder a pool of this spec, before anything is started."""
        ...

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[Machine, ...]:
        """The machines of a pool, head first, all or none; `tell` hears what goes on, and what they cost."""
        ...

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[Machine, ...]:
        """The machines of a pool that was made before, by whomever; raises `AgentGone`."""
        ...


@dataclass(frozen=True)
class ReplacementRequest:
    """What a pool lacks: the `lost` machines, others of which are to be had, and why, in words.

    `seconds` is how much of `ttl` is left, where there is one; `bill` what the pool costs and has cost.
    """

    lost: tuple[Machine, ...]
    why: str
    seconds: float | None = None
    bill: Bill | None = None


Readied = Callable[[Sequence[Machine]], Awaitable[None]]
"""Does what is left to do for machines to be of use, such as starting their agents."""


@runtime_checkable
class Replaces(Protocol):
    """A provider that gives other machines in the place of those that were taken back."""

    async def replace(
        self, spec: PoolSpec, pool_id: str, lack: ReplacementRequest, readied: Readied, tell: Tell
    ) -> tuple[Machine, ...]:
        """As many machines as were lost, for the same nodes, all or none; and the lost ones are ended.

        They are the pool's once `readied` has returned; when that fails they are ended again. Raises
        a `SkyError`, and leaves the pool as it was then.
        """
        ...

    def cheaper(self, pool_id: str, lost: Sequence[Machine], bill: Bill) -> Bill:
        """What the pool costs from now on without these machines."""
        ...
