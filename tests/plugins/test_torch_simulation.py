"""CUDA devices that are the CPU: what code names them by, here in the tests' own process."""

from __future__ import annotations

import io
import pickle
import threading

import pytest
from later import needs

pytestmark = [needs("torch"), pytest.mark.torch]

CPU_TENSORS = """
torch.zeros(2, device="cuda")
torch.ones(2, device="cuda:1")
torch.empty(2, device=torch.device("cuda", 1))
torch.rand(2, device=0)
torch.randn(2, device=torch.cuda.current_device())
torch.arange(3, device="cuda")
torch.eye(2, device="cuda")
torch.full((2,), 3.0, device="cuda")
torch.tensor([1, 2], device="cuda")
torch.as_tensor([1, 2], device="cuda")
torch.empty(2, pin_memory=True)
torch.randperm(4, device="cuda", generator=torch.Generator(device="cuda"))
torch.fft.fftfreq(3, device="cuda")
torch.zeros_like(torch.ones(2), device="cuda")
torch.empty_like(torch.ones(2, device="meta"), device="cuda")
torch.ones(2).new_zeros(3, device="cuda")
torch.ones(2).new_tensor([3], device="cuda")
torch.ones(2).cuda()
torch.ones(2).cuda(1, non_blocking=True)
torch.ones(2).to("cuda")
torch.ones(2).to("cuda:1", torch.float64)
torch.ones(2).to(1)
torch.ones(2).to(device="cuda", non_blocking=True)
torch.ones(2).to(torch.ones(1, dtype=torch.int32))
torch.ones(2).pin_memory()
torch.nn.Linear(2, 2, device="cuda").weight
torch.nn.Linear(2, 2).cuda().weight
torch.nn.Linear(2, 2).to(1).weight
torch.nn.Linear(2, 2, device="meta").to_empty(device="cuda").weight
torch.nn.LazyLinear(2).cuda()(torch.ones(1, 2))
"""


@pytest.fixture(params=[False, True], ids=["simulate", "simulate=cuda"])
def said(request):
    from skyward_nb.plugins.simulated_cuda import SimulatedGpus
    from skyward_nb.plugins.torch_simulation import cuda_on_cpu

    with cuda_on_cpu(SimulatedGpus(2, 1, "A100", request.param)):
        yield request.param


def test_tensors_for_cuda_are_on_the_cpu(said):
    import torch

    for code in CPU_TENSORS.strip().splitlines():
        found = eval(code, {"torch": torch})
        assert found.device.type == "cpu", code


def test_what_cuda_says_of_itself(said):
    import torch

    assert torch.cuda.is_available() == torch.accelerator.is_available() == said
    assert torch.cuda.device_count() == torch.accelerator.device_count() == 2
    assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 1
    assert torch.accelerator.current_accelerator() == (torch.device("cuda") if said else None)
    assert torch.cuda.get_device_name() == "A100 (simulated)"
    with torch.cuda.device(0):
        assert torch.accelerator.current_device_index() == 0
    seen = []
    thread = threading.Thread(
        target=lambda: seen.append((torch.cuda.current_device(), torch.ones(1).cuda().item()))
    )
    thread.start()
    thread.join()
    assert seen == [(0, 1.0)], "a thread begins with the first device, as in CUDA"
    torch.cuda.manual_seed(3)
    first = torch.rand(2, device="cuda")
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(2))
    assert torch.cuda.max_memory_allocated() == 0


def test_a_device_that_the_node_would_not_have(said):
    import torch

    for name in (
        lambda: torch.ones(1, device="cuda:2"),
        lambda: torch.ones(1).to(2),
        lambda: torch.ones(1).cuda(5),
        lambda: torch.nn.Linear(1, 1).to("cuda:9"),
        lambda: torch.cuda.set_device(2),
    ):
        with pytest.raises(RuntimeError, match=r"invalid device ordinal: the node has 2 × A100"):
            name()


def test_contexts_and_defaults_of_devices(said):
    import torch

    with torch.device("cuda"):
        assert torch.zeros(1).device == torch.tensor([1]).device == torch.device("cpu")
    with torch.device("meta"):
        assert torch.zeros(1).device.type == torch.nn.Linear(1, 1).weight.device.type == "meta"
    torch.set_default_device("cuda:1")
    try:
        assert torch.tensor(1).device == torch.get_default_device() == torch.device("cpu")
    finally:
        torch.set_default_device(None)


def test_mixed_precision_is_as_on_cuda(said):
    import torch

    layer = torch.nn.Linear(2, 2).cuda()
    for dtype, there in ((None, torch.float16), (torch.bfloat16, torch.bfloat16)):
        with torch.autocast("cuda", dtype=dtype):
            assert layer(torch.ones(1, 2, device="cuda")).dtype == there
    assert torch.amp.GradScaler("cuda").scale(torch.ones(1)).item() == 2**16
    assert torch.amp.GradScaler().is_enabled()


def test_stored_tensors_are_read_wherever_they_are_to_be(said):
    import torch

    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    for place in ("cuda", "cuda:1", torch.device("cuda"), {"cpu": "cuda:1"}, lambda it, _: it):
        file.seek(0)
        assert torch.load(file, map_location=place).device.type == "cpu"


@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`")
@pytest.mark.parametrize("device", [None, 1, "cuda"])
def test_the_older_fsdp_trains_on_the_cpu(said, device, tmp_path):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        given = torch.device(device) if isinstance(device, str) else device
        model = FullyShardedDataParallel(torch.nn.Linear(2, 1).cuda(), device_id=given)
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        assert all(each.grad is not None for each in model.parameters())
    finally:
        dist.destroy_process_group()


def test_functions_travel_by_name_and_are_the_same_in_each_generation():
    import torch

    from skyward_nb.plugins.simulated_cuda import SimulatedGpus
    from skyward_nb.plugins.torch_simulation import cuda_on_cpu

    before = torch.zeros, torch.Tensor.to, torch.Generator, torch.cuda.device_count
    seen = []
    for _ in range(2):
        with cuda_on_cpu(SimulatedGpus(4, 0, "A100", False)):
            for each in (torch.zeros, torch.Tensor.to, torch.Tensor.new_zeros, torch.fft.fftfreq):
                assert pickle.loads(pickle.dumps(each)) is each
            seen.append((torch.zeros, torch.Tensor.to, torch.cuda.device_count))
            assert torch.cuda.current_device() == 0
            torch.cuda.set_device(3)
            compiled = torch.compile(
                lambda x: x.cuda() + torch.ones(3, device="cuda"), backend="eager", fullgraph=True
            )
            assert compiled(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert seen[0] == seen[1]
    assert before == (torch.zeros, torch.Tensor.to, torch.Generator, torch.cuda.device_count)
