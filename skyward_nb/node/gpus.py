"""What the driver tells of GPUs, by NVML: memory, use, temperature, and the slices of MIG.

It knows nothing of processes. No package, no driver, or a GPU that does not answer means no
figures and is no error: a run does not need them.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from types import ModuleType
from typing import Any

import msgspec

from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.system import nvidia_smi
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.mig import GpuCard, MigSlice, own_slice


def gpu_of(place: InstanceInfo, visible: str | None) -> str | None:
    """The GPU that plugins give a rank: its slot's entry in CUDA_VISIBLE_DEVICES, `visible`.

    An index, a UUID, or a MIG device's UUID; None where the rank has none.
    """
    if not place.accelerators:
        return None
    slot = place.local_rank % place.accelerators
    if visible is None:
        return str(slot)
    if (own := own_slice(visible)) is not None:
        return own  # the others of its node do not see it
    names = [name.strip() for name in visible.split(",")]
    return (names[slot] or None) if slot < len(names) else None


def devices_of(place: InstanceInfo, nodes: Collection[int]) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES of a rank: its node's share of the GPUs, where nodes share this machine."""
    if not place.accelerators or len(nodes) == 1:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = sorted(nodes).index(place.node) * place.accelerators
    last = first + place.accelerators
    names = visible.split(",") if visible else [str(number) for number in range(last)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[first:last])}


class _Device(msgspec.Struct, frozen=True):
    """NVML's handles of a GPU; the slice of it that is meant, when it is cut by MIG."""

    whole: object
    slice: object | None = None


class Gpus:
    """Asks NVML, which is started when the first GPU is asked for."""

    def __init__(self) -> None:
        self._started = False
        self._nvml: ModuleType | None = None
        self._devices: dict[str, _Device | None] = {}

    def look(self, names: Iterable[str]) -> dict[str, Gpu]:
        """Figures of GPUs as CUDA_VISIBLE_DEVICES names them; what does not answer is left out."""
        asked = set(names)
        if not asked or (nvml := self._start()) is None:
            return {}
        found = {name: self._figures(nvml, name) for name in asked}
        return {name: gpu for name, gpu in found.items() if gpu is not None}

    def close(self) -> None:
        """Let go of the driver: it cuts no GPU, nor puts one together, while somebody holds it."""
        if (nvml := self._nvml) is not None:
            self._nvml = None
            _answer(nvml, lambda: nvml.nvmlShutdown())

    def _start(self) -> ModuleType | None:
        if not self._started:
            self._started = True
            try:
                nvml = importlib.import_module("pynvml")
            except ImportError:
                return None
            # Without a driver its first call fails.
            if _answer(nvml, lambda: nvml.nvmlInit() or True):
                self._nvml = nvml
        return self._nvml

    def _figures(self, nvml: ModuleType, name: str) -> Gpu | None:
        if name not in self._devices:
            self._devices[name] = _answer(nvml, lambda: _find(nvml, name))
        device = self._devices[name]
        if device is None:
            return None
        memory = _answer(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(device.slice or device.whole))
        if memory is None:
            return None
        # NVML tells the use of whole GPUs only: that of a slice would be its neighbours', too.
        use = None
        if device.slice is None:
            use = _answer(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(device.whole))
        return Gpu(
            used=memory.used,
            total=memory.total,
            busy=None if use is None else use.gpu,
            celsius=_celsius(nvml, device.whole),
        )


def cards() -> tuple[GpuCard, ...]:
    """The GPUs of this machine and the slices they are cut into, by NVML or by NVIDIA's tool.

    The driver is let go again: it cuts no GPU while somebody holds it.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return nvidia_smi.cards()
    if not _answer(nvml, lambda: nvml.nvmlInit() or True):
        return nvidia_smi.cards()
    try:
        every = range(_answer(nvml, nvml.nvmlDeviceGetCount) or 0)
        found = (_answer(nvml, lambda at=index: _card(nvml, at)) for index in every)
        return tuple(card for card in found if card is not None)
    finally:
        _answer(nvml, lambda: nvml.nvmlShutdown())


def _card(nvml: ModuleType, index: int) -> GpuCard:
    whole = nvml.nvmlDeviceGetHandleByIndex(index)
    name, uuid = nvml.nvmlDeviceGetName(whole), nvml.nvmlDeviceGetUUID(whole)
    mode = _answer(nvml, lambda: nvml.nvmlDeviceGetMigMode(whole))
    if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return GpuCard(index, name, uuid, None if mode is None else False)
    # Its name is that of the GPU, and the profile: `NVIDIA A100-SXM4-40GB MIG 3g.20gb`.
    slices = tuple(
        MigSlice(nvml.nvmlDeviceGetName(part).rpartition(" MIG ")[2], nvml.nvmlDeviceGetUUID(part))
        for part in _slices(nvml, whole)
    )
    return GpuCard(index, name, uuid, True, slices)


def _slices(nvml: ModuleType, whole: object) -> Iterator[object]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(whole)):
        part = _answer(nvml, lambda at=index: nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, at))
        if part is not None:
            yield part


def _answer(nvml: ModuleType, ask: Callable[[], Any]) -> Any:
    """What NVML answers, None when it has no answer."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _find(nvml: ModuleType, name: str) -> _Device | None:
    if name.startswith("MIG-"):
        part = nvml.nvmlDeviceGetHandleByUUID(name)
        return _Device(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part), part)
    by_index = nvml.nvmlDeviceGetHandleByIndex
    whole = by_index(int(name)) if name.isdecimal() else _by_uuid(nvml, name)
    return None if whole is None else _Device(whole, _first_slice(nvml, whole))


def _by_uuid(nvml: ModuleType, name: str) -> object | None:
    """The one GPU whose UUID begins so: CUDA takes abbreviations, NVML does not."""
    every = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    fitting = [handle for handle in every if nvml.nvmlDeviceGetUUID(handle).startswith(name)]
    return fitting[0] if len(fitting) == 1 and name.startswith("GPU-") else None


def _first_slice(nvml: ModuleType, whole: object) -> object | None:
    """What CUDA takes for a GPU that is cut by MIG; None when it is not cut."""
    mode = _answer(nvml, lambda: nvml.nvmlDeviceGetMigMode(whole))
    if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    return next(_slices(nvml, whole), None)


def _celsius(nvml: ModuleType, whole: object) -> int | None:
    """By the call that stays, or by the one that older drivers and packages have."""
    for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
        call = getattr(nvml, name, None)
        if call is not None:
            heat = _answer(nvml, lambda call=call: call(whole, nvml.NVML_TEMPERATURE_GPU))
            if heat is not None:
                return heat
    return None
