"""This machine as a pool: nodes are groups of processes, one agent and one forge for all.

No account, no root, no network beyond loopback.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable

from skyward_nb.protocol.events import Phase, Step
from skyward_nb.providers.base import AgentGone
from skyward_nb.providers.folders import (
    PoolFolders,
    end_agent,
    end_pool,
    is_gone,
    make_folders,
    pool_folders,
    remove_folders,
    sweep,
)
from skyward_nb.providers.orphans import is_ours
from skyward_nb.store.blobs import BlobStore
from skyward_nb.system import mig_partition, nvidia_smi
from skyward_nb.system.processes import noted
from skyward_nb.words.errors import AcceleratorError, StartError
from skyward_nb.words.image import Image
from skyward_nb.words.mig import advice, is_called, most_of, slices_of, visible_cards
from skyward_nb.words.spec import PoolSpec

_START_LIMIT = 30.0
_END_LIMIT = 5.0
_REST_LIMIT = 4.0
_POLL = 0.01
_CONNECT_LIMIT = 1.0
_LAST_WORDS = 2000


class LocalMachine:
    """This machine, for one pool; the agent is a process of a session of its own."""

    def __init__(self, pool: str, nodes: Iterable[int], folders: PoolFolders) -> None:
        self.name = "local"
        self.nodes: tuple[int, ...] = tuple(nodes)
        self._pool = pool
        self._folders = folders
        self._store = BlobStore(folders.store, folders.spill)
        self._agent: subprocess.Popen[bytes] | None = None
        self._reached = False

    async def start_agent(self, idle: float, ttl: float, preload: list[str]) -> None:
        """Start the agent and wait until it listens; raises `StartError` with its log."""
        folders = self._folders
        safely = ["-P"] if sys.flags.safe_path else []
        command = [sys.executable, *safely, "-m", "skyward_nb.node"]
        command += [
            str(folders.runtime),
            str(folders.store),
            str(folders.spill),
            str(idle),
            str(ttl),
            *preload,
        ]
        with (folders.runtime / "agent.log").open("wb") as log:
            self._agent = subprocess.Popen(  # noqa: ASYNC220, S603 - milliseconds; our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._agent.stdout is not None
        ready = self._agent.stdout
        loop = asyncio.get_running_loop()
        try:
            word = await asyncio.wait_for(loop.run_in_executor(None, ready.readline), _START_LIMIT)
        except TimeoutError:
            word = b""
        if word != b"ready\n":
            detail = self.last_words()
            await self.release()
            raise StartError(self._pool, "its agent ended before it was ready", detail)
        ready.close()

    async def connect(self) -> socket.socket:
        """Connect to the agent's unix socket; raises `AgentGone` when nobody holds its folder."""
        connection = self._connected("agent.sock")
        self._reached = True
        return connection

    def values(self) -> socket.socket:
        """Connect to the agent's socket for values, as who is elsewhere does; raises as `connect`."""
        return self._connected("values.sock")

    def _connected(self, name: str) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        # An agent that is stopped takes nobody, and its backlog fills.
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
        return self._end_of_log(_LAST_WORDS)

    async def agent_log(self, most: int) -> str:
        """The end of the agent's log, of so many bytes."""
        return self._end_of_log(most)

    def _end_of_log(self, most: int) -> str:
        try:
            with (self._folders.runtime / "agent.log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def store(self) -> BlobStore:
        """The folders both sides open: values need no wire on one machine."""
        return self._store

    def leave(self) -> None:
        """Let the agent live on; as it is a child of this process, a thread waits for its end."""
        if self._agent is not None:
            threading.Thread(target=self._agent.wait, name="skyward-left", daemon=True).start()

    async def release(self) -> None:
        """Wait for the agent to go, end it if it does not, and see that its files are gone."""
        # No executor: at the interpreter's exit there is none any more.
        if self._agent is None:
            await self._wait_for_the_lock()
        else:
            if not self._reached:
                self._agent.terminate()  # nobody could tell it to stop
            tries = self._most_tries()
            while self._agent.poll() is None and tries:
                tries -= 1
                await asyncio.sleep(_POLL)
            if self._agent.poll() is None:
                self._agent.kill()
                self._agent.wait()
        if self._folders.runtime.exists():
            await self._end_rest()
        if left := remove_folders(self._folders):
            warnings.warn(left, stacklevel=2)

    def _most_tries(self) -> int:
        """How often to look whether the agent has ended; GPUs take their time to be put together."""
        has_cut = mig_partition.is_noted(self._folders.runtime)
        return int((_END_LIMIT + (mig_partition.PATIENCE if has_cut else 0)) / _POLL)

    async def _wait_for_the_lock(self) -> None:
        """Wait for an agent that another process has started."""
        tries = self._most_tries()
        while not is_gone(self._folders.runtime) and tries:
            tries -= 1
            await asyncio.sleep(_POLL)
        if tries == 0:
            end_agent(self._folders.runtime)

    async def _end_rest(self) -> None:
        """End what a killed agent left; its forge does that by itself unless it was killed, too."""
        tries = int(_REST_LIMIT / _POLL)
        while tries and noted(self._folders.runtime):
            tries -= 1
            await asyncio.sleep(_POLL)
        end_pool(self._folders)


class LocalProvider:
    """Gives this machine."""

    name = "local"
    shares_files = True

    def check(self, spec: PoolSpec) -> None:
        """Raise `AcceleratorError` for accelerators that are not in this machine.

        And what `check_image` raises, as ranks run in this environment.
        """
        if spec.image != Image():
            from skyward_nb.providers.installed import check_image  # seldom, and takes a moment

            check_image(spec.image)
        asked = spec.accelerator
        if asked is None or spec.simulate:
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

    async def acquire(
        self, spec: PoolSpec, pool_id: str, tell: Callable[[Phase | Step], None]
    ) -> tuple[LocalMachine, ...]:
        """This machine, with folders for the pool; raises `RuntimeFolderError`."""
        del tell  # there is nothing to wait for
        sweep()
        return (LocalMachine(spec.name, range(spec.nodes), make_folders(spec.name, pool_id)),)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[LocalMachine, ...]:
        """This machine, where the pool's agent is; raises `AgentGone`."""
        folders = pool_folders(pool_id)
        if is_gone(folders.runtime) or not is_ours(folders.runtime):
            raise AgentGone
        return (LocalMachine(spec.name, range(spec.nodes), folders),)


def _check_slices(spec: PoolSpec, asked: str) -> None:
    """Raise `AcceleratorError` where GPUs are not cut into as many slices as there are to be ranks."""
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
    """Names of this machine's NVIDIA GPUs, as its driver tells them; empty when there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(  # noqa: S603 - the driver's own tool, found in PATH
            command, capture_output=True, text=True, timeout=20, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    if visible is None:
        return names
    chosen = [int(part) for part in visible.split(",") if part.strip().isdigit()]
    return [names[index] for index in chosen if index < len(names)]
