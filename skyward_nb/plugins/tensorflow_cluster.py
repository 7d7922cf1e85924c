"""A process as a worker of TensorFlow's cluster: joined once, its collectives aborted and begun anew.

What of TensorFlow is not public is used here and nowhere else; each is tried in the tests.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from skyward_nb.plugins.gate import gate
from skyward_nb.plugins.wires import past_proxies
from skyward_nb.words.info import InstanceInfo

_JOIN, _REJOIN = 120.0, 8.0
_SILENCE = 600.0
"""Seconds a rank may be silent to TensorFlow's own heartbeats: whether it lives, the agent knows."""
_GENERATIONS, _STRATEGIES = 1 << 18, 1 << 6
"""Keys of groups of devices that a generation has for its strategies, and one strategy of them."""
BARRIER_KEY = (1 << 31) - 1
"""Of the group of all ranks that is no strategy's."""
_CUT = "skyward cut this rank's communication"


def workers(info: InstanceInfo) -> list[str]:
    """Where each rank's server listens, as `host:port`, in the order of ranks."""
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in _places(info)]


def _places(info: InstanceInfo) -> list[tuple[str, int]]:
    return [
        (peer.address, port) for peer in info.peers for port in peer.ports.get("tensorflow", ())
    ]


class Cluster:
    """This process as a worker: joined once, and begun anew with each generation."""

    def __init__(self) -> None:
        self.server: Any = None
        """What the server was started with."""
        self.strategies: int = 0
        self.barriers: int = 0
        """Those of this generation."""
        self.is_aborted: bool = False
        self._config = ""
        self._first_key = 0
        self._cancels: Any = None

    def join(self, info: InstanceInfo) -> None:
        """Start this worker's server, and wait for the others'; raises what TensorFlow raises."""
        import tensorflow as tf

        context = _context()
        cluster = tf.train.ClusterSpec({"worker": workers(info)})
        self._configure(context, cluster.num_tasks("worker"))
        peers = dict.fromkeys(address for address, _ in _places(info))
        past_proxies(peers)
        with gate(_places(info)[info.rank][1], peers), _shares_its_port(), quiet():
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
        _count_alike(info.generation)
        # What one sends to another before that one has begun anew would be lost.
        _meet(context, f"generation {info.generation}", info)
        self._begin(info)

    def abort(self) -> bool:
        """Have collectives raise until the cluster is begun anew; from any thread."""
        if self.server is None:
            return False
        from tensorflow.python.framework import errors_impl

        self.is_aborted = True
        # Its native threads have much to say on that. A rank's own descriptor is put back when
        # its cell ends, and when it has begun anew.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        _context().abort_collective_ops(errors_impl.UNAVAILABLE, _CUT)
        return True

    def cancel(self) -> None:
        """Have functions that run now end by an error, however long they would take; from any thread."""
        if self._cancels is not None:
            running, self._cancels = self._cancels, _cancellable()
            running.start_cancel()

    def _begin(self, info: InstanceInfo) -> None:
        """Count anew, with keys that no strategy of an earlier generation has."""
        self.strategies = self.barriers = 0
        self.is_aborted = False
        self._cancels = _cancellable()
        self._first_key = info.generation % (1 << 12) * _GENERATIONS
        self._next_key()

    def _next_key(self) -> None:
        """Give the next strategy keys of its own: else it meets the last one's collectives."""
        import tensorflow as tf

        key = self._first_key + self.strategies % (_GENERATIONS // _STRATEGIES) * _STRATEGIES
        tf.distribute.MultiWorkerMirroredStrategy._collective_key_base = key

    def _configure(self, context: Any, count: int) -> None:
        """As a strategy would, but for its patience."""
        from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2 as words

        made: Any = words
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


def _context() -> Any:
    """TensorFlow's context, of which a process has one."""
    from tensorflow.python.eager import context

    return context.context()


def _cancellable() -> Any:
    """What cancels every function that is called from now on, until another one takes its place."""
    from tensorflow.python.eager import cancellation

    manager = cancellation.CancellationManager()
    cancellation.CancellationManagerContext(manager).__enter__()
    return manager


def _count_alike(generation: int) -> None:
    """Have strategies there are number their next collectives alike on all ranks.

    A rank that was cut had numbered some that others never came to.
    """
    from tensorflow.python.distribute import cross_device_utils

    first = cross_device_utils.INSTANCE_KEY_START_NUMBER + generation % (1 << 14) * (1 << 16)
    for each in gc.get_objects():
        if type(each) is cross_device_utils.CollectiveKeys:
            for devices in each._instance_key_table.values():
                devices.update(dict.fromkeys(devices, first))


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
def quiet() -> Generator[None]:
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
