"""TensorFlow: every rank a worker of one cluster, joined before user code runs; threads shared out.

A process joins a cluster once, so it is joined here, with the server kept to the pool's machines
(`gate`): `MultiWorkerMirroredStrategy()` then works in any cell, again and again. After a cut the
same servers begin anew (`_Cluster.rejoin`), and variables and models stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from skyward_nb.plugins.base import Place, PlainPlugin
from skyward_nb.plugins.collectives import frames_of_thread, waits_in
from skyward_nb.plugins.gate import gate
from skyward_nb.runtime.groups import entered
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import with_what_they_need
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.mesh import Axes, spell_mesh
from skyward_nb.words.spec import PoolSpec

_JOIN, _REJOIN = 120.0, 8.0
_SILENCE = 600.0
"""Seconds a rank may be silent to TensorFlow's own heartbeats: whether it lives, the agent knows."""
_GENERATIONS, _STRATEGIES = 1 << 18, 1 << 6
"""Keys of groups of devices that a generation has for its strategies, and one strategy of them."""
_BARRIER_KEY = (1 << 31) - 1
_CUT = "skyward cut this rank's communication"


@dataclass(frozen=True)
class TensorflowPlugin(PlainPlugin):
    """`tensorflow`: `TF_CONFIG`, and a cluster of all ranks as workers."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """`keras`: what Keras is to run on, which importing TensorFlow imports."""
        del variant
        wanted = with_what_they_need(spec.framework)
        if spec.mesh and not {"torch", "jax"} & wanted.keys():
            raise OptionError(
                "mesh",
                f"mesh={spell_mesh(spec.mesh)}: meshes are for framework=torch and framework=jax; "
                "TensorFlow's strategies have none",
            )
        unsaid = "" if "keras" in wanted else self.name
        backend = wanted.get("keras") or spec.env.get("KERAS_BACKEND", unsaid)
        return {"keras": backend} if backend else {}

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """TensorFlow; before it what Keras, which it imports, runs on, and that it be quiet."""
        keras = options.get("keras", "")
        backend = (f"KERAS_BACKEND={keras}",) if keras else ()
        return "TF_CPP_MIN_LOG_LEVEL=2", *backend, "tensorflow"

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """`TF_CONFIG` with every rank as a worker, in their order."""
        del options
        task = {"type": "worker", "index": info.rank}
        cluster = {"worker": [_spelled(host, port) for host, port in workers(info)]}
        return {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        }

    @contextmanager
    def enter(self, place: Place, options: dict[str, str]) -> Generator[None]:
        """Join the cluster, or begin anew in it; raises what TensorFlow raises."""
        del options
        if _cluster.server is None:
            _share_out(place)
            _cluster.join(place.info)
        else:
            _cluster.rejoin(place.info)
        entered[self.name] = TensorflowGroup(place.info)
        try:
            yield
        finally:
            del entered[self.name]
            # What still waits on a peer would go on beside the next generation.
            _cluster.abort()

    def cut(self) -> bool:
        """Abort collectives, those that wait and those to come, if code here can have begun any."""
        if not (_cluster.strategies or _cluster.barriers):
            return False
        return _cluster.abort()

    def steps(self, ended: str) -> dict[str, int]:
        """How many strategies were made, how many times ranks met, and whose threads still wait.

        An interrupt comes at once to a rank that has a thread of TensorFlow's wait in its place. That
        one may wait for ever, so a rank with such a thread is like no other.
        """
        del ended
        if _cluster.server is None:
            return {}
        return {
            "tensorflow strategies": _cluster.strategies,
            "tensorflow barriers": _cluster.barriers,
            "tensorflow threads": 1 + _cluster.server.task_index if _some_thread_waits() else 0,
        }


def workers(info: InstanceInfo) -> tuple[tuple[str, int], ...]:
    """Where each rank's server listens, in the order of ranks."""
    return tuple(
        (peer.address, port) for peer in info.peers for port in peer.ports.get("tensorflow", ())
    )


def _spelled(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _share_out(place: Place) -> None:
    """This rank's share of processors and GPUs; before anything is computed."""
    import tensorflow as tf

    # It takes a rank for an interactive shell, and would say at length what it does.
    tf.get_logger().setLevel("WARNING")
    tf.config.threading.set_intra_op_parallelism_threads(place.threads)
    # Two at least: one that reads may wait for one that writes.
    tf.config.threading.set_inter_op_parallelism_threads(max(2, place.threads))
    with _quiet():
        gpus = tf.config.list_physical_devices("GPU") if place.info.accelerators else []
        own = own_share(gpus, place.info)
        tf.config.set_visible_devices(own, "GPU")
        for gpu in own:
            tf.config.experimental.set_memory_growth(gpu, True)


def own_share(gpus: list[Any], info: InstanceInfo) -> list[Any]:
    """The GPUs of this rank among those it sees: every n-th, or one that several ranks share."""
    if not gpus:
        return []
    return gpus[info.local_rank :: info.workers_per_node] or [gpus[info.local_rank % len(gpus)]]


class _Cluster:
    """This process as a worker: joined once, and begun anew with each generation."""

    def __init__(self) -> None:
        self.server: Any = None
        """What the server was started with."""
        self.strategies = self.barriers = 0
        """Those of this generation."""
        self._config = ""
        self._first_key = 0

    def join(self, info: InstanceInfo) -> None:
        """Start this worker's server, and wait for the others'; raises what TensorFlow raises."""
        import tensorflow as tf

        context = _context()
        cluster = tf.train.ClusterSpec({"worker": [_spelled(*each) for each in workers(info)]})
        self._configure(context, cluster.num_tasks("worker"))
        peers = {address for address, _ in workers(info)}
        with gate(workers(info)[info.rank][1], peers), _shares_its_port(), _quiet():
            # All that it does to a process is done by making one.
            tf.distribute.MultiWorkerMirroredStrategy(
                tf.distribute.cluster_resolver.SimpleClusterResolver(
                    cluster, task_type="worker", task_id=info.rank, rpc_layer="grpc"
                )
            )
        _see_own_devices(context, info)
        self.server = context._collective_ops_server_def
        self._config = os.environ.get("TF_CONFIG", "")
        context.configure_collective_ops = self._configured
        context.enable_collective_ops = self._enabled
        self._begin(info)

    def rejoin(self, info: InstanceInfo) -> None:
        """Have collectives work again that were aborted, on the servers there are, on all ranks at once."""
        from tensorflow.python import pywrap_tfe

        context = _context()
        # The servers stay where they were.
        os.environ["TF_CONFIG"] = self._config
        context._collective_ops_server_def = self.server
        pywrap_tfe.TFE_EnableCollectiveOps(context._context_handle, self.server.SerializeToString())
        context._initialize_logical_devices()
        context._clear_caches()
        _see_own_devices(context, info)
        # What one sends to another before that one has begun anew would be lost.
        _meet(context, f"generation {info.generation}", info)
        self._begin(info)

    def abort(self) -> bool:
        """Have collectives raise until the cluster is begun anew; from any thread."""
        if self.server is None:
            return False
        from tensorflow.python.framework import errors_impl

        # Its native threads have much to say on that. A rank's own descriptor is put back when
        # its cell ends, and when it has begun anew.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        _context().abort_collective_ops(errors_impl.UNAVAILABLE, _CUT)
        return True

    def _begin(self, info: InstanceInfo) -> None:
        """Count anew, with keys that no strategy of an earlier generation has."""
        self.strategies = self.barriers = 0
        self._first_key = info.generation % (1 << 12) * _GENERATIONS
        self._next_key()

    def _next_key(self) -> None:
        """Give the next strategy keys of its own: else it meets the last one's collectives."""
        import tensorflow as tf

        key = self._first_key + self.strategies % (_GENERATIONS // _STRATEGIES) * _STRATEGIES
        tf.distribute.MultiWorkerMirroredStrategy._collective_key_base = key

    def _configure(self, context: Any, count: int) -> None:
        """As a strategy would, but for its patience."""
        from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2

        made: Any = coordination_config_pb2
        job = made.CoordinatedJob(name="worker", num_tasks=count)
        context.configure_coordination_service(
            service_type="standalone",
            service_leader="/job:worker/replica:0/task:0",
            cluster_register_timeout_in_ms=int(_JOIN * 1000),
            heartbeat_timeout_in_ms=int(_SILENCE * 1000),
            coordinated_jobs=[job],
        )

    def _configured(self, *args: Any, **kwargs: Any) -> None:
        """`configure_collective_ops` from now on: they are, and a local strategy needs none."""

    def _enabled(self, server_def: Any) -> None:
        """`enable_collective_ops` from now on: the cluster is joined, and there is no other."""
        if server_def is not None and server_def.cluster != self.server.cluster:
            _refuse()
        self.strategies += 1
        self._next_key()


def _refuse() -> NoReturn:
    raise RuntimeError(
        "this process is a worker of the pool's own cluster, and TensorFlow joins no second one: "
        "make the strategy without a cluster_resolver, and with TF_CONFIG as it was"
    )


class TensorflowGroup:
    """All ranks as workers of one cluster."""

    name = "tensorflow"

    def __init__(self, info: InstanceInfo) -> None:
        self._world_size = info.world_size

    def barrier(self) -> None:
        """Wait for all ranks, by an all-reduce of a single number."""
        import tensorflow as tf
        from tensorflow.python.ops import collective_ops

        _cluster.barriers += 1
        with tf.device("CPU:0"):
            collective_ops.all_reduce_v2(
                tf.zeros(()), self._world_size, _BARRIER_KEY, _cluster.barriers
            )

    def mesh(self, axes: Axes) -> NoReturn:
        """TensorFlow has none of this kind; raises RuntimeError."""
        del axes
        raise RuntimeError(
            "sky.mesh() is for framework=torch and framework=jax; under TensorFlow all ranks are "
            "one tf.distribute.MultiWorkerMirroredStrategy()"
        )


def _context() -> Any:
    """TensorFlow's context, of which a process has one."""
    from tensorflow.python.eager import context

    return context.context()


def _some_thread_waits() -> bool:
    """Whether another thread than this one waits in a collective, or may."""
    here = threading.get_ident()
    return any(
        waits_in(frames_of_thread(frame))
        for ident, frame in sys._current_frames().items()
        if ident != here
    )


def _see_own_devices(context: Any, info: InstanceInfo) -> None:
    """Leave other ranks' devices out of those that are listed: a local strategy would take them, and crash."""
    task = f"/task:{info.rank}/"
    context._logical_devices = [each for each in context._logical_devices if task in each.name]


def _meet(context: Any, name: str, info: InstanceInfo) -> None:
    """Wait for all ranks by words left with the head; raises TimeoutError.

    In short looks, as TensorFlow lets no other thread run while it waits for one.
    """
    from tensorflow.python.framework import errors_impl

    context.set_config_key_value(f"{name}/{info.rank}", "here")
    until = time.monotonic() + _REJOIN
    for rank in range(info.world_size):
        while True:
            try:
                context.get_config_key_value(f"{name}/{rank}", 20)
                break
            except (errors_impl.DeadlineExceededError, errors_impl.NotFoundError):
                if time.monotonic() > until:
                    raise TimeoutError(f"rank {rank} did not come back") from None
                time.sleep(0.001)


@contextmanager
def _shares_its_port() -> Generator[None]:
    """Have the server that is started set SO_REUSEPORT."""
    name = "TF_GRPC_REUSE_PORT"
    before = os.environ.get(name)
    os.environ[name] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _quiet() -> Generator[None]:
    """Keep what native code writes meanwhile, such as which drivers are missing; tell it on failure."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            with contextlib.suppress(OSError):
                os.write(before, kept.read())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)


_cluster = _Cluster()

PLUGIN = TensorflowPlugin(
    "tensorflow", image=("tensorflow>=2.18",), modules=("tensorflow",), serves=True
)
