"""A rank's report for `%sky check`: its device, and versions of what it runs on.

No CUDA context is made for it: NVML tells of GPUs, or the framework that has started them already.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import platform
import re
import socket
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from skyward_nb.runtime import instance, reach
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.process_group import entered
from skyward_nb.words.findings import EFA, LISTENING, RankFacts
from skyward_nb.words.info import InstanceInfo

_MODULES = {"huggingface": "transformers"}


def begin(frameworks: Iterable[str], word: bytes) -> RankFacts:
    """The report on this rank, which listens from now on; `frameworks` are its pool's."""
    info = instance_info()
    found = facts(frameworks)
    try:
        port = reach.listen(info.pool_rank, found.address, word)
    except OSError as error:
        trouble = f"cannot listen on {found.address}: {error.strerror or error}"
        return replace(found, troubles={**found.troubles, LISTENING: trouble})
    return replace(found, port=port)


def facts(frameworks: Iterable[str] = ()) -> RankFacts:
    """The report on this rank."""
    info = instance_info()
    device, memory = _gpu(info) if info.real_accelerators else (_cpu(), _main_memory())
    versions, troubles = _versions(frameworks)
    cpus = len(os.sched_getaffinity(0))
    return RankFacts(
        rank=info.pool_rank,
        node=info.node,
        host=socket.gethostname(),
        address=info.peers[info.node].address,
        device=device,
        memory=memory,
        devices=_count(info),
        cpus=cpus,
        threads=_threads(cpus),
        versions=versions | (_of_gpus() if info.real_accelerators else {}) | efa_devices(),
        troubles=troubles,
        joined=_joined(),
    )


def _joined() -> tuple[str, ...]:
    """Frameworks whose group over all ranks is there: code may have destroyed torch's."""
    distributed = sys.modules.get("torch.distributed")
    return tuple(
        name
        for name in entered
        if name != "torch" or (distributed and distributed.is_initialized())
    )


# ── devices ─────────────────────────────────────────────────────────────────────────────


def _count(info: InstanceInfo) -> int:
    if "jax" in entered:
        import jax

        return jax.local_device_count()
    return max(1, info.real_accelerators // info.workers_per_node) if "torch" not in entered else 1


def _threads(cpus: int) -> int:
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch is not None and "torch" in entered else cpus


def _gpu(info: InstanceInfo) -> tuple[str, int]:
    """Name and memory of this rank's GPU."""
    with _nvml() as nvml:
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError, ValueError, IndexError):
                handle = _handle(nvml, info)
                name = _text(nvml.nvmlDeviceGetName(handle))
                return name, nvml.nvmlDeviceGetMemoryInfo(handle).total
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        found = torch.cuda.get_device_properties(torch.cuda.current_device())
        return found.name, found.total_memory
    if "jax" in entered:
        import jax

        device = jax.local_devices()[0]
        return device.device_kind, (device.memory_stats() or {}).get("bytes_limit", 0)
    return info.accelerator or "GPU", 0


def _handle(nvml: Any, info: InstanceInfo) -> Any:
    """NVML's handle of the GPU, or MIG slice, that CUDA_VISIBLE_DEVICES gives this rank."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible else []
    # Ranks may share a GPU.
    number = info.local_rank % (len(names) or info.real_accelerators or 1)
    name = names[number] if names else str(number)
    by_index = nvml.nvmlDeviceGetHandleByIndex
    return by_index(int(name)) if name.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(name)


@contextmanager
def _nvml() -> Generator[Any]:
    """NVML, started; None without its package or a driver."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - its error is a class of the module that may not be there
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _text(said: str | bytes) -> str:
    return said.decode() if isinstance(said, bytes) else said


def _cpu() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _main_memory() -> int:
    """Bytes that the machine has, or that its control group may use, if fewer."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return min(there, int(Path(file).read_text()))
    return there


# ── versions ────────────────────────────────────────────────────────────────────────────


def _versions(frameworks: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of Python, NumPy and frameworks; of those that cannot be imported, why."""
    found = {"Python": platform.python_version()}
    troubles: dict[str, str] = {}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["numpy"] = importlib.metadata.version("numpy")
    for framework in frameworks:
        name = _MODULES.get(framework, framework)
        try:
            found[name] = str(importlib.import_module(name).__version__)
        except Exception as error:  # noqa: BLE001 - a broken installation raises anything
            troubles[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    return found, troubles


def _of_gpus() -> dict[str, str]:
    """Versions of CUDA, NCCL and the driver, of each that can be told."""
    found: dict[str, str] = {}
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda:
        found["CUDA"] = torch.version.cuda
        with contextlib.suppress(Exception):  # built without it
            found["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    for what, package in (("CUDA", "nvidia-cuda-runtime-cu"), ("NCCL", "nvidia-nccl-cu")):
        if what not in found and (version := _installed(package)):
            found[what] = version
    if driver := _driver():
        found["driver"] = driver
    return found


def efa_devices(root: Path = Path("/sys/class/infiniband")) -> dict[str, str]:
    """How many adapters of AWS's EFA this machine has; nothing where it has none.

    The kernel's driver is called efa: https://github.com/torvalds/linux/tree/master/drivers/infiniband/hw/efa
    """
    with contextlib.suppress(OSError):
        drivers = [each / "device" / "driver" for each in root.iterdir()]
        count = sum(each.is_symlink() and each.readlink().name == "efa" for each in drivers)
        if count:
            return {EFA: f"{count} device{'s' * (count > 1)}"}
    return {}


def computed(framework: str) -> str:
    """Compute on this rank's device by a framework: the device, and of torch what its ranks are joined by.

    Raises what the framework raises, and RuntimeError for a sum that is wrong.
    """
    if framework == "jax":
        import jax

        total = (jax.numpy.ones(1024) + 1).sum()
        (device,) = total.devices()
        place = f"{device.platform} {device.device_kind}"
    else:
        import torch
        import torch.distributed as dist

        total = (torch.ones(1024, device=instance.device()) + 1).sum()
        named = torch.cuda.get_device_name() if total.is_cuda else "CPU"
        joined = dist.get_backend() if dist.is_initialized() else "nothing"
        place = f"{total.device} {named}, ranks are joined by {joined}"
    if float(total) != 2048:
        raise RuntimeError(f"1,024 times 1 + 1 is 2048, and {float(total)} on {place}")
    return place


def _installed(package: str) -> str:
    """The version of a package of NVIDIA's whose name ends with that of CUDA."""
    for cuda in ("13", "12", "11"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package + cuda)
    return ""


def _driver() -> str:
    with _nvml() as nvml:
        if nvml is not None:
            return _text(nvml.nvmlSystemGetDriverVersion())
    with contextlib.suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text()
        if found := re.search(r"Kernel Module\D+([\d.]+)", text):
            return found[1]
    return ""
