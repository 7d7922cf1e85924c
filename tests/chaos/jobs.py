"""Sequences that are played side by side, each in a process of its own: plain IPython is there once in a process."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count

from chaos.player import Played, play
from chaos.shrink import shortest
from chaos.steps import Sequence, draw

Log = Callable[[str], None]


def play_all(
    seed: int, minutes: float, most: int, jobs: int, plays: int, log: Log | None
) -> Iterator[tuple[int, Played, str]]:
    """Play from this seed on: no sequence begins after so many minutes, nor after `most` of them unless that is 0.

    Gives the seed of each, what came of it, and where it has a defect the shortest part that has one,
    found in so many `plays`.
    """
    end = time.monotonic() + minutes * 60
    seeds = iter(range(seed, seed + most)) if most else count(seed)
    going: dict[Future[tuple[Played, str]], int] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as workers:
        while True:
            while len(going) < jobs and time.monotonic() < end:
                if (each := next(seeds, None)) is None:
                    end = 0.0
                    break
                going[workers.submit(_played, draw(each), plays, log or _say_nothing)] = each
            if not going:
                return
            for each in wait(going, return_when=FIRST_COMPLETED).done:
                yield going.pop(each), *each.result()


def _played(sequence: Sequence, plays: int, log: Log) -> tuple[Played, str]:
    played = play(sequence, log)
    if not played.defect or not plays:
        return played, ""
    tried = sequence.of(sequence.steps[: played.at + 1])
    steps = shortest(tried, lambda part: bool(play(part).defect), plays).steps
    return played, "\n".join(["the shortest part that fails:", *map(repr, steps)])


def _say_nothing(_: str) -> None:
    """Print no step."""
