"""Plays a sequence in a real kernel, with faults, and looks after each step whether all is well."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.oracle import PREPARED, WORLD, Oracle, placed, source
from chaos.place import Place, place
from chaos.steps import (
    MISUSES,
    Down,
    Fault,
    Fill,
    Idle,
    Interrupt,
    Kernel,
    Misuse,
    Part,
    Restart,
    Run,
    Sequence,
    Signal,
    Step,
)
from kernels import Kernel as RealKernel
from kernels import Ran, kernel

from skyward_nb.words import errors

LIMIT = 15.0
"""Seconds that nothing may take, beyond the import of a framework."""
_TRIES = 4
_SAID = {"KeyboardInterrupt", *(name for name in vars(errors) if isinstance(getattr(errors, name), type))}  # fmt: skip
_TELLS_STACKS = (
    "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR2, open({path!r}, 'w'))"
)
_FRAME = re.compile(r"skyward_nb/[a-z_/]+\.py")


class Defect(Exception):
    """Something that may not be, in words."""


@dataclass
class Played:
    """What came of a sequence."""

    defect: str = ""
    at: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    seconds: float = 0.0
    replies_lost: int = 0
    """Cells whose end the kernel did not tell after an interrupt, though it went on: ipykernel's."""


def play(sequence: Sequence, log: Callable[[str], None] = lambda _: None) -> Played:
    """Play a sequence up to its end, or its first defect."""
    played, began = Played(), time.monotonic()
    try:
        with place(sequence.notebook) as where, kernel(**where.env) as running:
            _Player(sequence, where, running, played, log).play()
    except Defect as defect:
        played.defect = str(defect)
    except Exception as error:
        played.defect = f"{type(error).__name__}: {error}"
    played.seconds = time.monotonic() - began
    return played


def import_seconds() -> float:
    """Seconds that the framework's import takes here, now."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.monotonic() - began


class Limit:
    """Seconds that a cell may take with so many imports of a framework, one of which takes what `measure` says."""

    def __init__(self, imports: int, measure: Callable[[], float]) -> None:
        self._imports = imports
        self._measure = measure
        self.seconds = LIMIT + imports * measure()

    def again(self) -> float:
        """Measure again, as others may have begun to work here: by how much the limit has grown."""
        before = self.seconds
        self.seconds = max(before, LIMIT + self._imports * self._measure())
        return self.seconds - before


class _Player:
    def __init__(
        self,
        sequence: Sequence,
        where: Place,
        running: RealKernel,
        played: Played,
        log: Callable[[str], None],
    ) -> None:
        self._sequence = sequence
        self._place = where
        self._kernel = running
        self._played = played
        self._log = log
        self._oracle = Oracle()
        self._base = 0
        # framework=auto has each rank import torch, in the cell that first reads what uses it.
        imports = 2 if sequence.framework else max(WORLD.values())
        self._limit = Limit(imports, import_seconds)

    def play(self) -> None:
        """Play each step, look whether all is well, and end all."""
        self._prepare()
        for index, step in enumerate(self._sequence.steps):
            self._played.at = index
            self._log(f"{index}: {step}")
            self._step(step)
            self._played.steps += 1
            if not isinstance(step, Down):
                self._check_works(step.pool)
        self._down(Down())

    def _step(self, step: Step) -> None:
        match step:
            case Run():
                self._run(step)
            case Misuse():
                self._misuse(step)
            case Idle():
                for fault in step.faults:
                    self._do(step.pool, fault)
            case Fill():
                self._fill(step)
            case Restart():
                self._cell(f"%sky restart pool={step.pool}", step.pool, step.faults)
            case Kernel():
                self._end_kernel(step)
            case Down():
                self._down(step)

    # ── cells ───────────────────────────────────────────────────────────────────────────

    def _remote(self, pool: str, code: str, words: str = "") -> str:
        framework = f"framework={self._sequence.framework}" if self._sequence.framework else ""
        return f"%%sky_remote pool={pool} nodes={WORLD[pool]} {framework} {words}\n{code}"

    def _cell(
        self,
        code: str,
        pool: str = "a",
        faults: tuple[Fault, ...] = (),
        *,
        may_raise: bool = False,
    ) -> Ran:
        """Run a cell, with faults while it runs; it has to end in time, and says what is wrong."""
        timers = [threading.Timer(each.at, self._do, (pool, each)) for each in faults]
        began = time.monotonic()
        message = self._kernel.begin(code)
        for each in timers:
            each.start()
        try:
            ran = self._kernel.finish(message, self._limit.seconds, when_late=self._limit.again)
        except (TimeoutError, queue.Empty) as late:
            ran = self._late(code, faults, late)
        finally:
            for each in timers:
                each.cancel()
                each.join()
        took = time.monotonic() - began
        self._played.longest = max(self._played.longest, took)
        what = code.partition("\n")[0]
        self._log(f"   {took:5.1f} s {what!r}: {ran.error[:2] if ran.error else ran.status}")
        if ran.error:
            self._played.said[ran.error[0]] += 1
            if not may_raise and ran.error[0] not in _SAID:
                raise Defect(f"{what}: an error that is none of skyward's: {ran.traceback[-1500:]}")
            if ran.error[0] != "KeyboardInterrupt" and _FRAME.search(ran.traceback):
                raise Defect(f"{what}: frames of skyward_nb in {ran.traceback[-2500:]}")
        return ran

    def _late(self, code: str, faults: tuple[Fault, ...], late: Exception) -> Ran:
        """A cell has not told its end: it hangs, unless its kernel goes on."""
        what = code.partition("\n")[0]
        if any(isinstance(each, Interrupt) for each in faults):
            with contextlib.suppress(TimeoutError, queue.Empty):
                self._kernel.run("1", 3)
                self._played.replies_lost += 1
                return Ran("lost")
        stacks = self._stacks()
        raise Defect(f"{what}: did not end in {self._limit.seconds:.0f} s: {late}\n{stacks}")

    def _stacks(self) -> str:
        """Where the threads of the kernel are."""
        with contextlib.suppress(OSError):
            os.kill(self._kernel.pid, signal.SIGUSR2)
            time.sleep(0.5)
            return self._place.stacks.read_text()
        return ""

    def _prepare(self) -> None:
        """Run the notebook's first cell in a new kernel, which tells its stacks when asked by a signal."""
        self._cell(PREPARED)
        self._cell(_TELLS_STACKS.format(path=str(self._place.stacks)))

    # ── steps ───────────────────────────────────────────────────────────────────────────

    def _run(self, step: Run) -> None:
        code = source(step.cell, step.n)
        ran = self._cell(self._remote(step.pool, code, "out=got"), step.pool, step.faults)
        if ran.status == "ok" and not step.faults:
            self._compare(step.pool, code)

    def _compare(self, pool: str, code: str) -> None:
        """What came back is what plain IPython gives."""
        got = self._cell("print('@@' + repr(list(got)))").stdout
        wanted = repr(self._oracle.values(pool, code))
        if got.strip() != f"@@{wanted}":
            raise Defect(f"wrong values: {got!r}, and plain IPython gives {wanted}")

    def _check_works(self, pool: str) -> None:
        """The pool gives the right values, or says why not, and then gives them."""
        ran = None
        for number in range(_TRIES):
            self._base += 1
            self._oracle.run(f"base = {self._base}")
            self._cell(f"base = {self._base}")
            code = source("adds", number)
            ran = self._cell(self._remote(pool, code, "out=got"), pool)
            if ran.status == "ok":
                self._compare(pool, code)
                return
            if "sky attach" in ran.traceback:
                self._cell(f"%sky attach pool={pool}", may_raise=True)
            elif number:
                time.sleep(1)
        assert ran is not None
        raise Defect(f"pool {pool} does not come back: {ran.traceback[-1500:]}")

    def _misuse(self, step: Misuse) -> None:
        timeout = f"timeout={step.timeout}s" if step.timeout else ""
        code = self._remote(
            step.pool, placed(MISUSES[step.cell]), f"ranks={step.ranks} out=given {timeout}"
        )
        self._cell(code, step.pool, step.faults, may_raise=True)
        self._played.faults[f"misuse: {step.cell}"] += 1
        if step.restarts:
            self._cell(f"%sky restart pool={step.pool}")

    def _fill(self, step: Fill) -> None:
        if not self._place.has_disks:
            return
        for name in step.places:
            self._place.fill(name, step.spare)
            self._played.faults[f"full disk: {name}"] += 1
        try:
            self._cell(f"big = np.random.rand({step.size})")
            ran = self._cell(self._remote(step.pool, "print('q' * 10_000)\nbig * 2", "out=doubled"))
            if ran.status == "ok":
                same = "print(all(np.array_equal(each, big * 2) for each in doubled))"
                if self._cell(same).stdout.strip() != "True":
                    raise Defect("wrong values on a full disk")
            self._cell(self._remote(step.pool, "5 + 5"))
            if step.then:
                self._cell(f"%sky {step.then} pool={step.pool}")
            if step.then == "down":
                self._cell(self._remote(step.pool, "5 + 5"))
        finally:
            self._place.free()
        self._cell("del big\ndoubled = None")

    def _end_kernel(self, step: Kernel) -> None:
        self._played.faults[f"kernel {step.how}"] += 1
        self._kernel.begin(self._remote(step.pool, source(step.cell, 3)))
        time.sleep(step.at)
        began = time.monotonic()
        if step.how == "terminated":
            os.kill(self._kernel.pid, signal.SIGTERM)
            time.sleep(step.at)
        self._kernel.restart(by_kill=step.how != "restarted")
        took = time.monotonic() - began
        self._log(f"   {took:5.1f} s kernel {step.how}")
        if took > self._limit.seconds + 5:
            raise Defect(f"the kernel took {took:.1f} s to be {step.how}")
        self._prepare()
        match step.then:
            case "attach":
                self._cell(f"%sky attach pool={step.pool}", may_raise=True)
            case "down":
                self._cell("%sky down all")
            case "status":
                self._cell("%sky status")

    def _down(self, step: Down) -> None:
        which = f"pool={step.pool}" if step.pool else "all"
        self._cell(f"%sky down {which}", step.pool or "a", step.faults)
        if step.faults:
            self._cell("%sky down all")
        if step.pool and not step.faults:
            return
        # What kernels have left that were killed, a person ends from anywhere.
        said = self._place.command("down", "all")
        if left := self._place.left_after(LIMIT, self._kernel.pid):
            raise Defect(f"left after down ({said.strip()}): {left}")

    # ── faults ──────────────────────────────────────────────────────────────────────────

    def _do(self, pool: str, fault: Fault) -> None:
        if isinstance(fault, Interrupt):
            self._played.faults["interrupt"] += 1
            self._kernel.interrupt()
            return
        pids = self._pids(pool, fault)
        if not pids:
            return
        pid = pids[len(pids) // 2]
        self._played.faults[str(fault)] += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, fault.number)
        if fault.number == signal.SIGSTOP:
            time.sleep(fault.stopped)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _pids(self, pool: str, fault: Signal) -> list[int]:
        if fault.part is Part.KERNEL:
            return [self._kernel.pid]
        return self._place.pids(fault.part, pool)
