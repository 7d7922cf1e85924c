"""Makes machines at the ends of lines ready for agents: chooses them and readies them side by side, all or none."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from skyward_nb.bootstrap import version_locks
from skyward_nb.bootstrap.certificates import trusting
from skyward_nb.bootstrap.cuda_builds import with_cuda
from skyward_nb.bootstrap.environment import (
    Environment,
    PhaseReporter,
    digest_of,
    ready,
)
from skyward_nb.bootstrap.machine_facts import MachineFacts, probe, spell_gpus
from skyward_nb.bootstrap.package import Package
from skyward_nb.bootstrap.remote_shell import ShellGone
from skyward_nb.bootstrap.requirements import image_of
from skyward_nb.bootstrap.volumes import mount
from skyward_nb.protocol.commands import UseEnvironment
from skyward_nb.protocol.events import Phase, Step
from skyward_nb.providers.far.host_selection import HealthyHost, choose, note
from skyward_nb.providers.far.line_protocol import Line
from skyward_nb.providers.far.login_errors import LoginRefused, UnknownKey, Unreachable
from skyward_nb.providers.provider_protocol import InstalledEnvironment, Tell
from skyward_nb.words.errors import HostError, HostNotReady
from skyward_nb.words.image import Image
from skyward_nb.words.spec import PoolSpec

L = TypeVar("L", bound=Line)
_PATIENCE = 60.0
_PAUSE = 1.0
_MOST_LOST = 5


async def made_ready(spec: PoolSpec, lines: list[L], tell: Tell) -> list[tuple[L, Environment]]:
    """The lines of the chosen hosts, ready for agents, with their environments; closes the other lines.

    Raises `HostError` or `HostNotReady`.
    """
    readied: list[tuple[L, Environment]] = []
    beats = [asyncio.ensure_future(_beat(line)) for line in lines if line.beat]
    try:
        healthy, faults = await choose(spec, lines, tell)
        readied = await _readied(spec, healthy, faults, len(lines), tell)
    finally:
        for task in beats:
            task.cancel()
        await asyncio.gather(*beats, return_exceptions=True)
        kept = [line for line, _ in readied]
        await asyncio.gather(*(line.close() for line in lines if line not in kept))
    return readied


async def _beat(line: Line) -> None:
    """Use a machine now and then that waits for others: it would end by itself."""
    while True:
        await asyncio.sleep(line.beat)
        if line.number:
            with contextlib.suppress(ShellGone, TimeoutError):
                await line.run(":", limit=line.beat)


def folder_of(pool_id: str, node: int) -> str:
    """The name of a node's folders on its host, as several nodes may be on one machine."""
    return f"{pool_id}.{node}"


async def _readied(
    spec: PoolSpec, healthy: list[HealthyHost[L]], faults: dict[str, str], of: int, tell: Tell
) -> list[tuple[L, Environment]]:
    """As many hosts as nodes, made ready side by side; a spare host replaces one that fails."""
    chosen, spare = healthy[: spec.nodes], healthy[spec.nodes :]
    tell(_told(chosen, faults))
    ours = Package()
    going: dict[asyncio.Task[Environment], int] = {}
    done: dict[int, Environment] = {}

    def begin(node: int) -> None:
        work = _ready(chosen[node], node, spec, ours, tell)
        going[asyncio.get_running_loop().create_task(work)] = node

    for node in range(spec.nodes):
        begin(node)
    try:
        while going:
            ended, _ = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            failed: dict[int, HostNotReady] = {}
            for task in ended:
                try:
                    done[going[task]] = task.result()
                except HostNotReady as fault:
                    failed[going[task]] = fault
                del going[task]
            for node, fault in failed.items():
                host = chosen[node].line.name
                faults[host] = fault.message.removeprefix(f"{host}: ")
            for node, fault in failed.items():
                if not spare:
                    raise fault if of == 1 else HostError(spec.name, faults, spec.nodes, of)
                chosen[node] = spare.pop(0)
                tell(_told(chosen, faults))
                begin(node)
    finally:
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
    return [(chosen[node].line, done[node]) for node in range(spec.nodes)]


async def _ready(
    healthy: HealthyHost[L],
    node: int,
    spec: PoolSpec,
    ours: Package,
    tell: Tell,
    before: str = "",
) -> Environment:
    """Make one host ready, and report and note each phase; versions of the environment of the digest `before` stay."""
    line, image = healthy.line, _image_on(healthy.facts, spec)
    began: dict[str, float] = {}
    noted = partial(note, tell, line, nodes=(node,))

    def told(phase: str, detail: str, done: bool) -> None:
        tell(Step((node,), phase, detail, done=done))
        now = time.monotonic()
        words = [detail] if detail or phase in began else ["begun"]
        begun = began.setdefault(phase, now)
        if done:
            words.append(f"done after {now - begun:.2f} s")
            del began[phase]
        noted(phase, ": ".join(word for word in words if word))

    noted("login", f"node {node} is readied")
    lost = 0
    while True:
        try:
            trusts = await trusting(line, healthy.facts, spec.ca)
            asked = replace(image, env={**trusts, **image.env})
            environment = await ready(line, healthy.facts, asked, told, ours=ours, before=before)
            await _mount(spec, line, told)
        except HostNotReady as fault:
            noted("error", fault.message)
            raise
        except ShellGone as gone:
            why = str(gone).removeprefix(f"{line.name}: ")
            noted("error", why)
            lost += 1
            try:
                if lost > _MOST_LOST:
                    raise Unreachable(line.name, why)
                tell(Phase(f"the line to {line.name} was lost; trying to reach it again"))
                await _back(line)
            except Unreachable as fault:
                why = f"the line to it was lost as it was readied: {fault.why}"
                raise HostNotReady(line.name, why) from gone
            # A script that still runs there holds its lock, and the next one waits for it.
            noted("login", f"{line.place}, again")
            tell(Phase(""))
        else:
            apart = {"SKYWARD_CACHE_DIR": healthy.facts.cache} if spec.cache else {}
            return dataclasses.replace(environment, variables={**apart, **trusts})


def _image_on(facts: MachineFacts, spec: PoolSpec) -> Image:
    """The image of a pool on a machine: with CUDA for its driver, where accelerators are asked for."""
    image = image_of(spec)
    if spec.real_accelerator is None:
        return image
    return replace(image, pip=with_cuda(image.pip, facts.driver))


async def installed(
    line: Line, node: int, spec: PoolSpec, present: UseEnvironment, tell: Tell
) -> tuple[Environment, InstalledEnvironment]:
    """Make the environment of `spec` on a machine of a pool that is up; the ranks keep the `present` one.

    Raises `HostNotReady`.
    """
    earlier = digest_of(present.python)
    try:
        await line.reached()
        facts = await probe(line, spec.cache, interpreter=spec.image.interpreter)
        if earlier:
            await version_locks.learn(line, present.python, earlier)
    except (ShellGone, OSError, TimeoutError) as gone:
        why = str(gone).removeprefix(f"{line.name}: ") or "it did not answer in time"
        raise HostNotReady(line.name, f"nothing was installed: {why}") from gone
    made = await _ready(HealthyHost(line, facts), node, spec, Package(), tell, earlier)
    had, now = version_locks.known(earlier), version_locks.known(made.digest)
    # Ranks may have by other packages what is asked for by name now; an interpreter of its own has what it has.
    same = made.digest == earlier or (bool(now) and had == now)
    use = present if same or not made.digest else UseEnvironment(made.python)
    return made, InstalledEnvironment(use, present, version_locks.news(had, now))


async def _mount(spec: PoolSpec, line: Line, told: PhaseReporter) -> None:
    if spec.volumes and spec.aws is not None:
        told("volumes", ", ".join(each.mount for each in spec.volumes), False)
        role = spec.aws.instance_profile
        await mount(line, spec.volumes, endpoint=spec.aws.endpoint, has_role=role is not None)
        told("volumes", "", True)


async def _back(line: Line) -> None:
    """Log in again to a host whose line was lost; after a minute, raises `Unreachable`."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return await line.connect()
        except (UnknownKey, LoginRefused):
            raise
        except Unreachable:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(_PAUSE)


def _told(chosen: list[HealthyHost[L]], faults: dict[str, str]) -> Step:
    words = [
        f"{each.line.name} ({spell_gpus(each.facts.gpus)})" if each.facts.gpus else each.line.name
        for each in chosen
    ]
    text = ", ".join(words)
    for name, why in faults.items():
        text += f"; not {name}: {why}"
    return Step(tuple(range(len(chosen))), "login", text, done=True)
