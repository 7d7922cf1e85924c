"""Sequences as data: cells and faults, drawn by a seed. Pure: nothing here starts anything."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, replace
from enum import Enum


class Part(Enum):
    """A process that a signal is sent to."""

    KERNEL = "kernel"
    AGENT = "agent"
    FORGE = "forge"
    RANK = "rank"


@dataclass(frozen=True)
class Signal:
    """A signal to a part of the pool, `at` seconds after its cell began.

    A part that was stopped is continued `stopped` seconds later.
    """

    part: Part
    number: int
    at: float
    stopped: float = 0.0

    def __str__(self) -> str:
        return f"{self.part.value}: {signal.Signals(self.number).name}"


@dataclass(frozen=True)
class Interrupt:
    """The stop button, `at` seconds after its cell began."""

    at: float

    def __str__(self) -> str:
        return "interrupt"


Fault = Signal | Interrupt

CELLS = {
    "adds": "base * 10 + rank + {n}",
    "prints": "for i in range({n} * 40):\n    print('line', i)\nbase + rank",
    "sums": "import numpy as np\nint(np.arange({n} * 100_000).sum()) + rank",
    "sleeps": "import time\ntime.sleep(0.3)\n[base, rank, {n}]",
    "ticks": "import time\nfor i in range(20):\n    print('tick', i, flush=True)\n    time.sleep(0.02)\nrank * {n}",
    "bar": "import time\nimport skyward_nb as sky\nfor i in sky.progress(range(30)):\n    time.sleep(0.01)\ni + rank",
    "function": "def twice(value):\n    return helper(value) * 2\n[twice(base), rank]",
    "large": "float(large[{n}]) + large.size + rank",
    "collective": "add_up(base + {n}) + rank",
    "collectives": "[add_up(base + i) for i in range({n})]",
}
"""Cells that ranks run, and that give their values in plain IPython, too."""

MISUSES = {
    "raises": "raise ValueError('x' * 40)",
    "exits": "import os\nos._exit(3)",
    "kills itself": "import os\nos.kill(os.getpid(), 9)",
    "segfaults": "import ctypes\nctypes.string_at(0)",
    "leaves": "import sys\nsys.exit(2)",
    "closes descriptors": "import os\nos.closerange(3, 4000)",
    "closes output": "import os\nos.close(1)\nos.close(2)",
    "loses sys.stdout": "import sys\nsys.stdout = None",
    "empties its environment": "import os, sys\nos.environ.clear()\nsys.path.clear()\nos.chdir('/')",
    "ignores signals": "import signal\n[signal.signal(s, signal.SIG_IGN) for s in (2, 15, 1, 10)]",
    "blocks signals": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "loses builtins": "import builtins\nbuiltins.print = None\nbuiltins.open = None",
    "leaves threads": "import threading, time\n[threading.Thread(target=time.sleep, args=(500,)).start() for _ in range(30)]",
    "leaves sessions": "import subprocess\n[subprocess.Popen(['setsid', 'sleep', '600']) for _ in range(5)]",
    "forks four times": "import os\nfor _ in range(4):\n    os.fork()\n1",
    "forks and waits": "import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()",
    "prints much": "print('y' * 3_000_000)",
    "prints bytes": "import os\nos.write(1, os.urandom(100_000))",
    "too large": "bytearray(10 ** 15)",
    "cannot travel": "import threading\nthreading.Lock()",
    "recurses": "def deeper(n):\n    return deeper(n + 1)\ndeeper(0)",
    "cancels": "import asyncio\nawait asyncio.sleep(0.05)\nraise asyncio.CancelledError",
    "ends its forge": "import os\nos.kill(os.getppid(), 15)",
    "kills its forge": "import os\nos.kill(os.getppid(), 9)",
    "kills its group": "import os\nos.killpg(0, 9)",
    "few descriptors": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (15, 15))",
    "loops": "while True:\n    pass",
    "loops on": "try:\n    while True:\n        pass\nexcept BaseException:\n    pass\nwhile True:\n    pass",
    "sleeps on": "import time\nfor _ in range(10 ** 6):\n    time.sleep(0.01)",
    "loses time": "import time\ntime.time = time.monotonic = time.sleep = lambda *_: 0",
    "shared memory": "from multiprocessing import shared_memory\nshared_memory.SharedMemory(create=True, size=4096).name",
    "half a collective": "assert rank\nadd_up(1)",
    "no collective": "import time\nif rank == 0:\n    time.sleep(100)\nadd_up(1)",
}
"""Cells that misbehave; what they give is not compared."""

ENDLESS = ("loops", "loops on", "sleeps on", "no collective", "half a collective")
HARMLESS = ("raises", "prints much", "prints bytes", "too large", "cannot travel", "recurses", "cancels", "forks and waits")  # fmt: skip
"""Misuses after which the next cell finds its rank as it was, or a new one."""


@dataclass(frozen=True)
class Run:
    """A cell with a value, on all ranks of a pool; faults while it runs."""

    pool: str
    cell: str
    n: int
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Misuse:
    """A cell that misbehaves, on `ranks`; perhaps a restart of the pool after it."""

    pool: str
    cell: str
    ranks: str = "all"
    timeout: int = 0
    restarts: bool = False
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Idle:
    """Faults between cells."""

    pool: str
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Fill:
    """Full disks, but for `spare` bytes: a large value is sent, and the pool is perhaps made anew."""

    pool: str
    places: tuple[str, ...]
    spare: int
    size: int
    then: str


@dataclass(frozen=True)
class Restart:
    """`%sky restart`, with interrupts perhaps."""

    pool: str
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """The kernel ends while a cell runs: killed, or restarted by the front end; `then` a verb in the next."""

    pool: str
    cell: str
    how: str
    at: float
    then: str


@dataclass(frozen=True)
class Down:
    """`%sky down` of one pool, or of all if it is empty; nothing may be left."""

    pool: str = ""
    faults: tuple[Fault, ...] = ()


Step = Run | Misuse | Idle | Fill | Restart | Kernel | Down


@dataclass(frozen=True)
class Sequence:
    """What is played in one kernel; in a `notebook` with a name, the next kernel finds its pools."""

    steps: tuple[Step, ...]
    framework: str = ""
    notebook: str = ""
    seed: int = 0

    def of(self, steps: tuple[Step, ...]) -> Sequence:
        """The same with other steps."""
        return replace(self, steps=steps)


_SIGNALS = (9, 9, 9, 15, 11, 6, 2, 1, signal.SIGUSR1, signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH)  # fmt: skip
_DISKS = (("store",), ("spill",), ("logs",), ("store", "spill"), ("store", "spill", "logs"))


def draw(seed: int, *, length: int = 10) -> Sequence:
    """The sequence of a seed: the same whenever it is drawn."""
    dice = random.Random(seed)
    framework = "torch" if dice.random() < 0.2 else ""
    notebook = "chaos.ipynb" if dice.random() < 0.5 else ""
    steps = tuple(_step(dice) for _ in range(length))
    return Sequence(steps, framework, notebook, seed)


def _step(dice: random.Random) -> Step:
    pool = dice.choice("aaab")
    kinds = (Run, Idle, Misuse, Fill, Restart, Kernel, Down)
    match dice.choices(kinds, (7, 2, 6, 2, 2, 3, 2))[0]:
        case kind if kind is Run:
            return Run(pool, _cell(dice), dice.randint(1, 9), _faults(dice))
        case kind if kind is Idle:
            return Idle(pool, (_signal(dice, 0.0),))
        case kind if kind is Misuse:
            return _misuse(dice, pool)
        case kind if kind is Fill:
            spare, size = dice.choice((0, 0, 1 << 20, 40 << 20)), 10 ** dice.randint(1, 6)
            then = dice.choice(("", "", "restart", "down"))
            return Fill(pool, dice.choice(_DISKS), spare, size, then)
        case kind if kind is Restart:
            return Restart(pool, _presses(dice) if dice.random() < 0.4 else ())
        case kind if kind is Kernel:
            how = dice.choice(("killed", "killed", "terminated", "restarted"))
            then = dice.choice(("attach", "down", "status", ""))
            return Kernel(pool, _cell(dice), how, dice.uniform(0, 1.2), then)
        case _:
            faults = _presses(dice) if dice.random() < 0.3 else ()
            return Down(dice.choice(("", "", pool)), faults)


def _cell(dice: random.Random) -> str:
    return dice.choice(list(CELLS))


def _misuse(dice: random.Random, pool: str) -> Misuse:
    cell = dice.choice(list(MISUSES))
    is_endless = cell in ENDLESS
    faults = _presses(dice) if dice.random() < (0.6 if is_endless else 0.2) else ()
    return Misuse(
        pool,
        cell,
        ranks=dice.choice(("all", "all", "1", "0")),
        timeout=1 if is_endless else dice.choice((0, 0, 2)),
        restarts=cell not in HARMLESS,
        faults=faults,
    )


def _faults(dice: random.Random) -> tuple[Fault, ...]:
    """None, one signal, or one to three interrupts."""
    chance = dice.random()
    if chance < 0.25:
        return ()
    return (_signal(dice, dice.uniform(0, 1)),) if chance < 0.65 else _presses(dice)


def _presses(dice: random.Random) -> tuple[Fault, ...]:
    return tuple(Interrupt(dice.uniform(0, 1.2)) for _ in range(dice.choice((1, 2, 2, 3))))


def _signal(dice: random.Random, at: float) -> Signal:
    part = dice.choice((Part.RANK, Part.RANK, Part.AGENT, Part.FORGE, Part.KERNEL))
    if part is Part.KERNEL or dice.random() < 0.3:
        return Signal(part, signal.SIGSTOP, at, dice.uniform(0.2, 3))
    return Signal(part, dice.choice(_SIGNALS), at)
