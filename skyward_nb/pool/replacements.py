"""Reclaimed machines of a pool, and others in their place.

The ranks of a machine that has ended are lost; a machine whose end is announced is replaced before the next run.
Whether it is, `PoolState` decides.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from skyward_nb.pool.generations import Generations
from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.link import Link, all_or_none
from skyward_nb.pool.state import PoolState
from skyward_nb.protocol.events import Step
from skyward_nb.providers.provider_protocol import Machine, ReplacementRequest, Replaces, Tell
from skyward_nb.system.awaiting import to_its_end
from skyward_nb.words.errors import NotReplaced, SkyError, StartError
from skyward_nb.words.offers import Bill
from skyward_nb.words.reclaimed_machine import ReclaimedMachine, spell_machines
from skyward_nb.words.spec import PoolSpec

_GREET_LIMIT = 60.0
Start = Callable[[Sequence[Machine]], Awaitable[None]]
"""Starts the agents of machines."""


class Replacements:
    """Knows the reclaimed machines of a pool, and replaces them."""

    def __init__(
        self,
        pool_id: str,
        provider: Replaces,
        lines: Lines,
        generations: Generations,
        state: PoolState,
    ) -> None:
        self._state = state
        self._pool_id = pool_id
        self._provider = provider
        self._lines = lines
        self._generations = generations
        self._told: list[str] = []

    def reclaimed(self, link: Link, why: str) -> ReclaimedMachine:
        """The machine of this line, with the reason in words."""
        machine = self._machine(link)
        return ReclaimedMachine(machine.nodes, machine.name, tuple(sorted(link.ranks or ())), why)

    def noticed(self) -> list[ReclaimedMachine]:
        """The machines whose end is announced."""
        return [
            self.reclaimed(link, f"taken back at {link.noticed.at}")
            for link in self._lines.links
            if link.noticed is not None
        ]

    def lacking(self) -> list[ReclaimedMachine]:
        """The machines to replace before the next run."""
        return self._state.lacking(self.noticed())

    def conducted(self) -> None:
        """Have it known that this process is the pool's client."""
        self._provider.conducted(self._pool_id)

    def left(self) -> None:
        """Have it known that this process was it, and has left the pool."""
        self._provider.left(self._pool_id)

    def cheaper(self, bill: Bill) -> Bill:
        """The pool's cost without the machines that have ended."""
        gone = [self._machine(self._link(nodes)) for nodes in self._state.ended_machines]
        return self._provider.cheaper(self._pool_id, gone, bill)

    def words(self) -> tuple[str, ...]:
        """Words on reclaimed machines, and, once, on those in their place."""
        told, self._told = self._told, []
        return (*told, *_coming(self.lacking()))

    def ended_words(self) -> tuple[str, ...]:
        """Words on the machines that have ended."""
        return _coming(self._state.ended_machines.values())

    def replace(
        self,
        spec: PoolSpec,
        lacking: Sequence[ReclaimedMachine],
        terms: Callable[[tuple[Machine, ...], str], ReplacementRequest],
        start: Start,
        tell: Tell,
        watch: Watch,
    ) -> None:
        """Replace machines; raises a `SkyError`, or KeyboardInterrupt.

        After an error the pool is as before, and nothing is left of the new machines. What comes once these are there,
        an interrupt or such as `BudgetSpent`, is raised as it is: the pool has them.
        """
        began = time.monotonic()
        links = [self._link(each.nodes) for each in lacking]
        lost = tuple(map(self._machine, links))
        nodes = tuple(node for each in lacking for node in each.nodes)
        why = spell_machines(lacking)
        watch(Step(nodes, "replace", f"getting another machine for {why}"))
        new = _NewMachines()

        async def replaced() -> None:
            async def readied(machines: Sequence[Machine]) -> None:
                await start(machines)
                await new.reach(machines)

            request = terms(lost, why)
            await new.of(self._provider.replace(spec, self._pool_id, request, readied, tell))

        late: BaseException | None = None
        try:
            self._lines.wait_for(replaced(), watch, "the replacement of machines")
        except (KeyboardInterrupt, SkyError) as error:
            if new.machines and not self._state.has_ended:
                late = error
            else:
                new.hang_up()
                if not isinstance(error, SkyError):
                    raise
                refused = NotReplaced(spec.name, why, spec.nodes - len(nodes), error)
                for note in getattr(error, "__notes__", ()):
                    refused.add_note(note)
                raise refused from error
        connections, new.connections = new.connections, []  # the lines' from now on
        self._exchange(spec, dict(zip(links, new.machines, strict=True)), connections, watch)
        names = ", ".join(machine.name for machine in new.machines)
        text = f"{names} in place of {why}; it took {time.monotonic() - began:.0f} s"
        watch(Step(nodes, "replace", text, done=True))
        self._told.append(text)
        if late is not None:
            raise late

    def _exchange(
        self,
        spec: PoolSpec,
        machines: dict[Link, Machine],
        connections: Sequence[socket.socket],
        watch: Watch,
    ) -> None:
        """Use these machines in place of those of these lines, once their agents have answered."""
        gone = {id(self._machine(link)): new for link, new in machines.items()}
        new: list[Link] = []
        both = zip(machines.items(), connections, strict=True)
        for (link, machine), connection in both:
            new.append(self._lines.exchange(link, machine, spec.slots, connection))
            self._state.has_replaced(machine.nodes)
        self._generations.exchange(gone)
        for _ in self._lines.pump(watch, time.monotonic() + _GREET_LIMIT):
            if all(link.is_greeted for link in new):
                return
        raise StartError(spec.name, f"its agent did not answer in {_GREET_LIMIT:g} s")

    def _link(self, nodes: tuple[int, ...]) -> Link:
        return next(each for each in self._lines.links if self._machine(each).nodes == nodes)

    def _machine(self, link: Link) -> Machine:
        return self._generations.machines[self._lines.links.index(link)]


def _coming(lacking: Iterable[ReclaimedMachine]) -> tuple[str, ...]:
    return tuple(f"{each}; the next run gets another machine in its place" for each in lacking)


class _NewMachines:
    """Machines that belong to a pool once they are reached, also where an interrupt comes then."""

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self.connections: list[socket.socket] = []

    async def reach(self, machines: Sequence[Machine]) -> None:
        """Connect to their agents."""
        self.connections = await all_or_none([each.connect() for each in machines])
        self.machines = [*machines]

    async def of(self, work: Coroutine[Any, Any, Any]) -> None:
        """Await work that makes them. To cancel this cancels it, until they are reached: the rest of it goes to its end."""
        task = asyncio.ensure_future(work)
        try:
            await to_its_end(task, lambda: self.machines or task.cancel())
        except BaseException:
            if task.done() and (task.cancelled() or task.exception() is not None):
                self.machines = []
                self.hang_up()
            raise

    def hang_up(self) -> None:
        """Close the connections to their agents."""
        for each in self.connections:
            each.close()
