"""What code asks of its rank: its number, of how many, and what it computes on."""

import sys
from types import SimpleNamespace

import msgspec
import pytest

import skyward_nb as sky
from skyward_nb.words.info import COMPUTE_POOL, InstanceInfo


@pytest.fixture
def place(monkeypatch):
    def at(**fields):
        monkeypatch.setenv(COMPUTE_POOL, msgspec.json.encode(InstanceInfo(**fields)).decode())

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return at


def test_its_number_of_how_many_and_the_processor(place):
    place(rank=5, world_size=8, local_rank=1, workers_per_node=4)
    assert (sky.rank(), sky.world_size(), sky.device()) == (5, 8, "cpu")


def test_a_device_for_each_rank_of_a_node(place, monkeypatch):
    place(rank=5, world_size=8, local_rank=1, workers_per_node=4, accelerators=4)
    assert sky.device() == "cuda:1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-abc")
    assert sky.device() == "cuda:0", "a rank sees its own slice alone"


def test_the_device_that_torch_is_set_to(place, monkeypatch):
    place(accelerators=4)
    cuda = SimpleNamespace(current_device=lambda: 3, is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert sky.device() == "cuda:3"
    cuda.is_available = lambda: False
    assert sky.device() == "cpu", "torch sees none"
