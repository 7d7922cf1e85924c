"""People who rent: processes that bring pools up, use them, take them down, or sweep, and may be killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from cloud.sky import Cloud

_TESTS = Path(__file__).parents[1]
_CLIENT = "import gc; gc.disable(); from cloud.client import main; main()"
"""What it reads as it is imported is all kept: looking for garbage meanwhile takes a fifth of the time."""


@dataclass
class Ended:
    """How a process ended, and what it had said: `code` is 3 for a `SkyError`, -9 when it was killed."""

    code: int
    said: str

    def __str__(self) -> str:
        return f"ended with {self.code}: {self.said}"


@dataclass
class Person:
    """Somebody with a state folder of their own; all processes that they start share it."""

    people: People
    env: dict[str, str] = field(default_factory=dict)

    def begin(self, what: str, **how: Any) -> Begun:
        """Start a process that does this; see `client`."""
        own = self.people.folder
        said = own / f"said-{len(list(own.glob('said-*')))}"
        said.touch()
        task = {"what": what, "how": how, "env": self.env, "said": str(said)}
        return Begun(self.people, int(self.people.tell(task)), said)

    def does(self, what: str, **how: Any) -> Ended:
        """Have a process do this, and wait until it has ended."""
        return self.begin(what, **how).ended()


@dataclass
class Begun:
    """A process on its way."""

    people: People
    pid: int
    said: Path

    def up(self) -> Begun:
        """Itself, once it says that its pool is up; it may take two minutes, and must not have ended."""
        until = time.monotonic() + 120
        while "up\n" not in self.said.read_text():
            has_ended = psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
            assert not has_ended, self.ended()
            assert time.monotonic() < until, self.said.read_text()
            time.sleep(0.05)
        return self

    def ended(self) -> Ended:
        return Ended(int(self.people.tell({"pid": self.pid})), self.said.read_text())


class People:
    """Those who rent from one cloud."""

    def __init__(self, cloud: Cloud) -> None:
        # Short, for there are sockets in it.
        self.folder = Path(tempfile.mkdtemp(prefix="people-"))
        self._cloud = cloud
        self._count = 0
        root = str(_TESTS.parent)
        paths = [root, str(_TESTS), os.environ.get("PYTHONPATH", "")]
        with (self.folder / "log").open("w") as log:
            self._first = subprocess.Popen(
                [sys.executable, "-c", _CLIENT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": ":".join(filter(None, paths))},
            )

    def person(self, **env: str) -> Person:
        """Somebody new."""
        self._count += 1
        own = self.folder / str(self._count)
        own.mkdir()
        folders = {
            "SKYWARD_RUNTIME_DIR": str(own / "run"),
            "SKYWARD_STORE_DIR": str(own),
            "SKYWARD_SPILL_DIR": str(own),
            "SKYWARD_LOG_DIR": str(own / "log"),
        }
        return Person(self, {**self._cloud.env(own), **folders, **env})

    def tell(self, task: dict[str, Any]) -> str:
        assert self._first.stdin is not None
        assert self._first.stdout is not None
        self._first.stdin.write(json.dumps(task) + "\n")
        self._first.stdin.flush()
        answer = self._first.stdout.readline()
        assert answer, (self.folder / "log").read_text()
        return answer

    def close(self) -> None:
        assert self._first.stdin is not None
        assert self._first.stdout is not None
        self._first.stdin.close()
        self._first.wait()
        self._first.stdout.close()
        shutil.rmtree(self.folder)
