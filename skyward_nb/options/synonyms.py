"""Words of other tools for what is called otherwise here: which are taken, and what is said of the others. Pure."""

from __future__ import annotations

ALIASES = {
    "-n": "nodes",
    "mount": "volumes",
    "nnodes": "nodes",
    "num_nodes": "nodes",
    "nproc_per_node": "ranks_per_node",
}
"""Options by the words of others that mean just them."""

VERB_ALIASES = {
    **dict.fromkeys(("ls", "ps", "list", "pools"), "status"),
    **dict.fromkeys(("-h", "--help"), "help"),
}
"""Verbs of `%sky` by the words of others."""

_GPUS = "accelerator=A100:2 asks each node for so many GPUs, by their name"
_RANKS = "nodes=4 makes four ranks, and ranks_per_node= more of them on each node"
_POOL = "pool=NAME names the pool"
_MEMORY = "memory_limit=2GB limits each rank; memory= chooses the size of rented machines"
_CPUS = "cpu_limit=2 limits each rank; cpus= chooses the size of rented machines"
OPTION_HINTS = {
    **dict.fromkeys(("gpu", "gpus", "num_gpus", "ngpus", "devices"), _GPUS),
    **dict.fromkeys(
        (
            "n",
            "np",
            "nproc",
            "workers",
            "num_workers",
            "n_workers",
            "engines",
            "processes",
            "procs",
        ),
        _RANKS,
    ),
    **dict.fromkeys(("name", "cluster_name"), _POOL),
    **dict.fromkeys(("mem", "mem_limit", "max_memory", "ram"), _MEMORY),
    **dict.fromkeys(("cpu", "cores", "num_cpus", "max_cpus", "threads"), _CPUS),
    "device": "accelerator=A100 asks for GPUs, and accelerator=none for ranks on CPU",
    "background": "detach runs the cell in the background",
    "force": "replace takes down the running pool if its options differ, and starts a new one",
}
"""By a word that is no option: what to write."""

VERB_HINTS = {
    "stop": "%sky down takes a pool down; the square button, or .cancel() of a handle, stops a run",
    "kill": "%sky down takes a pool down; the square button, or .cancel() of a handle, stops a run",
    "rm": "%sky down takes a pool down",
    "delete": "%sky down takes a pool down",
    "start": "%sky up starts a pool, and the first %%sky_remote cell, too",
    "create": "%sky up starts a pool, and the first %%sky_remote cell, too",
    "resize": "nodes=4 replace on a cell's line makes the pool anew with other options",
    "scale": "nodes=4 replace on a cell's line makes the pool anew with other options",
}
"""By a word that is no verb of `%sky`: what to write."""


def asks_for_help(line: str) -> bool:
    """Whether the option line asks how it is written."""
    return not {"--help", "-h"}.isdisjoint(line.split())
