"""GPUs of ranks, with a driver that we make up: its names and types are those of nvidia-ml-py."""

# ruff: noqa: N802 - the names are those of NVML

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest

from skyward_nb.node.gpus import Gpus, gpu_of
from skyward_nb.node.telemetry import RankProcess, Sampler
from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.words.info import InstanceInfo

GB = 1 << 30


@pytest.mark.parametrize(
    ("slot", "visible", "gpu"),
    [
        (0, None, "0"),
        (3, None, "3"),
        (1, "4,6", "6"),
        (1, " 4 , 6 ", "6"),
        (2, "4,6", None),
        (0, "", None),
        (1, "GPU-aa,GPU-bb", "GPU-bb"),
        (1, "MIG-1,MIG-2", "MIG-2"),
        (1, "MIG-1", "MIG-1"),
    ],
)
def test_the_gpu_of_a_slot(slot, visible, gpu):
    assert gpu_of(InstanceInfo(local_rank=slot, accelerators=4), visible) == gpu


def test_a_rank_without_accelerators_has_none():
    assert gpu_of(InstanceInfo(), "0,1") is None


class NVMLError(Exception):
    pass


@dataclass
class Card:
    """A GPU, or a slice of one."""

    uuid: str
    used: int = 1 * GB
    total: int = 80 * GB
    busy: int = 37
    celsius: int = 51
    slices: list[Card] = field(default_factory=list)
    cut: bool | None = False
    whole: Card | None = None
    lost: bool = False


class Driver(ModuleType):
    """What `pynvml` has of the names that are used."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0
    NVML_DEVICE_MIG_ENABLE = 1

    def __init__(self, *cards):
        super().__init__("pynvml")
        self.cards = cards
        self.broken = False
        self.starts = 0
        for card in cards:
            for part in card.slices:
                part.whole = card

    def nvmlInit(self):
        self.starts += 1
        if self.broken:
            raise NVMLError("Driver Not Loaded")

    def _check(self, card, *, slices=True):
        if not self.starts or card.lost or (card.whole and not slices):
            raise NVMLError
        return card

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        if index >= len(self.cards):
            raise NVMLError("Invalid Argument")
        return self._check(self.cards[index])

    def nvmlDeviceGetHandleByUUID(self, uuid):
        every = [*self.cards, *(part for card in self.cards for part in card.slices)]
        for card in every:
            if card.uuid == uuid:
                return self._check(card)
        raise NVMLError("Not Found")

    def nvmlDeviceGetUUID(self, handle):
        return handle.uuid

    def nvmlDeviceGetMigMode(self, device):
        if device.cut is None:
            raise NVMLError("Not Supported")
        return [int(device.cut), int(device.cut)]

    def nvmlDeviceGetMaxMigDeviceCount(self, device):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device, index):
        # There may be gaps.
        if not 1 <= index <= len(device.slices):
            raise NVMLError("Not Found")
        return device.slices[index - 1]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part):
        return part.whole

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        card = self._check(handle)
        return SimpleNamespace(total=card.total, free=card.total - card.used, used=card.used)

    def nvmlDeviceGetUtilizationRates(self, handle):
        card = self._check(handle, slices=False)
        return SimpleNamespace(gpu=card.busy, memory=3)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self._check(handle, slices=False).celsius


@pytest.fixture
def install(monkeypatch):
    def put(*cards):
        driver = Driver(*cards)
        monkeypatch.setitem(sys.modules, "pynvml", driver)
        return driver

    return put


def test_what_the_driver_tells(install):
    driver = install(Card("GPU-aaaa-1"), Card("GPU-aaaa-2", busy=99, used=5 * GB))
    seen = Gpus()
    assert seen.look([]) == {}
    assert driver.starts == 0
    assert seen.look(["0", "1", "1", "2"]) == {
        "0": Gpu(used=1 * GB, total=80 * GB, busy=37, celsius=51),
        "1": Gpu(used=5 * GB, total=80 * GB, busy=99, celsius=51),
    }
    driver.cards[0].busy = 12
    assert seen.look(["0"])["0"].busy == 12
    assert driver.starts == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [("GPU-aaaa-2", True), ("GPU-b", True), ("GPU-a", False), ("GPU-c", False), ("-1", False)],
)
def test_gpus_by_uuid(install, name, found):
    install(Card("GPU-aaaa-1"), Card("GPU-aaaa-2"), Card("GPU-bbbb-3"))
    assert set(Gpus().look([name])) == ({name} if found else set())


def test_a_slice_has_its_own_memory_and_its_gpus_temperature(install):
    part = Card("MIG-7", used=2 * GB, total=40 * GB)
    install(Card("GPU-1", cut=True, slices=[Card("MIG-6"), part], celsius=60))
    assert Gpus().look(["MIG-7"]) == {
        "MIG-7": Gpu(used=2 * GB, total=40 * GB, busy=None, celsius=60)
    }


@pytest.mark.parametrize("name", ["0", "GPU-1"])
def test_of_a_gpu_that_is_cut_cuda_takes_the_first_slice(install, name):
    install(Card("GPU-1", cut=True, slices=[Card("MIG-6", total=10 * GB), Card("MIG-7")]))
    assert Gpus().look([name])[name].total == 10 * GB


def test_a_gpu_that_knows_no_slices(install):
    install(Card("GPU-1", cut=None))
    assert Gpus().look(["0"])["0"].busy == 37


def test_a_gpu_that_is_lost_has_no_figures(install):
    driver = install(Card("GPU-1"), Card("GPU-2"))
    seen = Gpus()
    assert set(seen.look(["0", "1"])) == {"0", "1"}
    driver.cards[0].lost = True
    assert set(seen.look(["0", "1"])) == {"1"}


def test_no_driver_and_no_package(install, monkeypatch):
    driver = install(Card("GPU-1"))
    driver.broken = True
    seen = Gpus()
    assert seen.look(["0"]) == seen.look(["0"]) == {}
    assert driver.starts == 1
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpus().look(["0"]) == {}


@pytest.mark.parametrize(("newer", "celsius"), [(lambda card, sensor: 77, 77), (None, 51)])
def test_the_temperature_by_the_newer_call_and_by_the_older(install, newer, celsius):
    driver = install(Card("GPU-1"))
    if newer is not None:
        driver.nvmlDeviceGetTemperatureV = newer
    assert Gpus().look(["0"])["0"].celsius == celsius


def test_a_rank_is_told_with_its_gpu(install):
    install(Card("GPU-1", busy=1), Card("GPU-2", busy=2))
    sampler = Sampler()
    assert [each.gpu.busy for each in sampler.sample([RankProcess(0, os.getpid(), "1")])] == [2]
    assert [each.gpu for each in sampler.sample([RankProcess(0, os.getpid(), "9")])] == [None]
    assert [each.gpu for each in sampler.sample([RankProcess(0, os.getpid())])] == [None]


def test_the_real_package_has_the_names_that_are_used():
    real = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    used = {name for name in vars(Driver) if name.lower().startswith("nvml")}
    assert used <= set(vars(real))
    assert all(gpu.total >= gpu.used for gpu in Gpus().look(["0"]).values())
