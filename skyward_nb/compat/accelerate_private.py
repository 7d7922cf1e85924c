"""accelerate's private names: what it knows of processes, for as long as a process lives, and how an Accelerator is set up.

Where one is missing, AttributeError: the pool's generation is not entered or left.

Seen with accelerate 1.15.0.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


def knows_a_group() -> bool:
    """Whether it knows of processes that a group joins."""
    from accelerate.state import PartialState

    return PartialState._shared_state.get("backend") is not None


def knows_its_process() -> bool:
    """Whether it has found out of which processes this is one."""
    from accelerate.state import PartialState

    return bool(PartialState._shared_state)


def known() -> dict[str, Any]:
    """Accelerate's state of its processes, by its own names."""
    from accelerate.state import AcceleratorState

    return AcceleratorState._shared_state


def forget() -> None:
    """Have it know nothing of processes, as at the start of one."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def forget_processes(state: object) -> None:
    """Have it know nothing of processes, which this PartialState is to find out."""
    kind: Any = type(state)
    kind._reset_state()


def leave_loops() -> None:
    """Have it be in no loop over data: one that was interrupted, another would take itself to be in."""
    from accelerate.state import GradientState

    if GradientState._shared_state:
        gradients = GradientState()
        gradients.dataloader_references = [None]
        gradients.sync_gradients = True


def is_set_up(state: Any) -> bool:
    """Whether an AcceleratorState has its settings; it has lost them where TrainingArguments were made since."""
    return "_mixed_precision" in vars(state)


def precision_of(state: Any) -> dict[str, Any]:
    """The precision that an AcceleratorState was made with, and whether it keeps to CPUs; none if it is not yet."""
    if not is_set_up(state):
        return {}
    return {"mixed_precision": state._mixed_precision, "cpu": state._cpu}


def has_other_precision(precision: str) -> bool:
    """Whether Accelerators of this process are of another precision than this; all are of one."""
    return known().get("_mixed_precision", precision) != precision


def forget_precision() -> None:
    """Have the next Accelerator say of which precision all of this process are."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()


def make_state(kind: Any, precision: dict[str, Any]) -> Any:
    """This process's AcceleratorState; of this precision, if it is made now."""
    return kind() if known() else kind(**precision, _from_accelerator=True)


@contextmanager
def same_accumulation() -> Generator[None]:
    """Meanwhile another Accelerator may be made: what one accumulates is that of all of a process."""
    from accelerate.state import GradientState

    before = dict(GradientState._shared_state)
    try:
        yield
    finally:
        if before:
            GradientState._shared_state.update(before)


def unwrapped(holder: Any) -> Any:
    """The optimizer or schedule of which accelerate has prepared this one; any other is itself."""
    if any(each.__module__.startswith("accelerate.") for each in type(holder).__mro__):
        return getattr(holder, "optimizer", None) or getattr(holder, "scheduler", holder)
    return holder


_PREPARED, _FORWARD = "_is_accelerate_prepared", "_original_forward"


def is_prepared(module: Any) -> bool:
    """Whether an Accelerator has prepared this module for its process; of one in a `DistributedDataParallel`, that is marked."""
    return _PREPARED in vars(module) or _FORWARD in vars(module)


def as_it_was(module: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The state of a module without what preparing it has put in."""
    own = {name: value for name, value in state.items() if name != _PREPARED}
    if (forward := own.pop(_FORWARD, None)) is not None:
        own["forward"] = forward
        if getattr(forward, "__func__", None) is type(module).forward:
            del own["forward"]
    return own


def has_prepared(accelerator: Any) -> bool:
    """Whether an Accelerator keeps what it has prepared for its process."""
    return _has(accelerator, "_models", "_optimizers", "_schedulers", "_dataloaders")


def has_begun(accelerator: Any) -> bool:
    """Whether it has trackers, or objects that are registered for its checkpoints."""
    return _has(accelerator, "_custom_objects", "trackers")


def _has(accelerator: Any, *names: str) -> bool:
    return any(getattr(accelerator, name, None) for name in names)


def settings_of(accelerator: Any) -> dict[str, Any] | None:
    """What makes an Accelerator of the same settings; None where it shards models, or is of a class of somebody's own."""
    from accelerate import Accelerator
    from accelerate.utils import GradientAccumulationPlugin, KwargsHandler

    state = accelerator.state
    sharding = (
        "deepspeed_plugins",
        "fsdp_plugin",
        "megatron_lm_plugin",
        "torch_tp_plugin",
        "device_mesh",
    )
    if type(accelerator) is not Accelerator or any(getattr(state, n, None) for n in sharding):
        return None
    return {
        "mixed_precision": accelerator.mixed_precision,
        "cpu": state._cpu,
        "device_placement": accelerator.device_placement,
        "dataloader_config": accelerator.dataloader_config,
        "rng_types": accelerator.rng_types,
        "log_with": [getattr(each, "value", each) for each in accelerator.log_with] or None,
        "project_config": accelerator.project_configuration,
        "step_scheduler_with_optimizer": accelerator.step_scheduler_with_optimizer,
        "dynamo_plugin": state.dynamo_plugin,
        "gradient_accumulation_plugin": GradientAccumulationPlugin(
            **accelerator.gradient_state.plugin_kwargs
        ),
        "kwargs_handlers": [
            each for each in vars(accelerator).values() if isinstance(each, KwargsHandler)
        ],
    }
