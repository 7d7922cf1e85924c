"""More packages for the ranks of a pool that is up: an environment on each machine, beside the present one.

Nothing of the pool changes before all machines have theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from skyward_nb.bootstrap.requirements import image_of
from skyward_nb.plugins.plugin_table import uses_of
from skyward_nb.pool.context import PoolContext
from skyward_nb.pool.lines import Watch
from skyward_nb.pool.link import Link
from skyward_nb.protocol.commands import UseEnvironment
from skyward_nb.providers.provider_protocol import InstalledEnvironment, Installs, Machine, Tell
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.frameworks import lacking
from skyward_nb.words.masking import masked_address
from skyward_nb.words.spec import PoolSpec


@dataclass(frozen=True)
class InstalledPackages:
    """What machines of a pool got, in `seconds`; `environments` are those that ranks have to begin anew in."""

    seconds: float = 0.0
    packages: tuple[str, ...] = ()
    environments: dict[Link, InstalledEnvironment] = field(
        default_factory=dict[Link, InstalledEnvironment]
    )

    @property
    def words(self) -> tuple[str, ...]:
        """What was installed, and that ranks began anew, in words; () for nothing."""
        if not self.environments:
            return ()
        what = ", ".join(self.packages) or "what was asked for was there"
        many = len(self.environments)
        where = f" on {many} machines" if many > 1 else ""
        return (f"installed in {self.seconds:.1f} s{where}: {what}; ranks began anew with it",)


@dataclass(frozen=True)
class PoolChange:
    """What came of a change of a pool that is up: what was installed, and names that were `lost` with ranks."""

    installed: InstalledPackages = field(default_factory=InstalledPackages)
    lost: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The same in words."""
        return (*self.installed.words, *lost_words(self.lost))


def lost_words(names: Collection[str]) -> tuple[str, ...]:
    """That names were lost with ranks, in words; () for none."""
    return (f"lost with the earlier ranks: {', '.join(names)}",) if names else ()


def added_words(spec: PoolSpec, before: PoolSpec) -> str:
    """The frameworks and packages that a pool gets, in words."""
    had = {*before.image.pip, *before.image.apt}
    more = [each for each in (*spec.image.pip, *spec.image.apt) if each not in had]
    words = [*lacking(spec.framework, before.framework), *map(masked_address, more)]
    return ",".join(words or spec.framework)


def unused_words(spec: PoolSpec, before: PoolSpec) -> tuple[str, ...]:
    """That packages are not used because what was asked for with them did not start, in words; () for none."""
    more = [masked_address(each) for each in spec.image.pip if each not in before.image.pip]
    if not more or uses_of(spec) == uses_of(before):
        return ()
    asked = f"pip={','.join(more)}"
    return (
        f"{asked} is not in use either: the pool is as before; {asked} without framework= adds it",
    )


def dry_words(spec: PoolSpec, before: PoolSpec) -> tuple[str, ...]:
    """What a pool would install for this spec, in words; () for nothing."""
    pip, apt = (
        ", ".join(masked_address(each) for each in now if each not in had)
        for now, had in ((spec.image.pip, before.image.pip), (spec.image.apt, before.image.apt))
    )
    where = "would be installed first; ranks stay as they are"
    if not spec.is_elsewhere:
        where = "would have to be on this machine, where apt= installs nothing"
    words = [f"would be installed first, and ranks begin anew with it: {pip}"] if pip else []
    return (*words, f"packages of Debian {where}: {apt}") if apt else tuple(words)


def is_needed(context: PoolContext, spec: PoolSpec) -> bool:
    """Whether machines of a pool have to install something for this spec."""
    if context.provider.shares_files:
        return spec.image != context.spec.image
    return image_of(spec) != image_of(context.spec)


def install(context: PoolContext, spec: PoolSpec, watch: Watch) -> InstalledPackages:
    """Have all machines make the environment of this spec; those that have ended get it with their replacement.

    Raises `HostNotReady` or what else prevents it, and KeyboardInterrupt: ranks are as they were then.
    """
    began = time.monotonic()
    machines = [
        (link, machine)
        for link, machine in zip(context.lines.links, context.generations.machines, strict=True)
        if not link.is_over
    ]
    tell, hear = context.telling(watch)
    try:
        made = context.lines.wait_for(
            _on_all([(machine, link.environment) for link, machine in machines], spec, tell),
            hear,
            f"the installation on pool {spec.name}",
        )
    finally:
        hear(None)
        context.nodelog.close()
    every = {link: each for (link, _), each in zip(machines, made, strict=True) if each.is_new}
    packages = dict.fromkeys(word for each in every.values() for word in each.installed)
    return InstalledPackages(time.monotonic() - began, tuple(packages), every)


def use(context: PoolContext, installed: InstalledPackages) -> None:
    """Have agents fork the next ranks in these environments; the present ranks end."""
    for link, each in installed.environments.items():
        _tell(context, link, each.use)


def use_earlier(context: PoolContext, installed: InstalledPackages) -> None:
    """Have agents fork the next ranks in the environments of before."""
    for link, each in installed.environments.items():
        _tell(context, link, each.earlier)


def _tell(context: PoolContext, link: Link, order: UseEnvironment) -> None:
    if not link.is_over:  # a machine in its place has the environment of its pool's spec
        link.environment = order
        context.lines.tell(link, order)


async def _on_all(
    machines: list[tuple[Machine, UseEnvironment]], spec: PoolSpec, tell: Tell
) -> list[InstalledEnvironment]:
    tasks = [asyncio.ensure_future(_on(*each, spec, tell)) for each in machines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _on(
    machine: Machine, present: UseEnvironment, spec: PoolSpec, tell: Tell
) -> InstalledEnvironment:
    if not isinstance(machine, Installs):
        raise HostNotReady(machine.name, "nothing can be installed there while the pool is up")
    return await machine.install(spec, present, tell)
