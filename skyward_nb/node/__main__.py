"""The command of an agent: `python -m skyward_nb.node FOLDER STORE SPILL IDLE TTL [MODULE ...]`.

Starts the forge before anything else, so that it imports frameworks while the agent starts.
"""

from __future__ import annotations

import gc
import os
import sys

from skyward_nb.node.forge_start import start_forge


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
