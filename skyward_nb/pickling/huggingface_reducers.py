"""Objects of Hugging Face that know their process: on the way they forget it, and find out anew where they arrive."""

from __future__ import annotations

import copy
import os
from contextlib import nullcontext
from typing import Any

from skyward_nb.compat import accelerate_private, transformers_private
from skyward_nb.pickling.process_bound import Unpicklable
from skyward_nb.words.info import COMPUTE_POOL


def state_of_process(state: Any) -> Any:
    """What accelerate knows of a process: that of the process it arrives in."""
    return _made, (type(state), {})


def _made(kind: Any, settings: dict[str, Any]) -> Any:
    _require_group(kind)
    return kind(**settings)


def state_of_gradients(state: Any) -> Any:
    """What it knows of a loop, which is none: that of the process it arrives in, which needs no others to be there."""
    return type(state), ()


def state_of_accelerator(state: Any) -> Any:
    """Likewise, with the precision that an `Accelerator` was made with."""
    return _state_of_accelerator, (type(state), accelerate_private.precision_of(state))


def _state_of_accelerator(kind: Any, precision: dict[str, Any]) -> Any:
    _require_group(kind)
    return accelerate_private.make_state(kind, precision)


def _waits_for_a_group() -> bool:
    """Whether this is one of several processes that have no group: who looks for the others waits for them."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return False
    import torch.distributed as dist

    return not (dist.is_available() and dist.is_initialized())


def _require_group(kind: type) -> None:
    """Raise `ValueError` where this would wait for a group that nobody forms."""
    if _waits_for_a_group():
        raise ValueError(
            f"{kind.__name__} looks for the other ranks, and these have no group: framework=huggingface forms it"
        )


def arguments(training: Any) -> Any:
    """A `TrainingArguments`: its devices and group are those of the process it arrives in."""
    if transformers_private.sets_variables():
        return NotImplemented
    left = transformers_private.FIELDS_OF_PROCESS
    state = {name: value for name, value in vars(training).items() if name not in left}
    return object.__new__, (type(training),), state, None, None, _find_devices


def _find_devices(training: Any, state: dict[str, Any]) -> None:
    vars(training).update(state)
    if _waits_for_a_group():
        transformers_private.know_of_no_process(training)
    else:
        transformers_private.find_devices(training)


def trainer(made: Any) -> Any:
    """A `Trainer`, with its model not as it was prepared for a process."""
    if transformers_private.sets_variables():
        return NotImplemented
    left = transformers_private.TRAINERS_FIELDS_OF_PROCESS
    state = {name: value for name, value in vars(made).items() if name not in left}
    state["model_wrapped"] = state.get("model")
    if (handler := state.get("callback_handler")) is not None:
        state["callback_handler"] = told = copy.copy(handler)
        told.train_dataloader = told.eval_dataloader = None
    return object.__new__, (type(made),), state, None, None, _find_processes


def _find_processes(made: Any, state: dict[str, Any]) -> None:
    _require_group(type(made))
    vars(made).update(state)
    if accelerate_private.has_other_precision(made.args.mixed_precision):
        # Arguments that are made here have it forgotten as well: a process trains in one precision after another.
        accelerate_private.forget_precision()
    with nullcontext() if COMPUTE_POOL in os.environ else accelerate_private.same_accumulation():
        made.create_accelerator_and_postprocess()
    made.state.is_local_process_zero = made.is_local_process_zero()
    made.state.is_world_process_zero = made.is_world_process_zero()


def prepared_optimizer(prepared: Any) -> Any:
    """An optimizer that an `Accelerator` has prepared for a process: the optimizer itself."""
    return _itself, (prepared.optimizer,)


def prepared_schedule(prepared: Any) -> Any:
    """Likewise a schedule."""
    return _itself, (prepared.scheduler,)


def _itself(value: Any) -> Any:
    return value


def model(module: Any) -> Any:
    """A module of torch: of one that was prepared for a process, the module itself. Another process prepares it anew."""
    if not accelerate_private.is_prepared(module):
        return NotImplemented
    reduced = module.__reduce_ex__(5)
    own = reduced[2] if isinstance(reduced, tuple) and len(reduced) > 2 else None
    if not isinstance(own, dict):
        return reduced
    return *reduced[:2], accelerate_private.as_it_was(module, own), *reduced[3:]


def accelerator(made: Any) -> Any:
    """An `Accelerator`, made anew of the same settings; what was prepared for one process is not for others."""
    if accelerate_private.has_prepared(made):
        raise Unpicklable(
            "it has prepared objects for the notebook's process; call prepare(...) in the cell that ranks run"
        )
    if accelerate_private.has_begun(made):
        raise Unpicklable(
            "it has trackers, or objects for its checkpoints, in the notebook's process; call init_trackers(...) and "
            "register_for_checkpointing(...) in the cell that ranks run"
        )
    if not accelerate_private.is_set_up(made.state):
        raise Unpicklable(
            "accelerate forgot its settings when TrainingArguments were made after it; make it last"
        )
    if (settings := accelerate_private.settings_of(made)) is None:
        raise Unpicklable(
            "how it splits models over processes (DeepSpeed, FSDP), or a class of your own, is not known to "
            "another process; make it in the cell that ranks run"
        )
    return _accelerator, (type(made), settings)


def _accelerator(kind: Any, settings: dict[str, Any]) -> Any:
    if accelerate_private.has_other_precision(wanted := settings["mixed_precision"]):
        raise ValueError(
            f"it computes in mixed_precision={wanted!r}, and Accelerators that are here already in another precision: "
            "accelerate has one for each process. New processes (%sky restart) have none yet"
        )
    return _made(kind, settings)
