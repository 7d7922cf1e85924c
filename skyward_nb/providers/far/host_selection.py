"""Chooses the hosts of a pool: those that accept the login and have what is asked for.

All are tried at once. As soon as there are enough, the others get one more second.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Generic, TypeVar

from skyward_nb.bootstrap import instance_store
from skyward_nb.bootstrap.cuda_builds import driver_fault
from skyward_nb.bootstrap.machine_facts import MachineFacts, described, probe, spell_gpus
from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.bootstrap.requirements import image_of
from skyward_nb.protocol.events import Phase
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.provider_protocol import Tell
from skyward_nb.words.errors import HostError, HostNotReady
from skyward_nb.words.mig import is_called
from skyward_nb.words.node_log_entry import node_log_entries
from skyward_nb.words.scratch import FOLDER
from skyward_nb.words.spec import PoolSpec

L = TypeVar("L", bound=Line)
_GRACE = 1.0
_SLOW = 2.0
_DRIVER_PATIENCE, _DRIVER_PAUSE = 300.0, 5.0
"""Seconds in which the driver of a rented machine may come up after the machine, and between two looks."""


@dataclass(frozen=True)
class HealthyHost(Generic[L]):
    """A host after its login, and its facts."""

    line: L
    facts: MachineFacts


async def choose(
    spec: PoolSpec, lines: list[L], tell: Tell
) -> tuple[list[HealthyHost[L]], dict[str, str]]:
    """Healthy hosts, at least `nodes` of them, in the order they were written; and the faults of others.

    Raises `HostError` as soon as too few are left.
    """
    loop = asyncio.get_running_loop()
    asking = {loop.create_task(_healthy(spec, line, tell)): line for line in lines}
    found: dict[L, MachineFacts] = {}
    faults: dict[str, str] = {}
    waiting = set(asking)
    spare = len(lines) - spec.nodes
    try:
        while waiting:
            enough = len(found) >= spec.nodes
            tell(
                Phase(_progress(found, faults, [asking[task] for task in waiting], spec, lines[0]))
            )
            done, waiting = await asyncio.wait(
                waiting, timeout=_GRACE if enough else _SLOW, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                _take(task, asking[task], found, faults)
            if len(faults) > spare:
                # Others may fail at the same moment, and one error names all of them.
                _, waiting = (
                    await asyncio.wait(waiting, timeout=_GRACE) if waiting else ((), waiting)
                )
                for task in set(asking) - waiting:
                    _take(task, asking[task], found, faults)
                raise HostError(spec.name, faults, spec.nodes, len(lines))
            if enough and not done:
                break
    finally:
        for task in waiting:
            task.cancel()
        await _gone(waiting)
    for task in waiting:
        faults[asking[task].name] = slow = "it is slow to answer, and others were there"
        note(tell, asking[task], "login", slow)
    tell(Phase(""))
    return [HealthyHost(line, found[line]) for line in lines if line in found], faults


async def _gone(tasks: set[asyncio.Task[MachineFacts]]) -> None:
    """Wait a moment for the end of cancelled tasks, whatever their results."""
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE)
    for task in tasks:
        task.add_done_callback(lambda task: task.cancelled() or task.exception())


def _take(
    task: asyncio.Task[MachineFacts],
    line: L,
    found: dict[L, MachineFacts],
    faults: dict[str, str],
) -> None:
    try:
        found[line] = task.result()
    except Unreachable as fault:
        faults[line.name] = fault.why
    except HostNotReady as fault:
        faults[line.name] = fault.message.removeprefix(f"{fault.host}: ")
    except (ShellGone, TimeoutError) as fault:
        faults[line.name] = str(fault).removeprefix(f"{line.name}: ") or "it did not answer"


async def _healthy(spec: PoolSpec, line: Line, tell: Tell) -> MachineFacts:
    """Log in to a host and check that it has what is asked for."""
    began = time.monotonic()
    try:
        await line.connect()
        note(tell, line, "login", f"{line.place}, after {time.monotonic() - began:.2f} s")
        if spec.provider == "aws" and await instance_store.prepare(line):
            note(tell, line, "machine", f"a disk of its own at {FOLDER}")
        facts = await probe(line, spec.cache, interpreter=spec.image.interpreter)
        note(tell, line, "machine", "\n".join(described(facts)))
        if spec.provider == "aws" and _too_few_gpus(spec, facts):
            facts = await _with_driver(spec, line, facts, tell)
        if lack := _lack(spec, facts):
            raise HostNotReady(line.name, lack)
    except Unreachable as fault:
        note(tell, line, "login", f"failed after {time.monotonic() - began:.2f} s: {fault.why}")
        raise
    except HostNotReady as fault:
        note(tell, line, "error", fault.message)
        raise
    except (ShellGone, TimeoutError) as fault:
        note(tell, line, "error", str(fault) or "it did not answer")
        raise
    return facts


async def _with_driver(spec: PoolSpec, line: Line, facts: MachineFacts, tell: Tell) -> MachineFacts:
    """The facts of a rented machine once its GPUs are there: its driver comes up after its sshd."""
    until = time.monotonic() + _DRIVER_PATIENCE
    while (lack := _too_few_gpus(spec, facts)) and time.monotonic() < until:
        tell(Phase(f"waiting for the GPUs of {line.name}: {lack}"))
        await asyncio.sleep(_DRIVER_PAUSE)
        facts = await probe(line, spec.cache, interpreter=spec.image.interpreter)
        note(tell, line, "machine", spell_gpus(facts.gpus))
    return facts


def note(tell: Tell, line: Line, part: str, text: str, nodes: tuple[int, ...] = ()) -> None:
    """Report each line of a text as a log entry of a host."""
    for word in node_log_entries(line.name, part, text, time.time(), nodes):
        tell(word)


def _lack(spec: PoolSpec, facts: MachineFacts) -> str:
    """Why a host has too few accelerators, or none that the frameworks can use; "" if it has enough."""
    if spec.real_accelerator is None:
        return ""
    return _too_few_gpus(spec, facts) or driver_fault(image_of(spec).pip, facts.driver)


def _too_few_gpus(spec: PoolSpec, facts: MachineFacts) -> str:
    asked = spec.real_accelerator
    if asked is None:
        return ""
    fitting = [gpu for gpu in facts.gpus if is_called(gpu, asked.name)]
    if len(fitting) >= asked.count:
        return ""
    said = f" (nvidia-smi there says: {facts.gpu_trouble})" if facts.gpu_trouble else ""
    return f"accelerator={asked} was asked for, and it has {spell_gpus(facts.gpus)}{said}"


def _progress(
    found: dict[L, MachineFacts],
    faults: dict[str, str],
    waiting: list[L],
    spec: PoolSpec,
    first: Line,
) -> str:
    text = f"{first.reaching}: {len(found)} of {spec.nodes} are there"
    if waiting and (found or faults):
        names = ", ".join(line.name for line in waiting[:4])
        text += f", waiting for {names}{' and others' if len(waiting) > 4 else ''}"
    for name, why in list(faults.items())[:2]:
        text += f"; not {name}: {why.partition('. ')[0]}"
    return text
