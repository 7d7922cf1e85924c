"""The shortest part of a failed sequence that still fails: delta debugging. Pure.

Source: A. Zeller and R. Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chaos.steps import Down, Idle, Misuse, Restart, Run, Sequence, Step

Steps = tuple[Step, ...]


def shortest(sequence: Sequence, fails: Callable[[Sequence], bool], most: int = 40) -> Sequence:
    """The shortest sequence found in `most` plays of which `fails` is true; the whole one if it never is."""
    left = most

    def tried(steps: Steps) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(sequence.of(steps))

    steps = _fewest(sequence.steps, tried)
    return sequence.of(_without_faults(steps, tried))


def _fewest(steps: Steps, fails: Callable[[Steps], bool]) -> Steps:
    """Leave out ever smaller parts, as long as it fails without them."""
    parts = 2
    while len(steps) > 1:
        size = -(-len(steps) // parts)
        for begin in range(0, len(steps), size):
            rest = steps[:begin] + steps[begin + size :]
            if rest and fails(rest):
                steps, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(steps))
    return steps


def _without_faults(steps: Steps, fails: Callable[[Steps], bool]) -> Steps:
    """Leave out single faults, as long as it fails without them."""
    for index, step in enumerate(steps):
        if not isinstance(step, Run | Misuse | Idle | Restart | Down):
            continue
        for fault in step.faults:
            kept = tuple(each for each in steps[index].faults if each is not fault)
            other = (*steps[:index], replace(steps[index], faults=kept), *steps[index + 1 :])
            if fails(other):
                steps = other
    return steps
