"""The begin of a generation by an agent: modules imported, GPUs cut, ranks forked in their environments."""

from __future__ import annotations

import asyncio
import os
import zlib
from pathlib import Path

from skyward_nb.node.forge_connection import ForgeConnection
from skyward_nb.node.forge_messages import ForkRank
from skyward_nb.node.gpus import devices_of
from skyward_nb.node.local_ranks import LocalRanks
from skyward_nb.node.outbox import Outbox
from skyward_nb.node.reserved_ports import ReservedPorts
from skyward_nb.node.slices import TooFewSlices, with_slices
from skyward_nb.plugins.plugin_table import find_plugin
from skyward_nb.protocol.commands import Fork, UseEnvironment
from skyward_nb.protocol.events import RankRefused, Step
from skyward_nb.runtime.kept_state import KeptState
from skyward_nb.words.checkpoints import VARIABLE
from skyward_nb.words.info import environment
from skyward_nb.words.rank_limits import own_cpus


class RankSpawner:
    """Forks the ranks of one generation after the other."""

    def __init__(
        self,
        folder: Path,
        forge_connection: ForgeConnection,
        ports: ReservedPorts,
        ranks: LocalRanks,
        outbox: Outbox,
        kept: KeptState,
    ) -> None:
        self._kept = kept
        self._folder = folder
        self._forge = forge_connection
        self._ports = ports
        self._ranks = ranks
        self._outbox = outbox
        self._one_at_a_time = asyncio.Lock()
        self._unusable = ""
        """Why the environment that was asked for is not used, in words, or ""."""

    async def use(self, order: UseEnvironment) -> None:
        """End the present ranks and their forge, and start another one; if that fails, the next ranks are refused."""
        async with self._one_at_a_time:
            await self._ranks.end_present()
            self._unusable = ""
            try:
                await self._forge.renew(order.python, order.folder)
            except OSError as error:
                self._unusable = f"{order.python} does not start: {error.strerror or error}"
            finally:
                if self._ranks.ordered is order:
                    self._ranks.ordered = None

    async def spawn(self, order: Fork) -> None:
        """End the present ranks and fork these; a failure is sent as `RankRefused`."""
        try:
            async with self._one_at_a_time:
                await self._spawn(order)
        except TooFewSlices as lack:
            self._refuse(order, lack.message, lack.advice)
        except Exception as error:  # noqa: BLE001 - the client is told whatever it is
            self._refuse(order, f"{type(error).__name__}: {error}", "")

    def _refuse(self, order: Fork, message: str, text: str) -> None:
        self._outbox.tell(RankRefused(order.generation, order.places[0].rank, message, text))

    async def _spawn(self, order: Fork) -> None:
        if self._unusable:
            self._refuse(order, self._unusable, "")
            self._unusable = ""
            return
        await self._import_modules(order)
        for module, why in self._forge.missing.items():
            self._refuse(order, f"{module} cannot be imported here", why)
            return
        uses = await asyncio.to_thread(with_slices, order, self._folder)
        await self._ranks.begin_generation(order.generation, order.places)
        self._kept.begin(order.generation)
        self._forge.list_processes()
        self._ranks.limit_memory(order.limits.memory)
        self._ranks.keep_at_notice = bool(order.checkpoint)
        # Slurm and containers may give a part of the machine's processors.
        threads = max(1, len(os.sched_getaffinity(0)) // len(order.places))
        together = order.places[0].cluster and len(order.places) == order.places[0].world_size
        for number, place in enumerate(order.places):
            env = environment(place) | devices_of(place, {each.node for each in order.places})
            for use in uses[place.node]:
                env |= find_plugin(use.name).env(place, use.options)
            if order.checkpoint:
                env[VARIABLE] = order.checkpoint
            env |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline"} | order.env
            rendezvous = self._ports.take_rendezvous() if place.is_head else None
            await self._ranks.fork(
                ForkRank(place, env, uses[place.node], *_share(order, number, threads), together),
                *(() if rendezvous is None else (rendezvous,)),
            )

    async def _import_modules(self, order: Fork) -> None:
        """Have the forge import what these ranks need, and wait until it has."""
        self._forge.preload(
            {name for use in order.plugins for name in find_plugin(use.name).preload(use.options)}
        )
        if not self._forge.imported.is_set():
            names = ", ".join(dict.fromkeys(use.name for use in order.plugins)) or "IPython"
            nodes = tuple(sorted({place.node for place in order.places}))
            self._outbox.tell(Step(nodes, "imports", names))
            await self._forge.imported.wait()
            self._outbox.tell(Step(nodes, "imports", names, done=True))


def _share(order: Fork, number: int, threads: int) -> tuple[int, int | None, tuple[int, ...]]:
    """Threads, memory and processors of the rank of this number on this machine."""
    limits = order.limits
    if limits.cpus is None:
        return threads, limits.memory, ()
    there = sorted(os.sched_getaffinity(0))
    # Each pool begins at a processor of its own: people who share a machine should share all of it.
    begin = zlib.crc32(order.places[0].job_id.encode()) % len(there)
    own = own_cpus(there, number, limits.cpus, begin)
    return min(threads, len(own)), limits.memory, own
