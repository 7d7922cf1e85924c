"""Whether a host's logind ends what a login has left when it ends, our agents among it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

_SESSION = re.compile(r"/session-[^/]+\.scope(/|$)", re.MULTILINE)
_ASK = [
    "busctl",
    "get-property",
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
    "KillUserProcesses",
    "KillExcludeUsers",
    "KillOnlyUsers",
]
_LIMIT = 5.0


def ends_what_is_left(user: str, cgroup: Path = Path("/proc/self/cgroup")) -> bool:
    """Whether what this user's process starts ends with the login; no, where that cannot be told.

    Source: logind.conf(5), org.freedesktop.login1(5).
    """
    try:
        if not _SESSION.search(cgroup.read_text()):
            return False
        said = subprocess.run(  # noqa: S603 - systemd's own tool
            _ASK,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        # A line for each: `b true`, `as 1 "root"`, `as 0`.
        kills, spared, only = (shlex.split(line)[1:] for line in said.stdout.splitlines())
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return kills == ["true"] and user not in spared[1:] and (not only[1:] or user in only[1:])
