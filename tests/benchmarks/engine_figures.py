"""Figures of a pool on an engine beside the engine's own command that runs a program on a node: a warm cell, large values."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Callable
from statistics import median

from contenders import OURS
from pools import request, values

from skyward_nb.pickling.payload import unpack
from skyward_nb.pool.pool import Pool

SIZE = 256 << 20
ROUNDS = 3
Figure = Callable[[str, str, str, bool], None]


def seconds(step: Callable[[], object]) -> float:
    """How long a step takes."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def of_engine(
    engine: str, peer: str, prefixes: list[list[str]], pool: Pool, figure: Figure
) -> None:
    """Note the figures of a pool; `prefixes` is, by node, the `peer` command before a program and its words."""
    here = len(prefixes)
    nodes = f"{here} node{'s' * (here > 1)}"

    def executed(*words: str, data: bytes = b"") -> None:
        for prefix in prefixes:
            subprocess.run([*prefix, *words], input=data, check=True)

    def beside(what: str, ours: list[float], theirs: list[float], who: str) -> None:
        own, other = median(ours), median(theirs)
        text = f"{OURS} {own:.2f} s, {who} {other:.2f} s: {own / other:.2f} ×"
        figure(f"{engine}: {what}", text, f"1.5 × {peer}", own <= 1.5 * other)

    def cell() -> None:
        pool.run(request(pool, "x = 1"), lambda _: None)

    pool.look(lambda _: None)
    for _ in range(20):
        cell()
    warm = median(seconds(cell) for _ in range(100))
    own = median(seconds(lambda: executed("true")) for _ in range(ROUNDS))
    figure(
        f"{engine}: a warm cell, x = 1 on {nodes}",
        f"{OURS} {1000 * warm:.1f} ms, {peer} true {1000 * own:.0f} ms",
        f"{peer} true",
        warm < own,
    )
    sent, copied = [], []
    for _ in range(ROUNDS):
        large = os.urandom(SIZE)
        sent.append(seconds(lambda large=large: values(pool, "len(big)", {"big": large})))
        copied.append(
            seconds(
                lambda large=large: executed(
                    "dd", "of=/dev/null", "bs=1M", "status=none", data=large
                )
            )
        )
    beside(f"256 MB to {nodes}", sent, copied, peer if here == 1 else f"{peer} one after the other")

    def give_back() -> None:
        pool.look(lambda _: None)
        body = f"import os\nos.urandom({SIZE}) if os.environ['RANK'] == '{here - 1}' else None"
        whole = dataclasses.replace(request(pool, body), limit=1 << 30)
        outcome = pool.run(whole, lambda _: None)
        assert len(unpack(outcome.done[here - 1].value, pool.store)) == SIZE

    def read_back() -> None:
        words = [*prefixes[-1], "head", "-c", str(SIZE), "/dev/urandom"]
        ran = subprocess.run(words, stdout=subprocess.PIPE, check=True)
        assert len(ran.stdout) == SIZE

    got, read = [], []
    for _ in range(ROUNDS):
        got.append(seconds(give_back))
        read.append(seconds(read_back))
    beside("256 MB from a node", got, read, peer)
