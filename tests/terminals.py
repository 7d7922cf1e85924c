"""`skyward-nb` as a person at a terminal has it: real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from waiting import until

T = TypeVar("T")
_SAID = re.compile(r"^\[ranks? ([\d,-]+)\] (.*)$", re.MULTILINE)
COMMAND = [sys.executable, "-m", "skyward_nb"]


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.stdout)


def sky(*words, folder=None, timeout=90, **env):
    """Run a command to its end."""
    done = subprocess.run(
        [*COMMAND, *words], cwd=folder, env={**os.environ, **env}, timeout=timeout,
        capture_output=True, text=True,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def status_with(words):
    """What `status` says once these words are in it: a pool that has no processor for two seconds is not told of."""
    return until(lambda: words in (said := sky("status").stdout) and said)


@contextmanager
def begun(*words, folder=None, **env):
    """A command that goes on, in a process group of its own."""
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=folder, env={**os.environ, **env}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process, timeout=120):
    """How a command that was begun ended."""
    stdout, stderr = process.communicate(timeout=timeout)
    return Ran(process.returncode, stdout, stderr)


def said(text: str) -> dict[str, list[int]]:
    """Who said each line that ranks have printed: they may be too far apart to be shown as one."""
    found: dict[str, list[int]] = {}
    for ranks, line in _SAID.findall(text):
        for first, _, last in (each.partition("-") for each in ranks.split(",")):
            found.setdefault(line, []).extend(range(int(first), int(last or first) + 1))
    return {line: sorted(ranks) for line, ranks in found.items()}


def document(ran: Ran, kind: type[T]) -> T:
    """What was printed, which has the keys that `--help` says and no others."""
    found = msgspec.json.decode(ran.stdout, type=kind)
    assert json.loads(msgspec.json.encode(found)) == ran.json
    return found
