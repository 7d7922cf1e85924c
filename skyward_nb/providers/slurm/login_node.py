"""Commands of a login node, from a machine without Slurm's: by OpenSSH's client, over one shared connection.

Names, users, keys, jump hosts and host keys are those of `~/.ssh/config`, as for `ssh` itself; nobody is asked for a
password here.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from skyward_nb.words.errors import OptionError

_OPTIONS = {
    "BatchMode": "yes",
    "ControlMaster": "auto",
    "ControlPersist": "60",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "LogLevel": "ERROR",
}


_TMP = Path("/tmp")  # noqa: S108 - TMPDIR may be too long for a socket in it; the folder is 0700


def over_login(login: str | None, words: Sequence[str]) -> list[str]:
    """The command here that runs a command on the login node; None: this machine is one."""
    if login is None:
        return list(words)
    return ["ssh", "-T", *_given(), "--", login, shlex.join(words)]


def through_login(login: str, address: tuple[str, int]) -> list[str]:
    """The command here whose stdio is a connection from the login node to a port of another machine."""
    host, port = address
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return ["ssh", "-W", place, *_given(), "--", login]


def _given() -> list[str]:
    options = _OPTIONS | {"ControlPath": f"{_folder()}/%C"}
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def _folder() -> Path:
    """A folder of this user's alone, with a short path: sockets need one. Raises `OptionError` where it is another's."""
    folder = _TMP / f".skyward-ssh-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    # ssh connects to any listener at a socket there, and gives it all that is sent.
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        raise OptionError(
            "login",
            f"{folder} is not a folder of yours alone, and ssh keeps its sockets there: remove it",
        )
    return folder
