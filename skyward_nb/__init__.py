"""skyward_nb: run a notebook cell, or a Python function, on a pool of ranks.

In a notebook: `%load_ext skyward_nb`, then `%%sky_remote nodes=4` above a cell. On ranks and
anywhere else: `import skyward_nb as sky`. Names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward_nb import plugins
    from skyward_nb.functions import integrations
    from skyward_nb.functions.compute import Compute
    from skyward_nb.functions.compute import Compute as ComputePool
    from skyward_nb.functions.function import PendingFunction, function, gather
    from skyward_nb.functions.function import function as compute
    from skyward_nb.functions.function_marks import silent, stderr, stdout
    from skyward_nb.functions.get_pool import get_pool
    from skyward_nb.functions.script_calls import run
    from skyward_nb.notebook.run_handle import RunHandle
    from skyward_nb.options.accelerator_choices import NVIDIA, Accelerator, accelerators
    from skyward_nb.options.arguments import Spec
    from skyward_nb.options.provider_arguments import (
        AWS,
        SSH,
        Kubernetes,
        Local,
        Ray,
        SkyPilot,
        Slurm,
    )
    from skyward_nb.reports.rank_failures import RankFailure
    from skyward_nb.reports.results import RankResults
    from skyward_nb.runtime.accumulate import accumulate
    from skyward_nb.runtime.checkpoint import checkpoint
    from skyward_nb.runtime.instance import device, instance_info, is_head, rank, world_size
    from skyward_nb.runtime.parallelize import full_state, parallelize
    from skyward_nb.runtime.preempt import on_preempt
    from skyward_nb.runtime.progress import log, progress
    from skyward_nb.runtime.rejoin import rejoin
    from skyward_nb.runtime.sampler import DistributedSampler as DistributedSampler
    from skyward_nb.runtime.shard import shard
    from skyward_nb.runtime.sync import barrier, data_place, mesh
    from skyward_nb.words.checkpoints import StoppedAtNotice
    from skyward_nb.words.errors import (
        AcceleratorError,
        AccountError,
        BudgetSpent,
        HostError,
        HostNotReady,
        LaunchError,
        MachineLost,
        MissingDependency,
        NodesRefused,
        NotAgreed,
        NothingFits,
        NotReplaced,
        OptionError,
        PayloadError,
        PoolBusy,
        PoolError,
        RankDied,
        RemoteError,
        ResultTooLarge,
        RunGoesOn,
        RuntimeFolderError,
        RunTimeout,
        SkyError,
        StartError,
        TakenBack,
    )
    from skyward_nb.words.folder_entry import FolderError
    from skyward_nb.words.image import Image
    from skyward_nb.words.info import InstanceInfo
    from skyward_nb.words.pool_options import Options, Worker
    from skyward_nb.words.volume import Volume
    from skyward_nb.words.worker_failures import FailedWorker, WorkersFailed

__version__ = "0.2.0"

_ALIASES = {"ComputePool": "Compute", "compute": "function"}
"""The words of an older dialect of this API, and what they are called here."""

_HOMES = {
    "AWS": "options.provider_arguments",
    "AccountError": "words.errors",
    "Accelerator": "options.accelerator_choices",
    "AcceleratorError": "words.errors",
    "BudgetSpent": "words.errors",
    "Compute": "functions.compute",
    "Kubernetes": "options.provider_arguments",
    "LaunchError": "words.errors",
    "Local": "options.provider_arguments",
    "DistributedSampler": "runtime.sampler",
    "FolderError": "words.folder_entry",
    "HostError": "words.errors",
    "HostNotReady": "words.errors",
    "Image": "words.image",
    "InstanceInfo": "words.info",
    "MachineLost": "words.errors",
    "MissingDependency": "words.errors",
    "NVIDIA": "options.accelerator_choices",
    "NodesRefused": "words.errors",
    "NotAgreed": "words.errors",
    "NotReplaced": "words.errors",
    "NothingFits": "words.errors",
    "OptionError": "words.errors",
    "Options": "words.pool_options",
    "PayloadError": "words.errors",
    "PendingFunction": "functions.function",
    "PoolBusy": "words.errors",
    "PoolError": "words.errors",
    "RankDied": "words.errors",
    "RankFailure": "reports.rank_failures",
    "RankResults": "reports.results",
    "RemoteError": "words.errors",
    "ResultTooLarge": "words.errors",
    "RunGoesOn": "words.errors",
    "RunHandle": "notebook.run_handle",
    "RunTimeout": "words.errors",
    "RuntimeFolderError": "words.errors",
    "SSH": "options.provider_arguments",
    "SkyError": "words.errors",
    "Ray": "options.provider_arguments",
    "SkyPilot": "options.provider_arguments",
    "Slurm": "options.provider_arguments",
    "Spec": "options.arguments",
    "StartError": "words.errors",
    "StoppedAtNotice": "words.checkpoints",
    "TakenBack": "words.errors",
    "Volume": "words.volume",
    "Worker": "words.pool_options",
    "FailedWorker": "words.worker_failures",
    "WorkersFailed": "words.worker_failures",
    "accelerators": "options.accelerator_choices",
    "accumulate": "runtime.accumulate",
    "barrier": "runtime.sync",
    "checkpoint": "runtime.checkpoint",
    "data_place": "runtime.sync",
    "device": "runtime.instance",
    "full_state": "runtime.parallelize",
    "function": "functions.function",
    "gather": "functions.function",
    "get_pool": "functions.get_pool",
    "instance_info": "runtime.instance",
    "is_head": "runtime.instance",
    "log": "runtime.progress",
    "mesh": "runtime.sync",
    "on_preempt": "runtime.preempt",
    "parallelize": "runtime.parallelize",
    "progress": "runtime.progress",
    "rank": "runtime.instance",
    "rejoin": "runtime.rejoin",
    "run": "functions.script_calls",
    "shard": "runtime.shard",
    "silent": "functions.function_marks",
    "stderr": "functions.function_marks",
    "stdout": "functions.function_marks",
    "world_size": "runtime.instance",
}

_MODULES = {"integrations": "functions.integrations", "plugins": "plugins"}

# All but DistributedSampler: `import *` would import torch with it, or fail without.
__all__ = [
    "AWS",
    "NVIDIA",
    "SSH",
    "Accelerator",
    "AcceleratorError",
    "AccountError",
    "BudgetSpent",
    "Compute",
    "ComputePool",
    "FailedWorker",
    "FolderError",
    "HostError",
    "HostNotReady",
    "Image",
    "InstanceInfo",
    "Kubernetes",
    "LaunchError",
    "Local",
    "MachineLost",
    "MissingDependency",
    "NodesRefused",
    "NotAgreed",
    "NotReplaced",
    "NothingFits",
    "OptionError",
    "Options",
    "PayloadError",
    "PendingFunction",
    "PoolBusy",
    "PoolError",
    "RankDied",
    "RankFailure",
    "RankResults",
    "Ray",
    "RemoteError",
    "ResultTooLarge",
    "RunGoesOn",
    "RunHandle",
    "RunTimeout",
    "RuntimeFolderError",
    "SkyError",
    "SkyPilot",
    "Slurm",
    "Spec",
    "StartError",
    "StoppedAtNotice",
    "TakenBack",
    "Volume",
    "Worker",
    "WorkersFailed",
    "accelerators",
    "accumulate",
    "barrier",
    "checkpoint",
    "compute",
    "data_place",
    "device",
    "full_state",
    "function",
    "gather",
    "get_pool",
    "instance_info",
    "integrations",
    "is_head",
    "load_ipython_extension",
    "log",
    "mesh",
    "on_preempt",
    "parallelize",
    "plugins",
    "progress",
    "rank",
    "rejoin",
    "run",
    "shard",
    "silent",
    "stderr",
    "stdout",
    "unload_ipython_extension",
    "world_size",
]


def __getattr__(name: str) -> Any:
    own = _ALIASES.get(name, name)
    home = _HOMES.get(own) or _MODULES.get(own)
    if home is None:
        raise AttributeError(f"module 'skyward_nb' has no attribute {name!r}")
    module = importlib.import_module(f"skyward_nb.{home}")
    value = module if own in _MODULES else getattr(module, own)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES, *_MODULES, *_ALIASES})


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register `%%sky_remote` and `%sky`; called by `%load_ext skyward_nb`, again without harm."""
    from skyward_nb.notebook.magics import load

    load(ipython)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Take the notebook's pools down and the magics away; called by `%unload_ext`."""
    from skyward_nb.notebook.magics import unload

    unload(ipython)
