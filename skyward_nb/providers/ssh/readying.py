"""From hosts to machines of a pool: chosen, made ready side by side, all or none."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from skyward_nb.bootstrap.environment import Environment, ready
from skyward_nb.providers.ssh.choosing import Chosen, choose, spell_gpus
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.line import HostLine
from skyward_nb.providers.ssh.machine import SSHMachine
from skyward_nb.words.events import Phase, Step
from skyward_nb.words.spec import PoolSpec

Tell = Callable[[Phase | Step], None]


async def acquire(spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[SSHMachine, ...]:
    """The machines of a new pool, head first; raises `HostError` or `HostNotReady`."""
    assert spec.ssh is not None
    dialer = Dialer(spec.ssh)
    lines = [HostLine(host, dialer) for host in spec.ssh.hosts]
    kept: set[HostLine] = set()
    try:
        chosen, faults = await choose(spec, lines, tell)
        tell(_told(chosen, faults))
        environments = await _readied(spec, chosen, tell)
        kept = {each.line for each in chosen}
    finally:
        await asyncio.gather(*(line.close() for line in lines if line not in kept))
    return tuple(
        SSHMachine(spec.name, folder_of(pool_id, each.node), each.node, each.line, environment)
        for each, environment in zip(chosen, environments, strict=True)
    )


def folder_of(pool_id: str, node: int) -> str:
    """What a node's folders are called on its host; several nodes may turn out to be one machine."""
    return f"{pool_id}.{node}"


async def _readied(spec: PoolSpec, chosen: list[Chosen], tell: Tell) -> list[Environment]:
    """The environments of all, made side by side; the first that cannot be ends the others."""
    loop = asyncio.get_running_loop()
    tasks = [
        loop.create_task(
            ready(each.line, each.facts, spec.image, functools.partial(_tell, tell, each.node))
        )
        for each in chosen
    ]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _tell(tell: Tell, node: int, phase: str, detail: str, done: bool) -> None:
    tell(Step((node,), phase, detail, done=done))


def _told(chosen: list[Chosen], faults: dict[str, str]) -> Step:
    words = [
        f"{each.line.name} ({spell_gpus(each.facts.gpus)})" if each.facts.gpus else each.line.name
        for each in chosen
    ]
    text = ", ".join(words)
    for name, why in faults.items():
        text += f"; not {name}: {why}"
    return Step(tuple(each.node for each in chosen), "login", text, done=True)
