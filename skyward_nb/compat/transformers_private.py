"""transformers' private names: what a model says of how it is spread, and where arguments note their process.

A model that does not say it, as one that is none of transformers', has a plan made for it.

Seen with transformers 5.23.0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from skyward_nb.compat import accelerate_private

FIELDS_OF_PROCESS = frozenset({"distributed_state", "_setup_devices", "_n_gpu"})
"""What a `TrainingArguments` notes of the process that asks it for a device."""
TRAINERS_FIELDS_OF_PROCESS = frozenset({"accelerator", "gather_function", "_eval_dataloaders"})
"""What a `Trainer` makes for its process."""


def sets_variables() -> bool:
    """Whether arguments set variables of their process, such as the precision, which no other process would have."""
    import transformers

    return int(transformers.__version__.partition(".")[0]) < 5


def know_of_no_process(training: Any) -> None:
    """Have arguments look for devices and processes when they are asked for a device."""
    training.distributed_state, training._n_gpu = None, -1


def find_devices(training: Any) -> None:
    """Have arguments know this process's device and group, and leave alone what accelerate knows of it already.

    By itself it has accelerate forget all, so that an Accelerator that is there is of no use any more.
    """
    if not accelerate_private.knows_its_process():
        know_of_no_process(training)
        training.device  # noqa: B018 - it looks for them when it is asked
        return
    import torch
    from accelerate import PartialState

    state: Any = PartialState()
    own = vars(training)
    own["distributed_state"], own["_setup_devices"] = state, state.device
    own["local_rank"] = state.local_process_index
    several = torch.cuda.device_count() if state.num_processes == 1 else 1
    own["_n_gpu"] = 0 if state.device.type == "cpu" else several


def tensor_plan(model: Any) -> Mapping[str, str]:
    """A model's own plan of split layers: a word for each pattern of names, with `*`."""
    return getattr(model, "_tp_plan", None) or {}


def whole_blocks(model: Any) -> Collection[str]:
    """Names of classes that a model says are not to be split: its repeated blocks."""
    return getattr(model, "_no_split_modules", None) or ()
