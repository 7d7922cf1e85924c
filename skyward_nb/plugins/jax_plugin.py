"""JAX: the devices of all ranks are one set.

The head's coordinator listens in the pool's folder if all ranks are on one machine, else on the address
the other nodes reach. So do the connections of gloo, which carries collectives on CPU. Source: `jax.distributed.initialize`.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import time
import warnings
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward_nb.compat import jax_private
from skyward_nb.compat.known_frames import A_COMPUTATION_OF_JAX
from skyward_nb.plugins.framework_sockets import (
    FrameworkSockets,
    await_listener,
    await_socket,
    past_proxies,
)
from skyward_nb.plugins.plugin_base import (
    MAY_CHANGE,
    PlainPlugin,
    RankContext,
    check_mesh,
    check_people,
    check_platform,
    nccl_kept_to,
    own_interface,
)
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.process_group import entered
from skyward_nb.words.errors import OptionError
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.mesh import Axes, axes_of
from skyward_nb.words.mig import own_slice

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

_JOIN = 120
_HEARTBEAT = 100
"""Seconds without a word until JAX ends a process whose peer is gone: a pool is faster than that."""
_LOOKS, _LOOKS_AFTER_ERRORS, _BETWEEN_LOOKS = 6, 21, 0.05
"""Looks at what a run that was stopped has called, and the seconds between: less than `grace` has by default."""
_TRUE, _FALSE = ("1", "true", "yes", "on", "t", "y"), ("0", "false", "no", "off", "f", "n")
_PROXY_CHECK = "jax_check_proxy_envs"
"""It warns of proxies, which are not asked for the pool's own nodes."""

_UNIX = "unix:"
"""How gRPC knows the path of a socket."""

_wires = FrameworkSockets()


@dataclass(frozen=True)
class JaxPlugin(PlainPlugin):
    """`jax`: `jax.distributed.initialize`, over gloo on CPU."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """How many `devices` each rank has, and whether they are `cpus`."""
        del variant
        devices = _devices_of(spec)
        check_mesh(spec, spec.world_size * devices, "devices")
        on_cpu = spec.real_accelerator is None
        asked = spec.variables.get("JAX_PLATFORMS", "cpu")
        if on_cpu and "cpu" not in asked.split(","):
            raise OptionError(
                "env",
                f"env=JAX_PLATFORMS={asked}: the pool's ranks are on CPU; ask for accelerator=...",
            )
        return {"devices": str(devices)} | ({"cpus": "yes"} if on_cpu else {})

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """What joining and a first computation import."""
        del options
        return ("jax", "jax.numpy", "jax.experimental.multihost_utils")

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """The variables people know; JAX itself reads the address, the platforms and the CPUs."""
        devices = options.get("devices", "1")
        env = {
            "JAX_COORDINATOR_ADDRESS": _coordinator(info),
            # Else a coordinator that code starts itself listens on all addresses there are.
            "JAX_COORDINATOR_BIND_ADDRESS": _coordinator(info),
            "JAX_NUM_PROCESSES": str(info.world_size),
            "JAX_PROCESS_ID": str(info.rank),
            "JAX_LOCAL_DEVICE_COUNT": devices,
        }
        on_cpu = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": devices}
        return env | (on_cpu if "cpus" in options else nccl_kept_to(own_interface(info)))

    @contextmanager
    def enter(self, place: RankContext, options: dict[str, str]) -> Generator[None]:
        """Join all ranks and make their devices known; raises what JAX raises."""
        import jax
        import jax.extend.backend

        info = place.info
        check_people(info, options, MAY_CHANGE)
        # What IPython starts for `!command` forks and becomes another program at once.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning, "pty")
        _wires.forget()
        _join(place, options)
        with jax_private.gloo_listening_on(info.peers[info.node].address):
            group = JaxGroup()
            # Gloo's connections, and not the coordinator's: a process that loses that one aborts.
            _wires.during(lambda: _meet(info, options, group))
            entered[self.name] = group
            try:
                with _answers_code(info):
                    yield
            finally:
                del entered[self.name]
                self.cut()
                jax.distributed.shutdown()
                jax.extend.backend.clear_backends()
                # A mesh that code has set is one of devices that are gone: no array could be made.
                jax.set_mesh(None)

    def cut(self) -> bool:
        """Shut gloo's connections."""
        return _wires.cut()

    def steps(self, ended: str) -> dict[str, int]:
        """A number for how it ended: JAX counts no collectives, and runs them after they are called.

        Ranks of which one failed, or each elsewhere, count as out of step. So do those of which one, stopped in the
        same line, has called what is not computed soon, or may not be: others may not have called it, and it would meet
        what they call next. After an error of their own there is more time for that: it is rare, and arrays would be lost.
        """
        # Gloo connects some of the ranks when a computation first needs it.
        _wires.cut_other_users()
        looks = _LOOKS if ended.startswith(KeyboardInterrupt.__name__) else _LOOKS_AFTER_ERRORS
        if ended and (ended.endswith(A_COMPUTATION_OF_JAX) or not _has_computed(looks)):
            ended += f" ahead on rank {instance_info().rank}"
        return {self.name: zlib.crc32(ended.encode())}


def _has_computed(looks: int) -> bool:
    """Whether all that was called is computed, or is in a moment.

    Looks are counted, not time: a process that was stopped has computed nothing meanwhile.
    """
    import jax

    for number in range(looks):
        time.sleep(_BETWEEN_LOOKS if number else 0)
        try:
            if not jax_private.has_backends() or all(map(_is_ready, jax.live_arrays())):
                return True
        except Exception:  # noqa: BLE001 - of devices that are lost nobody knows
            return False
    return False


def _is_ready(array: Any) -> bool:
    """Whether it is computed; one that another thread gives away meanwhile is."""
    return array.is_deleted() or array.is_ready()


def _heed_variables() -> None:
    """Set JAX's options from this rank's environment: JAX read that of the forge, when imported."""
    import jax

    for name, value in jax_private.options().items():
        text = os.environ.get(name.upper())
        if text is not None and isinstance(value, bool | int | float | str | None):
            jax.config.update(name, as_jax_reads(name.upper(), text, value))


def as_jax_reads(
    variable: str, text: str, value: bool | float | str | None
) -> bool | float | str | None:
    """What a variable's text means for an option of JAX that has this value now.

    Raises ValueError for what JAX, in a process of its own, would not import with.
    """
    if isinstance(value, bool):
        word = text.lower()
        if word not in (*_TRUE, *_FALSE):
            raise ValueError(f"{variable}={text}: JAX takes {', '.join(_TRUE + _FALSE)}")
        return word in _TRUE
    try:
        return text if value is None else type(value)(text)
    except ValueError:
        raise ValueError(f"{variable}={text}: JAX takes a number, such as {value}") from None


def _join(place: RankContext, options: dict[str, str]) -> None:
    import jax

    info = place.info
    _heed_variables()
    meeting = _meeting(place)
    if not info.is_head:
        _await_head(meeting)
    per_rank = int(options.get("devices", "1"))
    has_slice = own_slice(os.environ.get("CUDA_VISIBLE_DEVICES")) is not None
    first = 0 if has_slice else info.local_rank * per_rank
    on_cpu = "cpus" in options
    past_proxies(peer.address for peer in info.peers)
    if _PROXY_CHECK in jax_private.options():
        jax.config.update(_PROXY_CHECK, False)
    jax.distributed.initialize(
        coordinator_address=meeting,
        num_processes=info.world_size,
        process_id=info.rank,
        local_device_ids=None if on_cpu else list(range(first, first + per_rank)),
        cluster_detection_method="deactivate",
        initialization_timeout=_JOIN,
        heartbeat_timeout_seconds=_HEARTBEAT,
        coordinator_bind_address=meeting if info.is_head else None,
    )


def _meeting(place: RankContext) -> str:
    """Where the coordinator listens: if all ranks are on one machine, in a folder that others may not enter."""
    if place.shared is None:
        return _coordinator(place.info)
    return f"{_UNIX}{place.shared / f'jax-{place.info.generation}'}"


def _await_head(meeting: str) -> None:
    if meeting.startswith(_UNIX):
        await_socket(Path(meeting.removeprefix(_UNIX)), _JOIN)
    else:
        address, _, port = meeting.rpartition(":")
        await_listener(address, int(port), _JOIN)


def _meet(info: InstanceInfo, options: dict[str, str], group: JaxGroup) -> None:
    """Make the devices known, and connect all ranks: both happen when first needed, else."""
    import jax

    per_rank = int(options.get("devices", "1"))
    if info.real_accelerators and jax.default_backend() == "cpu":
        check_platform("JAX", "jax[cuda13]", info)
    found = jax.device_count()
    if found != info.world_size * per_rank:
        raise RuntimeError(f"{info.world_size} ranks of {per_rank} devices, but JAX sees {found}")
    if info.world_size > 1:
        group.barrier()


def _coordinator(info: InstanceInfo) -> str:
    ports = info.peers[0].ports.get("jax", ())
    return f"{info.head_addr}:{ports[0] if ports else info.head_port}"


def _devices_of(spec: PoolSpec) -> int:
    """How many devices each rank has: of its accelerators, else as asked for in JAX's own words.

    Raises `OptionError` for what is no number, or where accelerators cannot be divided evenly.
    """
    if spec.mig:
        return 1
    if spec.accelerator is not None:
        each, rest = divmod(spec.accelerator.count, spec.slots)
        if rest or not each:
            raise OptionError(
                "ranks_per_node",
                f"ranks_per_node={spec.slots}: {spec.accelerator} cannot be divided evenly, "
                "and JAX does not let two ranks share one",
            )
        return each
    flag = re.search(
        r"xla_force_host_platform_device_count=(\w+)", spec.variables.get("XLA_FLAGS", "")
    )
    text = spec.variables.get("JAX_NUM_CPU_DEVICES") or (flag[1] if flag else "1")
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(
            "env", f"env=JAX_NUM_CPU_DEVICES={text}: give a whole number of 1 or more"
        )
    return int(text)


@contextmanager
def _answers_code(info: InstanceInfo) -> Generator[None]:
    """Meanwhile, the first `jax.distributed.initialize` of code finds what it asks for.

    In a process of its own it would join; here that is done. A second one is JAX's own error.
    """
    import jax

    joins = jax.distributed.initialize
    signature = inspect.signature(joins)
    is_first = True

    @functools.wraps(joins)
    def initialize(
        coordinator_address: str | None = None,
        num_processes: int | None = None,
        process_id: int | None = None,
        *args: Any,
        **more: Any,
    ) -> None:
        nonlocal is_first
        if (num_processes or info.world_size) != info.world_size or (
            info.rank if process_id is None else process_id
        ) != info.rank:
            raise ValueError(
                f"jax.distributed.initialize(num_processes={num_processes}, process_id="
                f"{process_id}): the pool has {info.world_size} processes, this is number "
                f"{info.rank}, and they are joined already. Leave both out."
            )
        if not (is_first and jax.distributed.is_initialized()):
            given = signature.bind(coordinator_address, num_processes, process_id, *args, **more)
            said = given.arguments
            if coordinator_address is not None and said.get("coordinator_bind_address") is None:
                # Else it would listen where the variable says: at the port of the pool's own.
                said["coordinator_bind_address"] = _bound(coordinator_address, info)
            joins(*given.args, **given.kwargs)
        is_first = False

    jax.distributed.initialize = initialize
    try:
        yield
    finally:
        jax.distributed.initialize = joins


def _bound(coordinator: str, info: InstanceInfo) -> str:
    """Where a coordinator listens that others reach at this address: where this machine's others do."""
    if len({peer.address for peer in info.peers}) == 1:
        return coordinator
    return f"{info.head_addr}:{coordinator.rpartition(':')[2]}"


class JaxGroup:
    """All ranks as JAX joins them."""

    name = "jax"

    def __init__(self) -> None:
        self._met = 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        from jax.experimental import multihost_utils

        self._met += 1
        multihost_utils.sync_global_devices(f"sky.barrier {self._met}")

    def mesh(self, axes: Axes) -> Any:
        """A `jax.sharding.Mesh` over all devices, its axes for JAX to decide along (`Auto`)."""
        import jax

        sizes, names = axes_of(axes, jax.device_count())
        kinds = (jax.sharding.AxisType.Auto,) * len(sizes)
        return jax.make_mesh(sizes, names, axis_types=kinds)


PLUGIN = JaxPlugin(
    "jax", image=("jax>=0.6",), modules=("jax",), serves=True, hidden=A_COMPUTATION_OF_JAX
)
