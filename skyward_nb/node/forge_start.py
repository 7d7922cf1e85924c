"""The start of a forge, before or after anything else is imported: this imports nothing of ours."""

from __future__ import annotations

import os
import socket
import sys


def start_forge(
    arguments: list[str], python: str = "", environ: dict[str, str] | None = None
) -> tuple[int, socket.socket]:
    """Start a forge in this Python, or another; its process id and our end of its control socket.

    `arguments` are the pool's folders, and modules to import. Raises OSError.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        os.set_inheritable(theirs.fileno(), True)
        safely = ["-P"] if sys.flags.safe_path else []
        python = python or sys.executable
        command = [python, *safely, "-m", "skyward_nb.node.forge", str(os.getpid())]
        command += [str(theirs.fileno()), *arguments]
        quiet = (os.POSIX_SPAWN_DUP2, 2, 1)
        try:
            pid = os.posix_spawn(python, command, environ or os.environ, file_actions=[quiet])
        except OSError:
            ours.close()
            raise
    return pid, ours
