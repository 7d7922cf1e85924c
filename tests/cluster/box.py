"""Namespaces of Linux in which processes see a machine of their own: its names, mounts, pids, links.

A box lives as long as a pipe that only the test's own process holds is open. Kill that process as
you like: process 1 of the box hears the end of the pipe and ends, the kernel ends all other
processes with it, and mounts and links go with the last of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_INSIDE = Path(__file__).with_name("inside.py")


class NoBox(Exception):
    """This machine makes no namespaces; says why."""


class Inside:
    """What is in a box, for whoever knows the number of its process 1."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        """Of process 1 of the box, as this machine counts."""

    @property
    def root(self) -> Path:
        """The box's files, seen from here."""
        return Path(f"/proc/{self.pid}/root")

    def entering(self, *words: str, only: str = "muinp") -> list[str]:
        """The command line that runs these words in the box, as root."""
        return ["nsenter", "-t", str(self.pid), *(f"-{each}" for each in only), "--", *words]

    def run(self, *words: str, only: str = "muinp", data: str = "", check: bool = True) -> str:
        """What a command says that runs in the box, as root."""
        done = subprocess.run(
            self.entering(*words, only=only), input=data, capture_output=True, text=True
        )
        if check and done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def links(self, *lines: str) -> None:
        """Lines of `ip -batch`, done among the links of the box."""
        self.run("ip", "-batch", "-", only="n", data="\n".join(lines))

    def processes(self) -> dict[int, str]:
        """Command lines in the box by process id, as the box counts; without its process 1."""
        return {pid: words for pid, (_, words) in self._processes().items()}

    def started(self, program: str) -> list[str]:
        """Command lines with a program in it, without what a shell forks: that has the shell's until it runs another."""
        found = {pid: each for pid, each in self._processes().items() if program in each[1]}
        return [words for parent, words in found.values() if parent not in found]

    def _processes(self) -> dict[int, tuple[int, str]]:
        """Parents and command lines by process id.

        Its own /proc shows its own processes, and no others. Tests ask again and again: a `ps` that
        enters the box takes ten times as long.
        """
        found = {}
        for place in (self.root / "proc").iterdir():
            # It may have ended meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if not place.name.isdigit() or place.name == "1":
                    continue
                name, _, state = (place / "stat").read_text().partition("(")[2].rpartition(") ")
                if not state.startswith("Z"):
                    words = (place / "cmdline").read_bytes().replace(b"\0", b" ").strip()
                    line = words.decode(errors="replace") or f"[{name}]"
                    found[int(place.name)] = int(state.split()[1]), line
        return found


class Box(Inside):
    """One set of namespaces. Without `fresh` folders it has all files of this machine.

    What it writes in `overlaid` folders is its own; `closed`, it can write nowhere else of this machine.
    The folder `commands` has links to the commands of this machine but its Pythons.
    """

    def __init__(
        self,
        name: str,
        *,
        fresh: Mapping[str, str] | None = None,
        kept: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        overlaid: Sequence[str] = (),
        closed: bool = False,
        commands: str = "",
    ) -> None:
        plan = {
            "name": name,
            "fresh": dict(fresh or {}),
            "kept": list(kept),
            "files": files or {},
            "overlaid": list(overlaid),
            "closed": closed,
            "commands": commands,
        }
        self._first = subprocess.Popen(
            [sys.executable, "-I", str(_INSIDE), json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._first.stdout is not None
        pid, ready = self._first.stdout.readline(), self._first.stdout.readline()
        if ready != "ready\n":
            _, said = self._first.communicate()
            raise NoBox(f"{name}: {said.strip()}")
        super().__init__(name, int(pid))

    def close(self) -> None:
        """End all that runs in the box."""
        assert self._first.stdin is not None
        self._first.stdin.close()
        self._first.wait()
        for pipe in (self._first.stdout, self._first.stderr):
            if pipe is not None:
                pipe.close()


def why_no_boxes() -> str:
    """Why there can be no test hosts here; empty if there can."""
    if sys.platform != "linux":
        return "test hosts are namespaces of Linux"
    if os.geteuid() != 0:
        return "test hosts are made by root"
    for tool in ("/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen"):
        if not Path(tool).exists():
            return f"test hosts need {tool}: apt-get install openssh-server openssh-client"
    try:
        box = Box("trial", fresh={"/mnt": "size=1m"})
    except NoBox as no:
        return f"root may make no namespaces here: {no}"
    try:
        box.links("link add trial type veth peer name other", "link add street type bridge")
    except (OSError, RuntimeError) as no:
        return f"root may make no links here: {no}"
    finally:
        box.close()
    return ""
