"""The program `sky` with recorded answers, as tests and benchmarks use it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sshds import Sshd

_PROGRAM = Path(__file__).with_name("fake_sky.py")


class FakeSky:
    """The program `sky`, what it was asked, and what is to go wrong."""

    def __init__(self, folder: Path, machine: Sshd) -> None:
        self.folder = folder
        folder.mkdir()
        access = {
            "address": machine.address, "port": machine.port, "user": machine.user, "key": str(machine.client_key),
        }  # fmt: skip
        (folder / "machine.json").write_text(json.dumps(access))
        self.path = folder / "sky"
        self.path.write_text(
            f'#!/bin/sh\nSKY_FOLDER={folder} exec {sys.executable} -I {_PROGRAM} "$@"\n'
        )
        self.path.chmod(0o755)

    def calls(self) -> list[list[str]]:
        """The commands so far, each as a list of words."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def clusters(self) -> dict[str, dict[str, object]]:
        """The clusters that there are."""
        path = self.folder / "clusters.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def keep(self, clusters: dict[str, dict[str, object]]) -> None:
        """Have these clusters be there."""
        (self.folder / "clusters.json").write_text(json.dumps(clusters))

    def say(self, name: str) -> None:
        """Have something go wrong from now on: `fails`, `hangs`, `no-cloud`, `down-fails`, `cancel-fails`."""
        (self.folder / name).touch()

    def unsay(self, name: str) -> None:
        """Have it go well again."""
        (self.folder / name).unlink()
