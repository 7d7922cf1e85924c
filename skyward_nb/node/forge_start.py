"""The start of a forge: a fork of the agent's process, or a program of its own, where its Python is another.

A fork has what both import already: a pool starts with a third less work than by two programs.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable


def fork_forge(be_forge: Callable[[int, socket.socket], None]) -> tuple[int, socket.socket]:
    """Fork this process, which has one thread; its process id and our end of its control socket.

    There `be_forge` gets the agent's process id and the other end, and the process ends after it.
    """
    ours, theirs = _control_socket()
    agent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    code = 1
    try:
        ours.close()
        os.dup2(2, 1)
        be_forge(agent, theirs)
        code = 0
    except BaseException:  # noqa: BLE001 - into the agent's log: its process ends here
        traceback.print_exc()
    finally:
        # Nothing is left to be orderly about, and unloading a framework takes its time.
        os._exit(code)


def start_forge(
    arguments: list[str], python: str = "", environ: dict[str, str] | None = None
) -> tuple[int, socket.socket]:
    """Start a forge in this Python, or another; its process id and our end of its control socket.

    `arguments` are the pool's folders, and modules to import. Raises OSError.
    """
    ours, theirs = _control_socket()
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


def _control_socket() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
