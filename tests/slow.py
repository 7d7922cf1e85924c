"""A cell that takes a while and prints meanwhile, and what is known of runs that go on."""

from __future__ import annotations

import time

from waiting import until

from skyward_nb.pool import registry

SLOW = """
import os, time
kept = 5
for i in range(60):
    print('line', i, flush=True)
    time.sleep(0.02)
    while i == 40 and not os.path.exists({told!r}):
        time.sleep(0.02)
'the end'
"""
LINES = [f"line {i}" for i in range(60)]


class Slow:
    """A cell that takes a while, and does not end before it is let."""

    def __init__(self, told):
        self._told = told

    def __str__(self):
        return SLOW.format(told=str(self._told))

    def may_end(self):
        self._told.touch()


def running():
    """How many pools run something."""
    found = [registry.condition(entry) for entry in registry.entries()]
    return sum(each is not None and bool(each.running) for each in found)


def until_it_runs(pools=1):
    """Wait until runs go on in so many pools, and are a moment old."""
    until(lambda: running() >= pools)
    time.sleep(0.3)


def until_it_is_seen():
    """Wait until the pool knows that its last run was shown: it is told a moment after the cell."""
    (entry,) = registry.entries()
    until(lambda: (now := registry.condition(entry)) is not None and now.unseen is None)


def said(picture):
    """The lines that both ranks printed, as the picture has them."""
    return [line.partition("] ")[2] for line in picture.splitlines() if "] line" in line]
