"""One script for torchrun and for us: a DDP step, and training, as often as asked."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def one_step() -> float:
    """A step of a two-line model; the loss."""
    model = DDP(nn.Linear(8, 1))
    loss = model(torch.ones(4, 8)).sum()
    loss.backward()
    return loss.item()


def demo_epochs(kind: str, epochs: int) -> int:
    """Train the demo's network on random digits of the demo's size; samples seen by this rank.

    `kind` is `ddp` or `fsdp`: FSDP2, each layer by itself, then the whole.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DDP(model) if kind == "ddp" else sharded(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    count = 1347 // dist.get_world_size()
    x, y = torch.randn(count, 64), torch.randint(10, (count,))
    for _ in range(epochs):
        for batch in torch.randperm(count).split(32):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return count * epochs


def sharded(model: nn.Sequential) -> nn.Module:
    """The model with its parameters spread over all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


def main() -> None:
    """Under torchrun: one step and out, which it may tell a pipe, or train whenever a line comes on the pipe."""
    dist.init_process_group("gloo")
    if len(sys.argv) == 1:
        one_step()
    elif sys.argv[1] == "told":
        one_step()
        if dist.get_rank() == 0:
            with open(sys.argv[2], "w") as told:
                told.write("stepped\n")
    else:
        _serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
    dist.destroy_process_group()


def _serve(kind: str, epochs: int, orders: str, answers: str) -> None:
    head = dist.get_rank() == 0
    listen = open(orders) if head else None
    answer = open(answers, "w") if head else None
    while True:
        go = torch.zeros(1)
        if listen is not None:
            go[0] = float(bool(listen.readline().strip()))
        dist.broadcast(go, 0)
        if not go.item():
            return
        demo_epochs(kind, epochs)
        dist.barrier()
        if answer is not None:
            answer.write("done\n")
            answer.flush()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
