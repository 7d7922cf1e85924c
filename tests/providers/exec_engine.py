"""An engine of this machine: a keeper for each node, and each command for it is a process of its own."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

from skyward_nb.providers.far.exec_line import ExecLine
from skyward_nb.providers.far.host_setup import folder_of, made_ready
from skyward_nb.providers.far.keeper import KEEPER, KeptMachine, prelude
from skyward_nb.providers.provider_protocol import AgentGone
from skyward_nb.words.image import Image

PLAIN = Image(interpreter=sys.executable)


class Engine:
    """Its machines are folders below `folder`; it is a provider, too. `patience` in seconds."""

    name = "fake"
    shares_files = False

    def __init__(self, folder: Path, patience: int = 60) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.patience = patience
        self.keepers: list[subprocess.Popen[bytes]] = []
        self.is_cut = False

    def argv_for(self, words):
        return ["sh", "-c", "exit 1"] if self.is_cut else list(words)

    def line(self, node: int, *, is_new: bool = False) -> ExecLine:
        before = prelude(str(self.keep_of(node)))
        return ExecLine(f"n{node}", self.argv_for, prelude=before, keeps_command=is_new)

    def keep_of(self, node: int) -> Path:
        return self.folder / f"keep{node}"

    def begin(self, nodes: int) -> None:
        for node in range(nodes):
            words = ["sh", "-c", KEEPER, "keeper", str(self.keep_of(node)), str(self.patience)]
            self.keepers.append(subprocess.Popen(words, start_new_session=True))

    def check(self, spec) -> None:
        """Accept every spec."""

    async def acquire(self, spec, pool_id, tell):
        self.begin(spec.nodes)
        while any(not (self.keep_of(node) / "env").exists() for node in range(spec.nodes)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        lines = [self.line(node, is_new=True) for node in range(spec.nodes)]
        readied = await made_ready(spec, lines, tell)
        return tuple(
            self._machine(spec, pool_id, node, line, environment)
            for node, (line, environment) in enumerate(readied)
        )

    def find(self, spec, pool_id):
        if not self.folder.exists():
            raise AgentGone
        return tuple(
            self._machine(spec, pool_id, node, self.line(node)) for node in range(spec.nodes)
        )

    def _machine(self, spec, pool_id, node, line, environment=None):
        machine = KeptMachine(spec.name, folder_of(pool_id, node), node, line, environment)
        machine.keep = str(self.keep_of(node))
        return machine

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.terminate()
            keeper.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)
