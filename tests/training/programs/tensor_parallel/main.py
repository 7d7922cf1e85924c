"""Tensor parallelism beside FSDP2, in the shape of PyTorch's examples: `main.py EPOCHS TP`."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from layers import Block, cut
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main(epochs: int, tp: int) -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    world = dist.get_world_size()
    tp = min(tp, world)
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    block, x = Block(), torch.randn(16, 8)
    y = x.roll(1, dims=1)
    model = fully_shard(cut(block, mesh["tp"]), mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    place, ways = mesh["dp"].get_local_rank(), world // tp
    for epoch in range(epochs):
        loss = torch.nn.functional.mse_loss(model(x[place::ways]), y[place::ways])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {total.item() / world:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
