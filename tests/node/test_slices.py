"""The slices that a machine has, by recorded answers, and whose they are."""

# ruff: noqa: N802 - the names are those of NVML

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
from gpus import ANSWERS, Nvidia, gpu

from skyward_nb.node.gpus import cards, gpu_of
from skyward_nb.node.slices import TooFewSlices, with_slices
from skyward_nb.plugins.plugin_table import find_plugin, uses_of
from skyward_nb.protocol.commands import Fork
from skyward_nb.system.nvidia_smi import read_cards
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.info import Peer, place
from skyward_nb.words.mig import MigSlice
from skyward_nb.words.spec import PoolSpec


class Recorded(ModuleType):
    """`pynvml`, which says what was recorded: a handle is the record of a GPU, or of a slice."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self, path):
        super().__init__("pynvml")
        self._cards = json.loads(path.read_text())
        self.open = 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self._cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self._cards[index]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card, index):
        slices = card["nvmlDeviceGetMigDeviceHandleByIndex"]
        if index >= len(slices) or slices[index] is None:
            raise self.NVMLError("Not Found")
        return slices[index]

    def __getattr__(self, name):
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def ask(handle):
            if handle[name] is None:
                raise self.NVMLError("Not Supported")
            return handle[name]

        return ask


def smi(name):
    return read_cards(*((ANSWERS / f"{name}{kind}").read_text() for kind in (".list", ".modes")))


@pytest.fixture
def nvml(monkeypatch):
    recorded = Recorded(ANSWERS / "dgx.nvml.json")
    monkeypatch.setitem(sys.modules, "pynvml", recorded)
    return recorded


@pytest.fixture
def nvidia(tmp_path, monkeypatch):
    return Nvidia(tmp_path, monkeypatch)


def test_nvml_and_the_tool_tell_the_same(nvml):
    assert cards() == smi("dgx")
    assert nvml.open == 0, "who holds the driver hinders it from cutting GPUs"


def test_what_is_told():
    zero, one, two, three = smi("dgx")
    assert zero.slices == (
        MigSlice("3g.40gb", "MIG-00000000-0000-5afc-978f-d2f1294409fd"),
        MigSlice("3g.40gb", "MIG-00000000-0001-5afc-978f-d2f1294409fd"),
    )
    assert [each.profile for each in one.slices] == ["1g.10gb+me", "1g.10gb", "1c.3g.40gb"]
    assert [card.mig for card in (zero, one, two, three)] == [True, True, False, None]
    assert (three.name, two.slices) == ("Tesla T4", ())


def test_slices_of_old_drivers():
    (card,) = smi("old")
    assert card.slices[1].uuid == "MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/8/0"


def test_no_driver_means_no_gpus(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cards() == ()


def fork(nodes=1, **options):
    spec = PoolSpec(accelerator=Accelerator("A100"), nodes=nodes, **options)
    peers = tuple(Peer(node, "127.0.0.1") for node in range(nodes))
    return Fork(1, place(spec, peers, 1, "job", 1), uses_of(spec))


def visible(order, uses):
    """What each rank sees."""
    mig = find_plugin("mig")
    return [
        mig.env(each, uses[each.node][0].options)["CUDA_VISIBLE_DEVICES"] for each in order.places
    ]


def test_each_rank_of_each_node_has_a_slice_of_its_own(nvidia, tmp_path):
    nvidia.have(gpu(0, "3g.40gb", "3g.40gb"), gpu(1, "1g.10gb", "3g.40gb", "3g.40gb"))
    order = fork(mig="3g.40gb", nodes=2)
    seen = visible(order, with_slices(order, tmp_path))
    assert seen == ["MIG-00000001-slice", "MIG-00000002-slice", "MIG-10000002-slice",
                    "MIG-10000003-slice"]  # fmt: skip
    # The telemetry of a rank is that of its slice.
    assert [gpu_of(*pair) for pair in zip(order.places, seen, strict=True)] == seen


def test_only_gpus_of_the_name_and_only_visible_ones_count(nvidia, tmp_path, monkeypatch):
    other = gpu(1, "3g.40gb", "3g.40gb", name="NVIDIA H100 80GB HBM3")
    nvidia.have(gpu(0, "3g.40gb", "3g.40gb"), other, gpu(2, "3g.40gb", "3g.40gb"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-00000002-slice,1,2")
    order = fork(mig="3g.40gb")
    assert visible(order, with_slices(order, tmp_path)) == [
        "MIG-00000002-slice",
        "MIG-20000001-slice",
    ]


def test_too_few_slices_are_refused_with_what_to_type(nvidia, tmp_path):
    nvidia.have(gpu(0, "3g.40gb"))
    with pytest.raises(TooFewSlices) as refused:
        with_slices(fork(mig="3g.40gb"), tmp_path)
    assert "not enough slices" in refused.value.message
    assert "sudo nvidia-smi mig -i 0 -cgi 3g.40gb -C" in refused.value.advice
    assert nvidia.asked() == []


def test_other_pools_are_left_as_they_are(tmp_path):
    order = fork()
    assert with_slices(order, tmp_path) == {0: order.plugins}


def test_no_gpu_is_cut_unless_it_is_asked_for(nvidia, tmp_path):
    nvidia.have(gpu(0, mig="Disabled"))
    with pytest.raises(TooFewSlices):
        with_slices(fork(mig="3g.40gb"), tmp_path)
    assert nvidia.asked() == []
    with_slices(fork(mig="3g.40gb", partition=True), tmp_path)
    assert nvidia.profiles == [["3g.40gb", "3g.40gb"]]


def test_slices_there_are_count_and_only_the_rest_is_cut(nvidia, tmp_path):
    nvidia.have(gpu(0, "3g.40gb", "3g.40gb"), gpu(1, "1g.10gb"), gpu(2, mig="Disabled"))
    order = fork(mig="3g.40gb", ranks_per_node=3, partition=True)
    uses = with_slices(order, tmp_path)
    assert nvidia.profiles == [["3g.40gb", "3g.40gb"], ["1g.10gb"], ["3g.40gb"]]
    assert len(set(visible(order, uses))) == 3
