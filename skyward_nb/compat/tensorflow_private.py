"""TensorFlow's private names: the context of a process, a cluster's collectives, aborted and begun anew; `tf.function`, `tf.data`.

TensorFlow joins a cluster once, and has no public way to begin collectives anew. Where a name is
missing, AttributeError or ImportError: the pool's generation is not formed. Without those of
autograph its files stay where it puts them.

Seen with tensorflow 2.20.0.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

TF_FUNCTION = ("tensorflow.python.eager.polymorphic_function.polymorphic_function", "Function")
"""Module and name of the class of what `tf.function` makes."""


def untraced(function: Any) -> Any:
    """What `tf.function` made, as it was before its first call."""
    return function._clone(None)


def graph_of(dataset: Any) -> Any:
    """A `tf.data.Dataset` as the graph that makes it; variables and tables in it are as they are now."""
    import tensorflow as tf
    from tensorflow.python.data.ops import options

    # Where random numbers go on is not kept: each process has its own.
    written = dataset._as_serialized_graph(
        strip_device_assignment=True, external_state_policy=options.ExternalStatePolicy.IGNORE
    )
    return tf.compat.v1.GraphDef.FromString(written.numpy())


def dataset_of(graph: bytes, element_spec: Any) -> Any:
    """The `tf.data.Dataset` that a graph makes."""
    from tensorflow.python.data.ops import dataset_ops
    from tensorflow.python.ops import gen_experimental_dataset_ops

    made = gen_experimental_dataset_ops.dataset_from_graph(graph)
    return dataset_ops._VariantDataset(made, element_spec)


# ── the context ─────────────────────────────────────────────────────────────────────────


def context() -> Any:
    """TensorFlow's context, of which a process has one."""
    from tensorflow.python.eager import context as module

    return module.context()


def be_patient(workers: int, *, join: float, silence: float) -> None:
    """Have the cluster that is joined next wait so many seconds for its workers, and for a word of each."""
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2 as words

    made: Any = words
    context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        cluster_register_timeout_in_ms=int(join * 1000),
        heartbeat_timeout_in_ms=int(silence * 1000),
        coordinated_jobs=[made.CoordinatedJob(name="worker", num_tasks=workers)],
    )


def server() -> Any:
    """The arguments of this worker's server: its `cluster`, and its `task_index` there."""
    return context()._collective_ops_server_def


def heed_joining(configured: Callable[..., None], enabled: Callable[[Any], None]) -> None:
    """From now on, strategies that configure collectives, and enable them on a server, call these."""
    here = context()
    here.configure_collective_ops = configured
    here.enable_collective_ops = enabled


def see_own_devices(task: int) -> None:
    """Leave other workers' devices out of those that are listed: a local strategy would take them, and crash."""
    here, own = context(), f"/task:{task}/"
    here._logical_devices = [each for each in here._logical_devices if own in each.name]


def begin_anew(server: Any) -> None:
    """Enable collectives again that were aborted, on the same servers."""
    from tensorflow.python import pywrap_tfe

    here = context()
    here._collective_ops_server_def = server
    pywrap_tfe.TFE_EnableCollectiveOps(here._context_handle, server.SerializeToString())
    here._initialize_logical_devices()
    here._clear_caches()


def abort_collectives(why: str) -> None:
    """Have collectives raise from now on; from any thread."""
    from tensorflow.python.framework import errors_impl

    context().abort_collective_ops(errors_impl.UNAVAILABLE, why)


def cancellable() -> Any:
    """A manager whose `start_cancel()` cancels every function called until another manager replaces it."""
    from tensorflow.python.eager import cancellation

    manager = cancellation.CancellationManager()
    cancellation.CancellationManagerContext(manager).__enter__()
    return manager


# ── code that autograph generates ───────────────────────────────────────────────────────


def generate_code_in(folder: Path) -> None:
    """Have autograph write the modules that it generates into this folder, and make it.

    By itself it puts them where temporary files are, and deletes them with `atexit`: not in a
    process that is killed or leaves by `os._exit`, as a rank does.
    """
    with contextlib.suppress(ImportError, OSError):
        from tensorflow.python.autograph.pyct import loader

        folder.mkdir(exist_ok=True)
        made = functools.partial(tempfile.NamedTemporaryFile, dir=folder)
        # Only what this one module knows as `tempfile`: everybody else's stays as it is.
        loader.tempfile = types.SimpleNamespace(NamedTemporaryFile=made)


# ── words left with the head ────────────────────────────────────────────────────────────


def leave_word(name: str, word: str) -> None:
    """Leave a word for the cluster's other workers."""
    context().set_config_key_value(name, word)


def has_word(name: str, milliseconds: int) -> bool:
    """Whether somebody has left a word of this name, or does within this time.

    TensorFlow lets no other thread run while it waits for one.
    """
    from tensorflow.python.framework import errors_impl

    try:
        context().get_config_key_value(name, milliseconds)
    except (errors_impl.DeadlineExceededError, errors_impl.NotFoundError):
        return False
    return True


# ── keys of collectives ─────────────────────────────────────────────────────────────────


def begin_keys_at(key: int) -> None:
    """Have the next strategy number its groups of devices from here on."""
    import tensorflow as tf

    tf.distribute.MultiWorkerMirroredStrategy._collective_key_base = key


def number_collectives_from(more: int) -> None:
    """Let existing strategies number their next collectives from this many above the first."""
    from tensorflow.python.distribute import cross_device_utils

    first = cross_device_utils.INSTANCE_KEY_START_NUMBER + more
    for each in gc.get_objects():
        if type(each) is cross_device_utils.CollectiveKeys:
            for devices in each._instance_key_table.values():
                devices.update(dict.fromkeys(devices, first))


def all_reduce() -> Callable[[Any, int, int, int], Any]:
    """An all-reduce that is no strategy's: of a tensor, the size of the group, its key, a number."""
    from tensorflow.python.ops import collective_ops

    return collective_ops.all_reduce_v2


def processes_of(strategy: Any) -> int:
    """The number of processes in a strategy."""
    return int(getattr(strategy.extended, "_num_workers", 1))
