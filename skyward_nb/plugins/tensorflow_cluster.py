"""A process as a worker of TensorFlow's cluster: joined once, its collectives aborted and begun anew."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from skyward_nb.compat import tensorflow_private
from skyward_nb.plugins.framework_sockets import past_proxies
from skyward_nb.plugins.owner_relay import OwnerRelay, other_machines
from skyward_nb.words.info import InstanceInfo

_JOIN, _REJOIN = 120.0, 8.0
_SILENCE = 600.0
"""Seconds a rank may be silent to TensorFlow's own heartbeats: whether it lives, the agent knows."""
_GENERATIONS, _STRATEGIES = 1 << 18, 1 << 6
"""Keys of groups of devices that a generation has for its strategies, and one strategy of them."""
BARRIER_KEY = (1 << 31) - 1
"""The key of the group of all ranks that belongs to no strategy."""
SUM_KEY = BARRIER_KEY - 1
"""Of the same ranks as they add tensors; parts of them have keys below it."""
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
        self.relay: OwnerRelay | None = None
        """It lives as long as this process does."""
        self.strategies: int = 0
        self.barriers: int = 0
        self.adds: bool = False
        """Whether ranks add tensors without a strategy. All three are of this generation."""
        self.is_aborted: bool = False
        self._config = ""
        self._first_key = 0
        self._cancels: Any = None

    def join(self, info: InstanceInfo) -> None:
        """Start this worker's server, and wait for the others'; raises what TensorFlow raises."""
        import tensorflow as tf

        cluster = tf.train.ClusterSpec({"worker": workers(info)})
        # As a strategy would say, but for its patience.
        tensorflow_private.be_patient(cluster.num_tasks("worker"), join=_JOIN, silence=_SILENCE)
        past_proxies(dict.fromkeys(address for address, _ in _places(info)))
        own = _places(info)[info.rank]
        self.relay = OwnerRelay(*own, other_machines(info), everywhere=True)
        with _shares_its_port(), quiet():
            # All that it does to a process is done by making one.
            tf.distribute.MultiWorkerMirroredStrategy(
                tf.distribute.cluster_resolver.SimpleClusterResolver(
                    cluster, task_type="worker", task_id=info.rank, rpc_layer="grpc"
                )
            )
        self.relay.check()
        tensorflow_private.see_own_devices(info.rank)
        self.server = tensorflow_private.server()
        self._config = os.environ.get("TF_CONFIG", "")
        tensorflow_private.heed_joining(self._configured, self._enabled)
        self._begin(info)

    def rejoin(self, info: InstanceInfo) -> None:
        """Have collectives work again that were aborted, on the servers there are, on all ranks at once."""
        # The servers stay where they were.
        os.environ["TF_CONFIG"] = self._config
        tensorflow_private.begin_anew(self.server)
        tensorflow_private.see_own_devices(info.rank)
        # A rank that was cut had numbered some collectives that others never came to.
        tensorflow_private.number_collectives_from(info.generation % (1 << 14) * (1 << 16))
        # What one sends to another before that one has begun anew would be lost.
        _meet(f"generation {info.generation}", info)
        self._begin(info)

    def abort(self) -> bool:
        """Have collectives raise until the cluster is begun anew; from any thread."""
        if self.server is None:
            return False
        self.is_aborted = True
        # Its native threads have much to say on that. A rank's own descriptor is put back when
        # its cell ends, and when it has begun anew.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        tensorflow_private.abort_collectives(_CUT)
        return True

    def cancel(self) -> None:
        """Have functions that run now end by an error, however long they would take; from any thread."""
        if self._cancels is not None:
            running, self._cancels = self._cancels, tensorflow_private.cancellable()
            running.start_cancel()

    def _begin(self, info: InstanceInfo) -> None:
        """Count anew, with keys that no strategy of an earlier generation has."""
        self.strategies = self.barriers = 0
        self.adds = False
        self.is_aborted = False
        self._cancels = tensorflow_private.cancellable()
        self._first_key = info.generation % (1 << 12) * _GENERATIONS
        self._next_key()

    def _next_key(self) -> None:
        """Give the next strategy keys of its own: else it meets the last one's collectives."""
        key = self._first_key + self.strategies % (_GENERATIONS // _STRATEGIES) * _STRATEGIES
        tensorflow_private.begin_keys_at(key)

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
        "this process is a worker of the pool's own cluster, and TensorFlow cannot join a "
        "second one: make the strategy without a cluster_resolver, and leave TF_CONFIG as it was"
    )


def _meet(name: str, info: InstanceInfo) -> None:
    """Wait for all ranks by words left with the head; raises TimeoutError.

    In short looks, as TensorFlow lets no other thread run while it waits for one.
    """
    tensorflow_private.leave_word(f"{name}/{info.rank}", "here")
    until = time.monotonic() + _REJOIN
    for rank in range(info.world_size):
        while not tensorflow_private.has_word(f"{name}/{rank}", 20):
            if time.monotonic() > until:
                raise TimeoutError(f"rank {rank} did not come back")
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
