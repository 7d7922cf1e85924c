"""FSDP2 in the shape of PyTorch's example: `main.py EPOCHS`, which goes on from the last checkpoint."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from checkpoint import load, save
from model import Model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH = 16


def main(epochs: int) -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model, x = Model(), torch.randn(BATCH, 8)
    y = x.sum(dim=1, keepdim=True)
    mesh = init_device_mesh("cpu", (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    done = sorted(Path("checkpoints").glob("*"), key=lambda path: int(path.name))
    first = int(done[-1].name) if done else 0
    if done:
        load(model, done[-1])
        print(f"resumed at epoch {first}", flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(first, epochs):
        loss = torch.nn.functional.mse_loss(model(x[rank::world]), y[rank::world])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / world:.6f}", flush=True)
        save(model, Path("checkpoints") / str(epoch + 1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
