"""TensorFlow: every rank a worker of one cluster, joined before user code runs; threads shared out.

A process joins a cluster once, so it is joined here, with the server kept to the pool's machines:
`MultiWorkerMirroredStrategy()` then works in any cell, again and again. After a cut the same servers
begin anew, and variables and models stay.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from skyward_nb.compat import tensorflow_private
from skyward_nb.plugins.collectives import frames_of_thread, waits_in
from skyward_nb.plugins.plugin_base import PlainPlugin, RankContext, check_people, check_platform
from skyward_nb.plugins.tensorflow_cluster import BARRIER_KEY, SUM_KEY, Cluster, quiet, workers
from skyward_nb.runtime.process_group import entered
from skyward_nb.system import processes
from skyward_nb.system.thread_frames import looking
from skyward_nb.words.frameworks import with_what_they_need
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.mesh import Axes

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

_LOOKS, _LOOK = 1000, 0.002
"""Looks whether threads have come back, and seconds between two."""
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_MAY_RUN = "every user of the pool's other machines can connect to a rank's TensorFlow server, and so run code as you"


@dataclass(frozen=True)
class TensorflowPlugin(PlainPlugin):
    """`tensorflow`: `TF_CONFIG`, and a cluster of all ranks as workers."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """`keras`: what Keras is to run on, which importing TensorFlow imports; `log`: what it logs."""
        del variant
        wanted = with_what_they_need(spec.framework)
        unsaid = "" if "keras" in wanted else self.name
        backend = wanted.get("keras") or spec.variables.get("KERAS_BACKEND", unsaid)
        level = spec.variables.get(_LOG_LEVEL) or os.environ.get(_LOG_LEVEL, "2")
        return {"log": level} | ({"keras": backend} if backend else {})

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """TensorFlow; before it what Keras, which it imports, runs on, and how much is logged."""
        wanted = {_LOG_LEVEL: options.get("log"), "KERAS_BACKEND": options.get("keras")}
        return *(f"{name}={value}" for name, value in wanted.items() if value), "tensorflow"

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """`TF_CONFIG` with every rank as a worker, in their order."""
        del options
        task = {"type": "worker", "index": info.rank}
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers(info)}, "task": task})}

    @contextmanager
    def enter(self, place: RankContext, options: dict[str, str]) -> Generator[None]:
        """Join the cluster, or begin anew in it; raises what TensorFlow raises."""
        check_people(place.info, options, _MAY_RUN)
        if _cluster.server is None:
            _share_out(place)
            if folder := os.environ.get(processes.MARK):
                tensorflow_private.generate_code_in(Path(folder) / "autograph")
            _cluster.join(place.info)
        else:
            _cluster.rejoin(place.info)
        entered[self.name] = TensorflowGroup(place.info)
        try:
            yield
        finally:
            del entered[self.name]
            # What still waits on a peer would go on beside the next generation.
            _cluster.cancel()
            _cluster.abort()
            _await_threads()

    def cut(self) -> bool:
        """Cancel functions that run, and abort collectives if code here can have begun any."""
        _cluster.cancel()
        if not (_cluster.strategies or _cluster.barriers or _cluster.adds):
            return False
        return _cluster.abort()

    def steps(self, ended: str) -> dict[str, int]:
        """How many strategies were made, how many times ranks met, and whether collectives are done for.

        They are where they were aborted, or a thread still waits: an interrupt comes at once where a
        strategy has a thread wait in the place of the main one. Such a rank's number is no other's.
        """
        del ended
        if _cluster.server is None:
            return {}
        group = entered.get(self.name)
        torn = _cluster.is_aborted or _some_thread_waits()
        return {
            "tensorflow strategies": _cluster.strategies,
            "tensorflow barriers": _cluster.barriers,
            "tensorflow sums": group.sums() if isinstance(group, TensorflowGroup) else 0,
            "tensorflow trouble": 1 + _cluster.server.task_index if torn else 0,
        }


def _share_out(place: RankContext) -> None:
    """This rank's share of processors and GPUs; before anything is computed."""
    import tensorflow as tf

    # It takes a rank for an interactive shell, and would say at length what it does.
    tf.get_logger().setLevel("WARNING")
    tf.config.threading.set_intra_op_parallelism_threads(place.threads)
    # Two at least: one that reads may wait for one that writes.
    tf.config.threading.set_inter_op_parallelism_threads(max(2, place.threads))
    with quiet():
        gpus = tf.config.list_physical_devices("GPU") if place.info.real_accelerators else []
        if place.info.real_accelerators and not gpus:
            check_platform("TensorFlow", "tensorflow[and-cuda]", place.info)
        own = own_share(gpus, place.info)
        tf.config.set_visible_devices(own, "GPU")
        for gpu in own:
            tf.config.experimental.set_memory_growth(gpu, True)


def own_share(gpus: list[Any], info: InstanceInfo) -> list[Any]:
    """The GPUs of this rank among those it sees: every n-th, or one that several ranks share."""
    if not gpus:
        return []
    return gpus[info.local_rank :: info.workers_per_node] or [gpus[info.local_rank % len(gpus)]]


class TensorflowGroup:
    """All ranks as workers of one cluster."""

    name = "tensorflow"

    def __init__(self, info: InstanceInfo) -> None:
        self._world_size = info.world_size
        for count in _sums.values():
            count.assign(0)

    def barrier(self) -> None:
        """Wait for all ranks, by an all-reduce of a single number."""
        import tensorflow as tf

        _cluster.barriers += 1
        with tf.device("CPU:0"):
            tensorflow_private.all_reduce()(
                tf.zeros(()), self._world_size, BARRIER_KEY, _cluster.barriers
            )

    def add(self, tensor: Any, ranks: tuple[int, ...]) -> Any:
        """The sum over these ranks, also within a `tf.function`.

        Its number is counted by a variable, so that each time a compiled step runs has its own. Call it
        eagerly first.
        """
        import tensorflow as tf

        _cluster.adds = True
        with tf.device("CPU:0"):
            if ranks not in _sums:
                _sums[ranks] = tf.Variable(tf.constant(0), trainable=False, dtype=tf.int32)
            number = tf.identity(_sums[ranks].assign_add(1))
        everybody = len(ranks) == self._world_size
        key = SUM_KEY if everybody else SUM_KEY - 1 - zlib.crc32(repr(ranks).encode()) % (1 << 24)
        return tensorflow_private.all_reduce()(tensor, len(ranks), key, number)

    def sums(self) -> int:
        """How many sums over all ranks were begun."""
        everybody = _sums.get(tuple(range(self._world_size)))
        return 0 if everybody is None else int(everybody.numpy())

    def mesh(self, axes: Axes) -> NoReturn:
        """TensorFlow has none of this kind; raises RuntimeError."""
        del axes
        raise RuntimeError(
            "sky.mesh() is for framework=torch and framework=jax; under TensorFlow all ranks are "
            "one tf.distribute.MultiWorkerMirroredStrategy()"
        )


def _await_threads() -> None:
    """Wait for threads that collectives were aborted under: beginning anew beside them may crash.

    Raises TimeoutError when one stays.
    """
    # Looks are counted and not time: where this process was stopped, those threads have their turns all the same.
    for _ in range(_LOOKS):
        if not _some_thread_waits():
            return
        time.sleep(_LOOK)
    raise TimeoutError("a thread stays in TensorFlow's native code")


def _some_thread_waits() -> bool:
    """Whether another thread than this one waits in a collective of TensorFlow's, or may."""
    here = threading.get_ident()
    with looking():
        # But for the function called: an idle thread gets from a queue.
        known = [
            [*itertools.islice(frames_of_thread(frame), 1, None)]
            for ident, frame in sys._current_frames().items()
            if ident != here
        ]
    return any(map(waits_in, known))


_cluster = Cluster()
_sums: dict[tuple[int, ...], Any] = {}
"""How many sums over these ranks were begun in this generation; compiled steps count in these, too."""

PLUGIN = TensorflowPlugin(
    "tensorflow", image=("tensorflow>=2.18",), modules=("tensorflow",), serves=True, stays=True
)
