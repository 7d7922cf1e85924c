"""Which way each kind of object is taken apart, where pickle's own will not do.

A way takes an object and gives what `__reduce_ex__` would. Packages are never imported for that: a kind is known by
the name of its module.
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from typing import Any

from skyward_nb.compat import tensorflow_private, torch_models_private
from skyward_nb.pickling import (
    compiled_reducers,
    dataset_reducers,
    huggingface_reducers,
    keras_reducers,
    reducers,
    torch_reducers,
    typing_reducers,
)
from skyward_nb.pickling.process_bound import OPEN_FILE, Unpicklable, families, refusal

Reducer = Callable[[Any], Any]


def reducer_of(kind: type) -> Reducer | None:
    """The way of objects of this kind, None where pickle's own will do."""
    if (why := refusal(kind)) is not None:
        return _standard_stream if issubclass(kind, io.IOBase) else functools.partial(_refuse, why)
    if (way := _EXACT.get((kind.__module__, kind.__name__))) is not None:
        return way
    if is_of_one_object(kind):
        return torch_reducers.parametrized
    ways = (
        table[family]
        for table in (_REDUCERS, _AFTER)
        for family in families(kind)
        if family in table
    )
    return next(ways, None)


def is_of_one_object(kind: type) -> bool:
    """Whether this is a class that torch made for one module, and that goes with it."""
    return kind.__module__ == torch_models_private.PARAMETRIZED and "__getstate__" in vars(kind)


def _refuse(why: str, _: object) -> Any:
    raise Unpicklable(why)


def _standard_stream(stream: object) -> Any:
    """The process's own output stands for that of the process it arrives in."""
    for name in ("stdout", "stderr"):
        if stream is getattr(sys, name):
            return getattr, (sys, name)
    raise Unpicklable(OPEN_FILE)


def _of_dataclasses(mark: object) -> str:
    """A mark that `dataclasses` knows by being the one object that it is, such as MISSING."""
    names = vars(sys.modules["dataclasses"])
    return next(name for name, value in names.items() if value is mark)


def _progress_bar(bar: Any) -> Any:
    """A bar of tqdm: only one that never draws can leave its process."""
    if not hasattr(bar, "fp"):
        return NotImplemented
    raise Unpicklable("a bar is drawn by its process; make it in the cell that goes on with it")


def _writer(writer: Any) -> Any:
    """A `SummaryWriter`: only one that is closed can leave its process."""
    if getattr(writer, "file_writer", None) is None:
        return NotImplemented
    raise Unpicklable("it writes files from its process; make it in the cell that writes")


def _as_made(settings: Any) -> Any:
    """What `torch.compile` notes for itself with a function's first call."""
    return type(settings), ()


_REDUCERS: dict[tuple[str, str], Reducer] = {
    ("functools", "_lru_cache_wrapper"): reducers.cached_function,
    ("functools", "cached_property"): reducers.cached_property,
    ("weakref", "WeakKeyDictionary"): reducers.weak_dictionary,
    ("weakref", "WeakValueDictionary"): reducers.weak_dictionary,
    ("dataclasses", "_MISSING_TYPE"): _of_dataclasses,
    ("dataclasses", "_HAS_DEFAULT_FACTORY_CLASS"): _of_dataclasses,
    ("dataclasses", "_KW_ONLY_TYPE"): _of_dataclasses,
    ("dataclasses", "_FIELD_BASE"): _of_dataclasses,
    ("typing", "NewType"): typing_reducers.new_type,
    ("typing", "ParamSpec"): typing_reducers.parameters,
    ("typing", "TypeVarTuple"): typing_reducers.parameters,
    ("typing", "TypeAliasType"): typing_reducers.alias,
    ("typing_extensions", "ParamSpec"): typing_reducers.parameters,
    ("typing_extensions", "TypeVarTuple"): typing_reducers.parameters,
    ("typing_extensions", "TypeAliasType"): typing_reducers.alias,
    ("numpy", "finfo"): reducers.limits_of_type,
    ("ml_dtypes", "finfo"): reducers.limits_of_type,
    ("tqdm", "tqdm"): _progress_bar,
    ("torch", "SummaryWriter"): _writer,
    ("torch", "ConvertFrameBox"): _as_made,
    ("torch", "finfo"): reducers.limits_of_torch_type,
    ("torch", "iinfo"): reducers.limits_of_torch_type,
    ("torch", "ScriptModule"): compiled_reducers.scripted,
    ("torch", "ScriptFunction"): compiled_reducers.scripted,
    ("torch", "ExportedProgram"): compiled_reducers.exported,
    ("jaxlib", "PjitFunction"): compiled_reducers.jitted,
    ("jax", "custom_vjp"): compiled_reducers.custom_vjp,
    ("jax", "custom_jvp"): compiled_reducers.custom_jvp,
    ("torch", "UntypedStorage"): reducers.torch_storage,
    ("torch", "TypedStorage"): reducers.torch_typed_storage,
    ("torch", "Generator"): reducers.torch_generator,
    ("torch", "DTensor"): reducers.spread,
    ("torch", "LRScheduler"): torch_reducers.schedule,
    ("torch", "Optimizer"): torch_reducers.optimizer,
    ("torch", "DataLoader"): dataset_reducers.loader,
    ("tensorflow", "DatasetV2"): dataset_reducers.pipeline,
    ("jaxlib", "ArrayImpl"): reducers.jax_array,
    ("jax", "PRNGKeyArray"): reducers.jax_array,
    ("pyarrow", "Array"): reducers.arrow_array,
    ("pyarrow", "ChunkedArray"): reducers.arrow_array,
    ("keras", "KerasSaveable"): keras_reducers.keras_object,
    ("transformers", "TrainingArguments"): huggingface_reducers.arguments,
    ("transformers", "Trainer"): huggingface_reducers.trainer,
    ("accelerate", "Accelerator"): huggingface_reducers.accelerator,
    ("accelerate", "AcceleratedOptimizer"): huggingface_reducers.prepared_optimizer,
    ("accelerate", "AcceleratedScheduler"): huggingface_reducers.prepared_schedule,
    ("accelerate", "PartialState"): huggingface_reducers.state_of_process,
    ("accelerate", "AcceleratorState"): huggingface_reducers.state_of_accelerator,
    ("accelerate", "GradientState"): huggingface_reducers.state_of_gradients,
}
_AFTER: dict[tuple[str, str], Reducer] = {("torch", "Module"): huggingface_reducers.model}
"""Ways of kinds that none of the others takes, although what they derive from comes later: Keras's layers on torch."""
_EXACT: dict[tuple[str, str], Reducer] = {
    ("numpy", "ndarray"): reducers.numpy_array,
    tensorflow_private.TF_FUNCTION: compiled_reducers.tf_function,
}
