"""The command of an agent: `python -m skyward_nb.node FOLDER STORE SPILL IDLE TTL [MODULE ...]`.

Starts the forge before anything else, so that it imports frameworks while the agent starts.
"""

from __future__ import annotations

import gc
import os
import socket
import sys


def start_forge(arguments: list[str]) -> tuple[int, socket.socket]:
    """Start the forge; its process id and our end of its control socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.set_inheritable(theirs.fileno(), True)
    safely = ["-P"] if sys.flags.safe_path else []
    command = [sys.executable, *safely, "-m", "skyward_nb.node.forge", str(os.getpid())]
    command += [str(theirs.fileno()), *arguments]
    quiet = (os.POSIX_SPAWN_DUP2, 2, 1)
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=[quiet])
    theirs.close()
    return pid, ours


def main() -> None:
    """Be the agent of the folder that the command line names."""
    folder, store, spill, idle, ttl, *modules = sys.argv[1:]
    os.environ["SKYWARD_POOL"] = folder  # wire.processes.MARK; nothing is imported before the forge
    pid, control = start_forge([folder, store, spill, *modules])

    # Imported objects stay: looking for garbage in them takes a tenth of an agent's start.
    gc.disable()
    from skyward_nb.node.agent import AgentLimits, run

    gc.freeze()
    gc.enable()
    run(folder, (store, spill), AgentLimits(float(idle), float(ttl)), pid, control)


if __name__ == "__main__":
    main()
