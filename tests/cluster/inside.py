"""Process 1 of a box: makes its namespaces and mounts, then waits until whoever made it is gone.

Run as a script of its own, which knows nothing of the tests: one argument, a plan as JSON, with
`name` (the host's), `fresh` (folders that are empty here, with mount options), `kept` (folders that
can be read here where they are, although they lie in a fresh one), `files` (path to text), `overlaid`
(folders in which what is written stays here), `closed` (whether all else can only be read), and
`commands` (a folder that gets a link to each command of this machine but its Pythons; none if empty).
It says its process id, then `ready`, and ends, with all that runs in the box, when stdin does.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

_NEW = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
"""CLONE_NEWNS, NEWUTS, NEWIPC, NEWPID and NEWNET."""
_FILES = ("btrfs", "ext4", "overlay", "tmpfs", "xfs", "zfs")


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, stdin=subprocess.DEVNULL)


def close() -> None:
    """Files of this machine can be read from here on, and not changed."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        is_ours = kind in _FILES and not place.startswith(("/proc", "/sys", "/dev"))
        if is_ours and "ro" not in options.split(","):
            mount("-o", "remount,bind,ro", place)


def furnish(plan: dict) -> None:
    """The mounts of the box: nothing of them is seen outside."""
    mount("--make-rprivate", "/")
    if plan["closed"]:
        close()
    mount("-t", "proc", "proc", "/proc")
    mount("-t", "sysfs", "-o", "ro", "sysfs", "/sys")
    mount("-t", "tmpfs", "kept", "/mnt")
    for number, folder in enumerate(plan["kept"]):
        aside = Path("/mnt", str(number))
        aside.mkdir()
        mount("--rbind", folder, str(aside))
    for folder, options in plan["fresh"].items():
        mount("-t", "tmpfs", "-o", options, "fresh", folder)
    for number, folder in enumerate(plan["kept"]):
        Path(folder).mkdir(parents=True, exist_ok=True)
        mount("--rbind", f"/mnt/{number}", folder)
        mount("-o", "remount,bind,ro", folder)
    for number, folder in enumerate(plan["overlaid"]):
        upper, work = Path(f"/mnt/upper-{number}"), Path(f"/mnt/work-{number}")
        upper.mkdir(mode=0o755)
        work.mkdir()
        layers = f"lowerdir={folder},upperdir={upper},workdir={work}"
        mount("-t", "overlay", "-o", layers, "overlay", folder)
    subprocess.run(["umount", "--lazy", "/mnt"], check=True)
    for number, (path, text) in enumerate(plan["files"].items()):
        real = Path(os.path.realpath(path))
        if real.exists():
            over = Path("/run", f"over-{number}")
            over.write_text(text)
            over.chmod(real.stat().st_mode & 0o777)
            mount("--bind", str(over), str(real))
        else:
            real.parent.mkdir(parents=True, exist_ok=True)
            real.write_text(text)


def link_commands(folder: str) -> None:
    """Links made here cost a tenth of those that are made from outside by way of /proc."""
    made = Path(folder)
    made.mkdir(mode=0o755)
    found = {each.name: each for own in ("/bin", "/usr/bin") for each in Path(own).iterdir()}
    for name, path in found.items():
        if not name.startswith(("python", "pip")):
            (made / name).symlink_to(path)


def bury(*_: object) -> None:
    """Take in what ended and has no parent any more, as a machine's init does."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            """One more."""
    except ChildProcessError:
        """All are."""


def main() -> None:
    plan = json.loads(sys.argv[1])
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW):
        sys.exit(f"no namespaces: {os.strerror(ctypes.get_errno())}")
    told, tell = os.pipe()
    if child := os.fork():
        print(child, flush=True)
        # Only process 1 hears of the end of stdin, so that it is what is waited for.
        os.close(0)
        os.close(tell)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.close(tell)
    os.read(told, 1)
    os.umask(0o022)
    os.setsid()
    Path("/proc/sys/kernel/hostname").write_text(plan["name"])
    if plan["fresh"]:
        furnish(plan)
    if plan["commands"]:
        link_commands(plan["commands"])
    signal.signal(signal.SIGCHLD, bury)
    print("ready", flush=True)
    while os.read(0, 1):
        """Nothing is ever said."""


main()
