"""This machine as a pool: nodes are groups of processes, with one agent and one forge for all.

It needs no account, no root and no network beyond loopback.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Iterable

from skyward_nb.protocol.commands import UseEnvironment
from skyward_nb.protocol.events import Step
from skyward_nb.providers.agent_process import AgentProcess
from skyward_nb.providers.folders import (
    PoolFolders,
    is_gone,
    make_folders,
    pool_folders,
    sweep,
)
from skyward_nb.providers.orphans import is_ours
from skyward_nb.providers.provider_protocol import AgentGone, InstalledEnvironment, Tell
from skyward_nb.store.blobs import BlobStore
from skyward_nb.system import nvidia_smi
from skyward_nb.words.errors import AcceleratorError, OptionError, StartError
from skyward_nb.words.image import Image
from skyward_nb.words.mig import advice, is_called, most_of, slices_of, visible_cards
from skyward_nb.words.simulation import on_cpu
from skyward_nb.words.spec import PoolSpec

_CONNECT_LIMIT = 1.0


class LocalMachine:
    """This machine, for one pool; the agent is a process of a session of its own."""

    def __init__(
        self, pool: str, nodes: Iterable[int], folders: PoolFolders, packages: str = ""
    ) -> None:
        self.name = "local"
        self.nodes: tuple[int, ...] = tuple(nodes)
        self._pool = pool
        self._folders = folders
        self._store = BlobStore(folders.store, folders.spill)
        self._agent = AgentProcess(folders, packages)
        self._reached = False

    async def start_agent(self, idle: float, ttl: float, preload: list[str]) -> None:
        """Start the agent and wait until it listens; raises `StartError` with its log."""
        self._agent.start(idle, ttl, preload)
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(None, self._agent.is_ready):
            detail = self.last_words()
            await self.release()
            raise StartError(self._pool, "its agent ended before it was ready", detail)

    async def install(
        self, spec: PoolSpec, present: UseEnvironment, tell: Tell
    ) -> InstalledEnvironment:
        """Make the folder of packages that `spec` asks for and this Python lacks; raises `MissingDependency`.

        A pool of another Python is refused by `OptionError`: what that one lacks is not known here.
        """
        from skyward_nb.bootstrap import version_locks
        from skyward_nb.providers.installed import is_this_python
        from skyward_nb.providers.package_folder import packages_in

        if not is_this_python(present.python):
            raise OptionError(
                "pip",
                f"pool {self._pool!r} runs in {present.python}, and this notebook or script in {sys.executable}, "
                "whose packages pip= goes by: add packages from one of that Python, or give a pool of this one "
                "another name (name=)",
            )
        packages = await packages_of(spec, tell, self.nodes)
        had, has = packages_in(present.folder), packages_in(packages)
        # Ranks may have by other packages what is asked for by name now.
        use = present if had == has else UseEnvironment(present.python, packages)
        return InstalledEnvironment(use, present, version_locks.news(had, has))

    async def connect(self) -> socket.socket:
        """Connect to the agent's unix socket; raises `AgentGone` if no agent holds its folder."""
        connection = self._connected("agent.sock")
        self._reached = True
        return connection

    def values(self) -> socket.socket:
        """Connect to the agent's socket for values, like other machines; raises as `connect`."""
        return self._connected("values.sock")

    def _connected(self, name: str) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        # A stopped agent accepts no connection, and its backlog fills.
        connection.settimeout(_CONNECT_LIMIT)
        try:
            connection.connect(str(self._folders.runtime / name))
        except OSError as error:
            connection.close()
            if is_gone(self._folders.runtime):
                raise AgentGone from error
            raise
        return connection

    def last_words(self) -> str:
        """The end of the agent's log, which forge and ranks share."""
        return self._agent.last_words()

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log, of so many bytes."""
        return self._agent.last_words(most)

    def store(self) -> BlobStore:
        """The folders that both sides open: on one machine, values are not sent."""
        return self._store

    def leave(self) -> None:
        """Let the agent live on; a thread waits for its end, if it is a child of this process."""
        if self._agent.pid is not None:
            threading.Thread(target=self._agent.wait, name="skyward-left", daemon=True).start()

    async def release(self) -> None:
        """Wait for the agent's end, kill it if need be, and remove its files."""
        for pause in self._agent.removing(told=self._reached):
            await asyncio.sleep(pause)


class LocalProvider:
    """Provides this machine."""

    name = "local"
    shares_files = True

    def check(self, spec: PoolSpec) -> None:
        """Raise `AcceleratorError` for accelerators that this machine lacks, and what `check_image` raises."""
        if str(spec.limits) and sys.platform != "linux":
            raise OptionError(
                "memory_limit",
                f"{spec.limits}: ranks have limits on Linux alone; leave it out here",
            )
        if spec.image != Image():
            from skyward_nb.providers.installed import check_image  # seldom, and takes a moment

            check_image(_image_of(spec))
        asked = spec.real_accelerator
        if asked is None:
            return
        if spec.mig:
            _check_slices(spec, asked.name)
            return
        found = gpus()
        fitting = [gpu for gpu in found if is_called(gpu, asked.name)]
        if len(fitting) < asked.count * spec.nodes:
            here = ", ".join(found) if found else "no GPU"
            raise AcceleratorError(
                str(asked),
                here,
                f"accelerator={asked} nodes={spec.nodes} needs {asked.count * spec.nodes} × "
                f"{asked.name}, and this machine has {here}. Three ways on: `simulate` runs the "
                "same ranks here on CPU; hosts=NAME,NAME uses machines that have it and that you can "
                "log in to; provider=aws rents such machines, and shows their price first.",
            )

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[LocalMachine, ...]:
        """This machine, with folders for the pool; raises `RuntimeFolderError`, `MissingDependency`."""
        sweep()
        nodes = range(spec.nodes)
        packages = await packages_of(spec, tell, tuple(nodes))
        return (LocalMachine(spec.name, nodes, make_folders(spec.name, pool_id), packages),)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[LocalMachine, ...]:
        """This machine, if the pool's agent lives; raises `AgentGone`."""
        folders = pool_folders(pool_id)
        if is_gone(folders.runtime) or not is_ours(folders.runtime):
            raise AgentGone
        return (LocalMachine(spec.name, range(spec.nodes), folders),)


def _image_of(spec: PoolSpec) -> Image:
    return on_cpu(spec.image) if spec.simulate else spec.image


async def packages_of(spec: PoolSpec, tell: Tell, nodes: tuple[int, ...]) -> str:
    """The folder of packages that ranks of a pool have beside this Python's own, or ""."""
    if not spec.image.pip:
        return ""
    from skyward_nb.providers.package_folder import folder_for  # seldom, and takes a moment

    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        tell(Step(nodes, "environment", text))

    folder = await folder_for(_image_of(spec), hear)
    if heard:
        tell(Step(nodes, "environment", heard[-1], done=True))
    return folder


def _check_slices(spec: PoolSpec, asked: str) -> None:
    """Raise `AcceleratorError` if GPUs have fewer slices than the pool has ranks."""
    assert spec.mig is not None
    every = visible_cards(nvidia_smi.cards(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    cards = tuple(card for card in every if is_called(card.name, asked))
    there = len(slices_of(cards, spec.mig))
    if spec.partition:
        there += sum(most_of(card, spec.mig, 0) for card in cards if not card.slices)
    if there >= spec.world_size:
        return
    here = ", ".join(card.name for card in every) or "no GPU"
    why = f"this machine has {here}"
    if cards:
        why = advice(cards, spec.mig, spec.world_size)
    raise AcceleratorError(
        f"{spec.accelerator} mig={spec.mig}",
        here,
        f"accelerator={spec.accelerator} mig={spec.mig}: {why}\n"
        "Or `simulate` runs the same ranks here on CPU.",
    )


def gpus() -> list[str]:
    """The names of this machine's visible NVIDIA GPUs, from its driver."""
    answer = nvidia_smi.ask("--query-gpu=name", "--format=csv,noheader") or ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [line.strip() for line in answer.splitlines() if line.strip()]
    if visible is None:
        return names
    chosen = [int(part) for part in visible.split(",") if part.strip().isdigit()]
    return [names[index] for index in chosen if index < len(names)]
