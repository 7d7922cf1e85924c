"""Objects of Hugging Face that know their process: on the way they forget it, and find out anew where they arrive."""

from __future__ import annotations

import copy
from typing import Any

from skyward_nb.compat import accelerate_private, transformers_private
from skyward_nb.pickling.process_bound import Unpicklable

_OF_A_TRAINERS_PROCESS = frozenset({"accelerator", "gather_function"})


def state_of_process(state: Any) -> Any:
    """What accelerate knows of a process: that of the process it arrives in."""
    return type(state), ()


def arguments(training: Any) -> Any:
    """A `TrainingArguments`: its devices and group are those of the process it arrives in."""
    state = {n: v for n, v in vars(training).items() if n not in transformers_private.OF_PROCESS}
    return object.__new__, (type(training),), state, None, None, _find_devices


def _find_devices(training: Any, state: dict[str, Any]) -> None:
    vars(training).update(state)
    training.device  # noqa: B018 - it looks for them when it is asked


def trainer(made: Any) -> Any:
    """A `Trainer`, with its model not as it was prepared for a process."""
    state = {n: v for n, v in vars(made).items() if n not in _OF_A_TRAINERS_PROCESS}
    state["model_wrapped"] = made.model
    state["callback_handler"] = told = copy.copy(made.callback_handler)
    told.train_dataloader = told.eval_dataloader = None
    return object.__new__, (type(made),), state, None, None, _find_processes


def _find_processes(made: Any, state: dict[str, Any]) -> None:
    vars(made).update(state)
    made.create_accelerator_and_postprocess()


def prepared_optimizer(prepared: Any) -> Any:
    """An optimizer that an `Accelerator` has prepared for a process: the optimizer itself."""
    return _itself, (prepared.optimizer,)


def prepared_schedule(prepared: Any) -> Any:
    """Likewise a schedule."""
    return _itself, (prepared.scheduler,)


def _itself(value: Any) -> Any:
    return value


def accelerator(made: Any) -> Any:
    """An `Accelerator`, made anew of the same settings; what was prepared for one process is not for others."""
    if accelerate_private.has_prepared(made):
        raise Unpicklable(
            "it has prepared objects for the notebook's process; call prepare(...) in the cell that ranks run"
        )
    if (settings := accelerate_private.settings_of(made)) is None:
        raise Unpicklable(
            "it is set up for processes of its own; make it in the cell that ranks run"
        )
    return _accelerator, (type(made), settings)


def _accelerator(kind: Any, settings: dict[str, Any]) -> Any:
    return kind(**settings)
