"""Machines of a pool that have ended, or will, and words for them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class ReclaimedMachine(msgspec.Struct, frozen=True):
    """A machine that has ended, or will, with the reason in words."""

    nodes: tuple[int, ...]
    name: str
    ranks: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        return f"node {', '.join(map(str, self.nodes))} ({self.name}): {self.why}"


def spell_machines(machines: Iterable[ReclaimedMachine]) -> str:
    """Machines and the reasons, in words."""
    return "; ".join(map(str, machines))


def spell_ended(machine: str, why: str) -> str:
    """The words that a machine has ended, and why, if that is known."""
    return f"the machine {machine} has ended{f' ({why})' if why else ''}"
