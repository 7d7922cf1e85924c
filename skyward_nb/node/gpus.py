"""Memory, use, temperature and MIG slices of GPUs, by NVML.

Without the package, a driver, or a GPU's answer there are no figures; that is no error, as no run needs
them.
"""

from __future__ import annotations

import functools
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
    if not place.real_accelerators:
        return None
    slot = place.local_rank % place.accelerators
    if visible is None:
        return str(slot)
    if (own := own_slice(visible)) is not None:
        return own  # the other ranks of its node do not see it
    names = [name.strip() for name in visible.split(",")]
    return (names[slot] or None) if slot < len(names) else None


def devices_of(place: InstanceInfo, nodes: Collection[int]) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES of a rank: its node's share of the GPUs, if nodes share this machine.

    None of them where the pool's are simulated.
    """
    if place.simulated:
        return {"CUDA_VISIBLE_DEVICES": ""}
    if not place.accelerators or len(nodes) == 1:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = sorted(nodes).index(place.node) * place.accelerators
    last = first + place.accelerators
    names = visible.split(",") if visible else [str(number) for number in range(last)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[first:last])}


class _Device(msgspec.Struct, frozen=True):
    """NVML's handles of a GPU and, if it is cut by MIG, of the slice in question."""

    whole: object
    slice: object | None = None


class Gpus:
    """Asks NVML, which is started when the first GPU is asked for."""

    def __init__(self) -> None:
        self._started = False
        self._nvml: ModuleType | None = None
        self._devices: dict[str, _Device | None] = {}

    def look(self, names: Iterable[str]) -> dict[str, Gpu]:
        """Figures of GPUs, by their names in CUDA_VISIBLE_DEVICES; GPUs without an answer are left out."""
        asked = set(names)
        if not asked or (nvml := self._start()) is None:
            return {}
        found = {name: self._figures(nvml, name) for name in asked}
        return {name: gpu for name, gpu in found.items() if gpu is not None}

    def close(self) -> None:
        """Close NVML: the driver neither cuts nor restores a GPU while a process uses it."""
        if (nvml := self._nvml) is not None:
            self._nvml = None
            _answer(nvml, lambda: nvml.nvmlShutdown())

    def _start(self) -> ModuleType | None:
        if not self._started:
            self._started = True
            self._nvml = _started_nvml()
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
        # NVML tells the use of whole GPUs only, which has that of a slice's neighbours in it.
        use = None
        if device.slice is None:
            use = _answer(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(device.whole))
        return Gpu(
            used=memory.used,
            total=memory.total,
            busy=None if use is None else use.gpu,
            celsius=_celsius(nvml, device.whole),
        )


def _started_nvml() -> ModuleType | None:
    """NVML, started; None without the package or a driver."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    return nvml if _answer(nvml, lambda: nvml.nvmlInit() or True) else None


def cards() -> tuple[GpuCard, ...]:
    """The GPUs of this machine and their slices, by NVML or by NVIDIA's tool.

    NVML is closed again: the driver cuts no GPU while a process uses it.
    """
    nvml = _started_nvml()
    if nvml is None:
        return nvidia_smi.cards()
    try:
        every = range(_answer(nvml, nvml.nvmlDeviceGetCount) or 0)
        found = (_answer(nvml, functools.partial(_card, nvml, index)) for index in every)
        return tuple(card for card in found if card is not None)
    finally:
        _answer(nvml, lambda: nvml.nvmlShutdown())


def _card(nvml: ModuleType, index: int) -> GpuCard:
    whole = nvml.nvmlDeviceGetHandleByIndex(index)
    name, uuid = nvml.nvmlDeviceGetName(whole), nvml.nvmlDeviceGetUUID(whole)
    if not (is_cut := _is_cut(nvml, whole)):
        return GpuCard(index, name, uuid, is_cut)
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
    """NVML's answer, None if there is none."""
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
    if whole is None:
        return None
    # CUDA takes the first slice of a GPU that is cut.
    return _Device(whole, next(_slices(nvml, whole), None) if _is_cut(nvml, whole) else None)


def _by_uuid(nvml: ModuleType, name: str) -> object | None:
    """The one GPU whose UUID begins so: CUDA takes abbreviations, NVML does not."""
    every = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    fitting = [handle for handle in every if nvml.nvmlDeviceGetUUID(handle).startswith(name)]
    return fitting[0] if len(fitting) == 1 and name.startswith("GPU-") else None


def _is_cut(nvml: ModuleType, whole: object) -> bool | None:
    """Whether MIG is on; None for a GPU without MIG."""
    mode = _answer(nvml, lambda: nvml.nvmlDeviceGetMigMode(whole))
    return None if mode is None else mode[0] == nvml.NVML_DEVICE_MIG_ENABLE


def _celsius(nvml: ModuleType, whole: object) -> int | None:
    """The temperature, by the present call, or by that of older drivers and packages."""
    for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
        call = getattr(nvml, name, None)
        if call is not None:
            heat = _answer(nvml, lambda call=call: call(whole, nvml.NVML_TEMPERATURE_GPU))
            if heat is not None:
                return heat
    return None
