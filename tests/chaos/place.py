"""Where a sequence is played: folders and disks of its own, and the processes that belong to it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from chaos.steps import Part

SIZES = {"store": "120m", "spill": "160m", "logs": "20m"}
"""The disks, and the size of each."""


@dataclass(frozen=True)
class Place:
    """The folders of one sequence; `has_disks` if stores and logs are on disks that can be filled."""

    root: Path
    has_disks: bool
    notebook: str

    @property
    def runtime(self) -> Path:
        return self.root / "run"

    def disk(self, name: str) -> Path:
        return self.root / name

    @property
    def stacks(self) -> Path:
        """Where the kernel writes the stacks of its threads."""
        return self.root / "stacks"

    @property
    def env(self) -> dict[str, str]:
        """The variables of the kernel, by which also its processes are known."""
        return {
            "SKYWARD_RUNTIME_DIR": str(self.runtime),
            "SKYWARD_STORE_DIR": str(self.disk("store")),
            "SKYWARD_SPILL_DIR": str(self.disk("spill")),
            "SKYWARD_LOG_DIR": str(self.disk("logs")),
            "SKYWARD_STATE_DIR": str(self.root / "state"),
            "IPYTHONDIR": str(self.root / "ipython"),
            "HOME": str(self.root / "home"),
            "JPY_SESSION_NAME": self.notebook,
        }

    # ── disks ───────────────────────────────────────────────────────────────────────────

    def fill(self, name: str, spare: int) -> None:
        """Fill a disk, but for so many bytes."""
        filler = self.disk(name) / "filler"
        with contextlib.suppress(OSError), filler.open("wb", 0) as file:
            while file.write(bytes(1 << 18)):
                """Up to its end."""
        if spare and filler.exists():
            os.truncate(filler, max(0, filler.stat().st_size - spare))

    def free(self) -> None:
        """Make all disks as they were."""
        for name in SIZES:
            (self.disk(name) / "filler").unlink(missing_ok=True)

    # ── processes ───────────────────────────────────────────────────────────────────────

    def pids(self, part: Part, pool: str) -> list[int]:
        """The processes of a part of the youngest pool of this name."""
        locks = sorted(self.runtime.glob("*/lock"), key=lambda path: path.stat().st_mtime)
        for lock in reversed(locks):
            with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
                entry = json.loads((lock.parent / "pool.json").read_text())
                if entry["spec"]["name"] != pool:
                    continue
                agent = psutil.Process(int(lock.read_text()))
                forge = agent.children()[:1]
                ranks = forge[0].children() if forge else []
                found = {Part.AGENT: [agent], Part.FORGE: forge, Part.RANK: ranks}[part]
                return [each.pid for each in found]
        return []

    def left(self, kernel: int | None) -> dict[str, str]:
        """Processes, folders and values that are there, but for the kernel and its tracker."""
        mark = f"SKYWARD_RUNTIME_DIR={self.runtime}".encode()
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if mark not in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    continue
                words = " ".join(process.cmdline())
                is_own = process.pid == kernel or "resource_tracker" in words
                if process.status() != psutil.STATUS_ZOMBIE and not is_own:
                    found[f"process {process.pid}"] = words[-120:]
        for path in self.runtime.glob("*"):
            inside = ", ".join(sorted(each.name for each in path.glob("*")))
            found[f"folder {path.name}"] = inside
        for name in ("store", "spill"):
            found |= {f"value {path}": "" for path in self.disk(name).rglob("*/*")}
        return found

    def left_after(self, seconds: float, kernel: int | None) -> dict[str, str]:
        """What is still left after so many seconds."""
        end = time.monotonic() + seconds
        while (left := self.left(kernel)) and time.monotonic() < end:
            time.sleep(0.1)
        return left

    def command(self, *words: str) -> str:
        """The output of `skyward-nb`, of a user in another terminal."""
        ran = subprocess.run(
            [sys.executable, "-m", "skyward_nb", *words],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=300,  # a guard: on a loaded machine a second of work may take a minute
        )
        return ran.stdout + ran.stderr

    def clear(self) -> None:
        """End what is left of a sequence that failed."""
        for word in self.left(None):
            kind, _, number = word.partition(" ")
            if kind == "process":
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(int(number)).kill()


def can_mount() -> bool:
    """Whether disks can be made here: as root, in a namespace of mounts that nobody else is in."""
    return os.environ.get("CHAOS_MOUNTS") == str(os.getuid()) == "0"


@contextmanager
def place(notebook: str) -> Iterator[Place]:
    """A place that is gone afterwards, with all that was started in it."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        made = Place(Path(folder), can_mount(), notebook)
        for name in (*SIZES, "home", "ipython", "state"):
            made.disk(name).mkdir()
        mounted = [name for name in SIZES if made.has_disks]
        for name in mounted:
            words = ["mount", "-t", "tmpfs", "-o", f"size={SIZES[name]}", "chaos"]
            subprocess.run([*words, str(made.disk(name))], check=True)
        try:
            yield made
        finally:
            made.clear()
            for name in mounted:
                subprocess.run(["umount", "-l", str(made.disk(name))], check=True)
