"""The command of an agent: `python -m skyward_nb.node LOCK FOLDER STORE SPILL IDLE TTL [MODULE ...]`.

LOCK is the descriptor of the folder's lock file. Its environment has the folder as `processes.MARK`, by which its descendants are found.
Imports what agent and forge both need, and forks: the forge imports frameworks while the agent starts.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys

from skyward_nb.node.forge_start import fork_forge
from skyward_nb.system import processes

SHARED = (
    "skyward_nb.node.forge_messages",
    "skyward_nb.node.stack_pipe",
    "skyward_nb.node.unread_bytes",
    "skyward_nb.plugins.plugin_table",
    "skyward_nb.protocol.frames",
    "skyward_nb.runtime.instance",
    "skyward_nb.runtime.kept_state",
    "skyward_nb.store.blobs",
    "skyward_nb.store.content_store",
    "skyward_nb.system.memory",
    "skyward_nb.system.parenthood",
    "skyward_nb.system.processes",
    "skyward_nb.system.second_look",
    "skyward_nb.workdir.working_folder",
)
"""What agent and forge both import, with all that these import."""


def main() -> None:
    """Be the agent of the folder that the command line names."""
    processes.name_this("sky-agent")
    handed, folder, store, spill, idle, ttl, *modules = sys.argv[1:]
    lock = int(handed)
    os.set_inheritable(lock, False)
    # Imported objects stay: looking for garbage in them takes a tenth of an agent's start.
    gc.disable()
    for module in SHARED:
        importlib.import_module(module)
    gc.freeze()

    def be_forge(agent: int, control: socket.socket) -> None:
        from skyward_nb.node import forge

        os.close(lock)
        sys.argv[1:] = []  # ranks have them; they are the agent's
        forge.serve(agent, control, (folder, store, spill), modules)

    pid, control = fork_forge(be_forge)
    from skyward_nb.node.agent import AgentLimits, run

    gc.freeze()
    gc.enable()
    run(folder, lock, (store, spill), AgentLimits(float(idle), float(ttl)), pid, control)


if __name__ == "__main__":
    main()
