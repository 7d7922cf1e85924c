"""Reclaimed machines of a pool, and others in their place.

The ranks of a machine that has ended are lost; a machine whose end is announced is replaced before the next run.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from skyward_nb.pool.generations import Generations
from skyward_nb.pool.lines import Lines, Watch
from skyward_nb.pool.link import Link, all_or_none
from skyward_nb.pool.state import PoolState
from skyward_nb.protocol.events import RankLost, Step
from skyward_nb.providers.provider_protocol import Machine, ReplacementRequest, Replaces, Tell
from skyward_nb.words.errors import NotReplaced, SkyError, StartError
from skyward_nb.words.offers import Bill
from skyward_nb.words.spec import PoolSpec

_GREET_LIMIT = 60.0
Start = Callable[[Sequence[Machine]], Awaitable[None]]
"""Starts the agents of machines."""


@dataclass(frozen=True)
class ReclaimedMachine:
    """A machine that was reclaimed, or will be, with the reason in words."""

    machine: Machine
    why: str

    def __str__(self) -> str:
        nodes = ", ".join(map(str, self.machine.nodes))
        return f"node {nodes} ({self.machine.name}): {self.why}"


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
        self._taken: dict[Link, ReclaimedMachine] = {}
        self._told: list[str] = []

    @property
    def ended(self) -> tuple[ReclaimedMachine, ...]:
        """The machines that have ended."""
        return tuple(self._taken.values())

    def has_ended(self, link: Link, why: str) -> tuple[RankLost, ...]:
        """Note a machine's end; its lost ranks."""
        self._taken[link] = ReclaimedMachine(self._machine(link), why or "its machine has ended")
        self._note_ended_ranks()
        losses = self.losses()
        return tuple(losses[rank] for rank in sorted(link.ranks or ()))

    def lacking(self) -> dict[Link, ReclaimedMachine]:
        """The machines to replace before the next run: those that have ended, or will."""
        noticed = {
            link: ReclaimedMachine(self._machine(link), f"taken back at {link.noticed.at}")
            for link in self._lines.links
            if link.noticed is not None
        }
        return {**noticed, **self._taken}

    def losses(self) -> dict[int, RankLost]:
        """The ranks that are lost with the machines to replace, with reasons."""
        number = self._state.generation
        return {
            rank: RankLost(number, rank, f"ended with {taken.machine.name} ({taken.why})")
            for link, taken in self.lacking().items()
            for rank in sorted(link.ranks or ())
        }

    def lacking_words(self) -> str:
        """The machines to replace, in words."""
        return "; ".join(map(str, self.lacking().values()))

    def cheaper(self, bill: Bill) -> Bill:
        """The pool's cost without the machines that have ended."""
        gone = [taken.machine for taken in self._taken.values()]
        return self._provider.cheaper(self._pool_id, gone, bill)

    def words(self) -> tuple[str, ...]:
        """Words on reclaimed machines, and, once, on those in their place."""
        told, self._told = self._told, []
        return (*told, *_coming(self.lacking().values()))

    def ended_words(self) -> tuple[str, ...]:
        """Words on the machines that have ended."""
        return _coming(self.ended)

    def replace(
        self,
        spec: PoolSpec,
        terms: Callable[[tuple[Machine, ...], str], ReplacementRequest],
        start: Start,
        tell: Tell,
        watch: Watch,
    ) -> None:
        """Replace machines; raises a `SkyError`, or KeyboardInterrupt.

        After an error the pool is as before, and nothing is left of the new machines.
        """
        lacking = self.lacking()
        began = time.monotonic()
        lost = tuple(each.machine for each in lacking.values())
        nodes = tuple(node for machine in lost for node in machine.nodes)
        why = self.lacking_words()
        watch(Step(nodes, "replace", f"getting another machine for {why}"))
        connections: list[socket.socket] = []

        async def readied(machines: Sequence[Machine]) -> None:
            await start(machines)
            connections.extend(await all_or_none([each.connect() for each in machines]))

        async def replaced() -> tuple[Machine, ...]:
            try:
                return await self._provider.replace(
                    spec, self._pool_id, terms(lost, why), readied, tell
                )
            except BaseException:
                for each in connections:
                    each.close()
                raise

        try:
            machines = self._lines.wait_for(replaced(), watch, "the replacement of machines")
        except SkyError as error:
            refused = NotReplaced(spec.name, why, spec.nodes - len(nodes), error)
            for note in getattr(error, "__notes__", ()):
                refused.add_note(note)
            raise refused from error
        self._exchange(spec, dict(zip(lacking, machines, strict=True)), connections, watch)
        names = ", ".join(machine.name for machine in machines)
        text = f"{names} in place of {why}; it took {time.monotonic() - began:.0f} s"
        watch(Step(nodes, "replace", text, done=True))
        self._told.append(text)

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
            self._taken.pop(link, None)
            self._note_ended_ranks()
        self._generations.exchange(gone)
        for _ in self._lines.pump(watch, time.monotonic() + _GREET_LIMIT):
            if all(link.is_greeted for link in new):
                return
        raise StartError(spec.name, f"its agent did not answer in {_GREET_LIMIT:g} s")

    def _note_ended_ranks(self) -> None:
        self._state.ended_ranks = frozenset(
            rank for link in self._taken for rank in link.ranks or ()
        )

    def _machine(self, link: Link) -> Machine:
        return self._generations.machines[self._lines.links.index(link)]


def _coming(lacking: Iterable[ReclaimedMachine]) -> tuple[str, ...]:
    return tuple(f"{each}; the next run gets another machine in its place" for each in lacking)
