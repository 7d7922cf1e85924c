"""Thousands of mixed cells in one kernel, and what it holds meanwhile: `make soak-kernel CELLS=10000`.

Prints a row every 500 cells: memory of the kernel, how much of it is values of ranks, its descriptors and threads;
memory of the agent, the forge and the ranks; bytes in the store.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
from kernels import Kernel, kernel

from skyward_nb.providers.folders import store_root

EVERY = 500
_LONGEST = 60
_BEGINNING = """
import skyward_nb as sky, numpy as np
from IPython.display import HTML, display
globals().update({f"y{i}": i for i in range(50)})
"""
CELLS: tuple[Callable[[int], str], ...] = (
    lambda i: f"%%sky_remote\nx = {i}\nx",
    lambda i: f"%%sky_remote out=v\nprint('line {i}')\n[x] * 10",
    lambda i: f"y{i % 50} = {i}",
    lambda i: f"%%sky_remote push=y{i % 50}\ny{i % 50} + 1",
    lambda i: (
        f"def fn(a): return a + {i}\nclass Kl:\n    v = {i}\n    def m(self): return fn(self.v)"
    ),
    lambda i: "%%sky_remote out=w\nfn(3), Kl().m(), Kl()",
    lambda i: f"arr = np.full(700_000, {i}.)",
    lambda i: "%%sky_remote out=arr2\narr * 2",
    lambda i: f"%%sky_remote\narr + sky.instance_info().rank + {i}",
    lambda i: f"%%sky_remote\nraise ValueError({i})",
    lambda i: f"%%sky_remote\ndisplay(HTML('<b>{i}'))\nfor j in range(20): print(j)",
    lambda i: f"%%sky_remote out=q{i % 30}\nname_{i % 200} = list(range(100))\nname_{i % 200}",
    lambda i: "%%sky_remote ranks=1\nfrom tqdm.auto import tqdm\nfor j in tqdm(range(30)): pass",
    lambda i: "%sky vars",
    lambda i: "%sky status",
    lambda i: "obj = [object() for _ in range(100)]; obj.append(obj)",
    lambda i: "%%sky_remote\nlen(obj)",
    lambda i: f"%%sky_remote detach\n{i}",
    lambda i: "%%sky_remote timeout=1s\nimport time\ntime.sleep(9)" if i % 20 == 0 else "1",
    lambda i: "%%sky_remote\nbad syntax here(",
)
"""Each makes a cell of its number; some of them are meant to fail."""
MEANT = {"ValueError", "RunTimeout", "SyntaxError", "NameError", "PoolError"}
"""How cells may fail: `PoolError` while a cell runs in the background."""


@dataclass
class Held:
    """What a kernel holds: megabytes of memory, and of these such as are mapped values, descriptors, threads."""

    memory: float
    values: float
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return f"{self.memory:9.1f}  {self.values:9.1f}  {self.descriptors:5}  {self.threads:7}"


def held(running: Kernel) -> Held:
    """What a kernel holds now."""
    process = psutil.Process(running.pid)
    values = sum(each.rss for each in process.memory_maps() if "skyward_nb" in each.path)
    with process.oneshot():
        memory = process.memory_info().rss
        return Held(memory / 1e6, values / 1e6, process.num_fds(), process.num_threads())


def begin(running: Kernel) -> None:
    """Have what the cells need in a kernel, and a pool."""
    for cell in (_BEGINNING, "%%sky_remote nodes=2\n1"):
        ran = running.run(cell, 120)
        assert ran.status == "ok", ran


def play(running: Kernel, numbers: range, dice: random.Random) -> None:
    """Run a mixed cell for each number; prints those that fail and are not meant to."""
    for number in numbers:
        cell = dice.choice(CELLS)(number)
        ran = running.run(cell, _LONGEST)
        if ran.status != "ok" and (ran.error is None or ran.error[0] not in MEANT):
            print(f"cell {number} fails: {cell}\n{ran.error or ran.stderr}", flush=True)


def main(count: int) -> None:
    """Run so many cells; prints the figures."""
    dice, began = random.Random(5), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sky-soak-") as folder:
        for name in ("RUNTIME", "LOG", "STATE"):
            os.environ[f"SKYWARD_{name}_DIR"] = f"{folder}/{name}"
        with kernel(IPYTHONDIR=f"{folder}/ipython", OMP_NUM_THREADS="1") as running:
            begin(running)
            print(" cells  seconds  kernel MB  values MB  descr.  threads  others MB  store MB")
            for first in range(0, count + 1, EVERY):
                figures = f"{held(running)}  {_others(folder) / 1e6:9.1f}  {_store() / 1e6:8.1f}"
                print(f"{first:6}  {time.monotonic() - began:7.0f}  {figures}", flush=True)
                play(running, range(first, min(first + EVERY, count)), dice)


def _others(folder: str) -> int:
    """Bytes of memory of the pool's agent, and what descends from it: forge and ranks."""
    found = 0
    for each in psutil.process_iter(["cmdline"]):
        if folder in " ".join(each.info["cmdline"] or ()):
            below = (each, *each.children(recursive=True))
            found += sum(process.memory_info().rss for process in below)
    return found


def _store() -> int:
    return sum(each.stat().st_size for each in store_root().rglob("*") if each.is_file())


if __name__ == "__main__":
    main(int(sys.argv[1]))
