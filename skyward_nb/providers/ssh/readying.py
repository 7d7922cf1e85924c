"""From hosts to machines of a pool: chosen, made ready side by side, all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from skyward_nb.bootstrap.environment import Environment, ready
from skyward_nb.bootstrap.environment import Tell as TellPhase
from skyward_nb.bootstrap.needs import image_of
from skyward_nb.bootstrap.package import Package
from skyward_nb.providers.ssh.choosing import Healthy, choose, spell_gpus
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.line import HostLine
from skyward_nb.providers.ssh.machine import SSHMachine
from skyward_nb.words.errors import HostError, HostNotReady
from skyward_nb.words.events import Phase, Step
from skyward_nb.words.spec import PoolSpec

Tell = Callable[[Phase | Step], None]


async def acquire(spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[SSHMachine, ...]:
    """The machines of a new pool, head first; raises `HostError` or `HostNotReady`."""
    assert spec.ssh is not None
    dialer = Dialer(spec.ssh)
    lines = [HostLine(host, dialer) for host in spec.ssh.hosts]
    return tuple(
        SSHMachine(spec.name, folder_of(pool_id, node), node, line, environment)
        for node, (line, environment) in enumerate(await made_ready(spec, lines, tell))
    )


async def made_ready(
    spec: PoolSpec, lines: list[HostLine], tell: Tell
) -> list[tuple[HostLine, Environment]]:
    """Those of these hosts that a pool lives on, ready for its agents; the other lines are closed.

    Raises `HostError` or `HostNotReady`.
    """
    kept: list[HostLine] = []
    try:
        healthy, faults = await choose(spec, lines, tell)
        chosen = await _readied(spec, healthy, faults, len(lines), tell)
        kept = [each.line for each, _ in chosen]
    finally:
        await asyncio.gather(*(line.close() for line in lines if line not in kept))
    return [(each.line, environment) for each, environment in chosen]


def find(spec: PoolSpec, pool_id: str) -> tuple[SSHMachine, ...]:
    """The machines of a pool that is up, as far as is known: they are asked when they are reached."""
    assert spec.ssh is not None
    dialer = Dialer(spec.ssh)
    hosts = spec.ssh.hosts[: spec.nodes]
    return tuple(
        SSHMachine(spec.name, folder_of(pool_id, node), node, HostLine(host, dialer))
        for node, host in enumerate(hosts)
    )


def folder_of(pool_id: str, node: int) -> str:
    """What a node's folders are called on its host; several nodes may turn out to be one machine."""
    return f"{pool_id}.{node}"


async def _readied(
    spec: PoolSpec, healthy: list[Healthy], faults: dict[str, str], of: int, tell: Tell
) -> list[tuple[Healthy, Environment]]:
    """As many hosts as there are nodes, made ready side by side; for one that cannot be, another comes."""
    chosen, spare = healthy[: spec.nodes], healthy[spec.nodes :]
    tell(_told(chosen, faults))
    done: dict[int, Environment] = {}
    image, ours = image_of(spec), Package()
    while lacking := [node for node in range(spec.nodes) if node not in done]:
        works = (
            ready(chosen[node].line, chosen[node].facts, image, _teller(tell, node), ours=ours)
            for node in lacking
        )
        for node, result in zip(lacking, await _all_of(list(works)), strict=True):
            if isinstance(result, Environment):
                done[node] = result
                continue
            host = chosen[node].line.name
            faults[host] = result.message.removeprefix(f"{host}: ")
            if not spare:
                raise result if of == 1 else HostError(spec.name, faults, spec.nodes, of)
            chosen[node] = spare.pop(0)
            tell(_told(chosen, faults))
    return [(chosen[node], done[node]) for node in range(spec.nodes)]


async def _all_of(
    works: list[Coroutine[Any, Any, Environment]],
) -> list[Environment | HostNotReady]:
    """What all of these come to; any other error than a host's own ends them all."""

    async def one(work: Coroutine[Any, Any, Environment]) -> Environment | HostNotReady:
        try:
            return await work
        except HostNotReady as fault:
            return fault

    tasks = [asyncio.ensure_future(one(work)) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _teller(tell: Tell, node: int) -> TellPhase:
    def told(phase: str, detail: str, done: bool) -> None:
        tell(Step((node,), phase, detail, done=done))

    return told


def _told(chosen: list[Healthy], faults: dict[str, str]) -> Step:
    words = [
        f"{each.line.name} ({spell_gpus(each.facts.gpus)})" if each.facts.gpus else each.line.name
        for each in chosen
    ]
    text = ", ".join(words)
    for name, why in faults.items():
        text += f"; not {name}: {why}"
    return Step(tuple(range(len(chosen))), "login", text, done=True)
