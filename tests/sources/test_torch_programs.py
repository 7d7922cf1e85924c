"""PyTorch's programs of the guides, in our words, on the pool of the older guide's first program.

Nothing says `framework=`: the group is there because the functions import torch.
"""

from __future__ import annotations

import pytest
from later import needs
from leaks import leaves_nothing

import skyward_nb as sky

pytestmark = [pytest.mark.torch, needs("torch")]
VARIABLES = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
]


@pytest.fixture(scope="module")
def pool():
    with leaves_nothing():
        with sky.ComputePool(
            provider=sky.Local(),
            nodes=2,
            accelerator=sky.NVIDIA.A100,
            image=sky.Image(pip=["torch"]),
            simulate=True,
        ) as pool:
            yield pool


def a_dataset(count=64):
    """Points of a line; the same on every rank."""
    import torch

    x = torch.linspace(-1, 1, 4 * count).reshape(count, 4)
    return torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))


def a_step(model, optimizer, batch):
    import torch

    x, y = batch
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


# ── the older guide ─────────────────────────────────────────────────────────────────────


def test_the_first_program_trains_one_model(pool):
    """With `accelerator=` and `simulate` alone: ranks whose models begin apart end with one."""

    @sky.compute
    def train(epochs: int) -> dict:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader

        info = sky.instance_info()
        torch.manual_seed(info.node)
        model = torch.nn.Linear(4, 1).cuda()
        if dist.is_initialized():
            model = DDP(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        dataset = a_dataset()
        sampler = sky.DistributedSampler(dataset, shuffle=True)
        loader = DataLoader(dataset, sampler=sampler, batch_size=16)
        losses = []
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                losses.append(a_step(model, optimizer, batch))
        weights = [each.tolist() for each in model.parameters()]
        return {"node": info.node, "losses": losses, "weights": weights}

    head, other = train(epochs=10) @ pool
    assert (head["node"], other["node"]) == (0, 1)
    assert head["weights"] == other["weights"]
    for each in (head, other):
        assert len(each["losses"]) == 10 * 2
        assert each["losses"][-1] < 0.2 * each["losses"][0]


def test_the_variables_of_the_table(pool):
    @sky.compute
    def variables(names):
        import os

        import torch.distributed as dist

        info = sky.instance_info()
        assert dist.is_initialized()
        return info.head_addr, str(info.head_port), {name: os.environ[name] for name in names}

    for rank, (address, port, found) in enumerate(variables(VARIABLES) @ pool):
        assert found == {
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "WORLD_SIZE": "2",
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "NODE_RANK": str(rank),
        }


@sky.integrations.torch
@sky.compute
def decorated_above():
    import torch.distributed as dist

    return dist.is_initialized(), dist.get_world_size(), dist.get_backend()


@sky.integrations.torch(backend="nccl")
@sky.compute
def decorated_with_nccl():
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(sky.instance_info().local_rank)
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total)
    return dist.is_initialized(), int(total.item()), dist.get_backend()


@sky.compute
@sky.integrations.torch()
def decorated_below():
    import torch.distributed as dist

    return dist.is_initialized(), dist.get_world_size(), dist.get_backend()


@pytest.mark.parametrize("call", [decorated_above, decorated_below])
def test_the_decorator_stands_in_either_order_and_the_backend_on_cpu_is_gloo(pool, call):
    assert call() @ pool == [(True, 2, "gloo")] * 2


def test_the_sampler_in_a_loader_of_ones_own(pool):
    """Each item once an epoch, in another order each time: the advice on `set_epoch`."""

    @sky.compute
    def batches(epochs, set_epoch):
        import torch
        from torch.utils.data import DataLoader

        dataset = torch.arange(16)
        sampler = sky.DistributedSampler(dataset, shuffle=True)
        loader = DataLoader(dataset, sampler=sampler, batch_size=4)
        seen = []
        for epoch in range(epochs):
            if set_epoch:
                sampler.set_epoch(epoch)
            seen.append([item for batch in loader for item in batch.tolist()])
        return seen

    first, second = batches(2, set_epoch=True) @ pool
    for epoch in (0, 1):
        assert sorted(first[epoch] + second[epoch]) == list(range(16))
    assert first[0] != first[1]
    (again, same), _ = batches(2, set_epoch=False) @ pool
    assert again == same


def test_the_head_saves_and_speaks_for_all(pool, tmp_path, capfd):
    @sky.compute
    def train(folder):
        import torch

        info = sky.instance_info()
        model = torch.nn.Linear(2, 1)
        loss = model(torch.ones(1, 2)).sum()
        if info.is_head:
            torch.save(model.state_dict(), folder / "checkpoint.pt")
            print("Saved checkpoint from head node")
        if info.is_head:
            print(f"Epoch 0: loss={loss:.4f}")
        return {"node": info.node, "is_head": info.is_head}

    assert train(tmp_path) @ pool == [{"node": 0, "is_head": True}, {"node": 1, "is_head": False}]
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.pt"]
    said = capfd.readouterr().out
    assert "[rank 0] Saved checkpoint from head node" in said
    assert "[rank 0] Epoch 0: loss=" in said
    assert "[rank 1]" not in said


def test_metrics_are_aggregated_after_a_barrier(pool, tmp_path):
    @sky.compute
    def train(folder):
        import time

        import torch.distributed as dist

        info = sky.instance_info()
        if not info.is_head:
            time.sleep(0.2)
        (folder / f"{info.node}.txt").write_text(str(info.node + 1))
        dist.barrier()
        if info.is_head:
            return sum(int(each.read_text()) for each in folder.iterdir())
        return None

    assert train(tmp_path) @ pool == [3, None]


def test_gradients_are_accumulated_to_those_of_the_large_batch(pool):
    @sky.compute
    def train(accumulation_steps):
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        dataset = sky.shard(a_dataset(32))
        loader = torch.utils.data.DataLoader(dataset, batch_size=16 // accumulation_steps)
        for i, (x, y) in enumerate(loader):
            loss = torch.nn.functional.mse_loss(model(x), y) / accumulation_steps
            loss.backward()
            if (i + 1) % accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
        return model.module.weight.detach().flatten().tolist()

    in_four, _ = train(4) @ pool
    in_one, _ = train(1) @ pool
    assert in_four == pytest.approx(in_one, abs=1e-6)


def test_mixed_precision_on_cpu_as_on_a_gpu(pool):
    """`torch.amp` with the device's name; the older `torch.cuda.amp` of the guide is for GPUs."""

    @sky.compute
    def train():
        import os

        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        # Some machines say that they have the instructions for bfloat16, and have not.
        child = os.fork()
        if not child:
            torch.set_num_threads(1)
            torch.ones(8, 8, dtype=torch.bfloat16) @ torch.ones(8, 8, dtype=torch.bfloat16)
            os._exit(0)
        multiplies = os.waitpid(child, 0)[1] == 0
        model = DDP(torch.nn.Linear(4, 1))
        scaler = torch.amp.GradScaler("cpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.amp.autocast("cpu", enabled=multiplies):
            output = model(torch.ones(2, 4))
        scaler.scale(output.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        kind = torch.bfloat16 if multiplies else torch.float32
        return output.dtype == kind, model.module.weight.detach().flatten().tolist()

    first, second = train() @ pool
    assert first == second
    assert first[0]


def test_checkpointed_activations_have_the_same_gradients(pool):
    @sky.compute
    def gradients(checkpointed):
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.checkpoint import checkpoint

        class Deep(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.outer = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

            def forward(self, x):
                if checkpointed:
                    x = checkpoint(self.inner, x, use_reentrant=False)
                else:
                    x = self.inner(x)
                return self.outer(x)

        torch.manual_seed(0)
        model = DDP(Deep())
        model(torch.full((2, 4), sky.instance_info().rank + 1.0)).sum().backward()
        return [each.grad.flatten().tolist() for each in model.parameters()]

    assert gradients(True) @ pool == gradients(False) @ pool


def test_nccl_is_gloo_where_gpus_are_simulated_and_that_is_said(pool, capfd):
    """Also where the pool has torch before the function with the decorator comes."""
    decorated_above() @ pool
    capfd.readouterr()
    assert decorated_with_nccl() @ pool == [(True, 2, "gloo")] * 2
    assert "simulate: gloo for backend=nccl" in capfd.readouterr().err


def test_variables_of_nccl_may_be_set_in_the_function(pool):
    @sky.compute
    def settings():
        import os

        os.environ["NCCL_SOCKET_TIMEOUT"] = "600"
        os.environ["NCCL_DEBUG"] = "INFO"
        import torch
        import torch.distributed as dist

        total = torch.ones(1)
        dist.all_reduce(total)
        return total.item(), os.environ["NCCL_SOCKET_TIMEOUT"]

    assert settings() @ pool == [(2.0, "600")] * 2


# ── the torch page ──────────────────────────────────────────────────────────────────────


@sky.compute
@sky.integrations.torch
def of_the_torch_page(count, epochs):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, DistributedSampler

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    if dist.is_initialized():
        model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = a_dataset(count)
    sampler = DistributedSampler(dataset) if dist.is_initialized() else None
    loader = DataLoader(dataset, sampler=sampler, batch_size=8)
    loss, items = 0.0, 0
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        loss, items = 0.0, 0
        for batch in loader:
            loss += a_step(model, optimizer, batch) * len(batch[0])
            items += len(batch[0])
    metrics = torch.tensor([loss, items], dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(metrics, op=dist.ReduceOp.SUM)
    return {
        "own": loss / items,
        "global": (metrics[0] / metrics[1]).item(),
        "items": int(metrics[1]),
        "wrapped": isinstance(model, DDP),
    }


def test_metrics_are_the_same_on_every_rank_after_all_reduce(pool):
    first, second = of_the_torch_page(count=64, epochs=3) @ pool
    assert first["global"] == second["global"] == pytest.approx((first["own"] + second["own"]) / 2)
    assert first["items"] == 64
    assert first["wrapped"] and second["wrapped"]


@pytest.mark.extensive
def test_the_same_function_runs_alone():
    """The guard on `is_initialized`, where there is no pool."""
    alone = of_the_torch_page(count=64, epochs=1).local()
    assert (alone["items"], alone["wrapped"]) == (64, False)


@pytest.mark.parametrize(("drop_last", "each"), [(False, 3), (True, 2)])
def test_torchs_own_sampler_is_even_where_the_data_are_not(pool, drop_last, each):
    @sky.compute
    def share(drop_last):
        from torch.utils.data import DataLoader, DistributedSampler

        dataset = list(range(5))
        sampler = DistributedSampler(dataset, shuffle=False, drop_last=drop_last)
        return [item for batch in DataLoader(dataset, sampler=sampler) for item in batch.tolist()]

    shares = share(drop_last) @ pool
    assert [len(items) for items in shares] == [each, each]
    assert {*shares[0], *shares[1]} == set(range(5 - drop_last))


# ── the newer guide ─────────────────────────────────────────────────────────────────────


def test_what_is_true_before_the_function_starts(pool):
    """The place in the cluster, by value and as the variable that frameworks of one's own can read."""

    @sky.function
    def train():
        import json
        import os

        import torch.distributed as dist

        info = sky.instance_info()
        told = json.loads(os.environ["COMPUTE_POOL"])
        assert (dist.get_rank(), dist.get_world_size()) == (info.node, info.total_nodes)
        assert told["node"] == info.node
        return {
            "node": info.node,
            "total_nodes": info.total_nodes,
            "is_head": info.is_head,
            "at_head": (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
            == (info.head_addr, str(info.head_port)),
            "peers": len(info.peers),
        }

    assert train() @ pool == [
        {"node": 0, "total_nodes": 2, "is_head": True, "at_head": True, "peers": 2},
        {"node": 1, "total_nodes": 2, "is_head": False, "at_head": True, "peers": 2},
    ]
