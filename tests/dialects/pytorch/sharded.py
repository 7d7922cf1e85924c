"""A transformer under `fully_shard`, from the meta device, with checkpoints: the shape of the FSDP2 example."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

CHECKPOINT = Path("model.pt")


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 64),
            nn.Linear(64, width),
        )

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))

    def reset_parameters(self):
        for each in (self.norm, self.up, self.down):
            each.reset_parameters()


class Model(nn.Module):
    def __init__(self, words=64, width=16, layers=3):
        super().__init__()
        self.embed, self.out = nn.Embedding(words, width), nn.Linear(width, words)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))

    def forward(self, x):
        x = self.embed(x)
        for each in self.layers:
            x = each(x)
        return self.out(x)

    def reset_parameters(self):
        for each in (self.embed, *self.layers, self.out):
            each.reset_parameters()


def main():
    if not torch.accelerator.is_available() or torch.accelerator.device_count() < 2:
        sys.exit("this needs two GPUs")
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"{torch.accelerator.current_accelerator()}:{rank}")
    torch.accelerator.device_index(rank)
    backend = dist.get_default_backend_for_device(device)
    dist.init_process_group(backend=backend, device_id=device)
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    assert isinstance(model, FSDPModule)
    assert all(
        isinstance(it, DTensor) and it.placements == (Shard(0),) for it in model.parameters()
    )
    for before, after in zip(model.layers, model.layers[1:], strict=False):
        before.set_modules_to_forward_prefetch([after])
        after.set_modules_to_backward_prefetch([before])
    model.to_empty(device=device)
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    if CHECKPOINT.exists():
        full = torch.load(CHECKPOINT, mmap=True, weights_only=True, map_location="cpu")
        broadcast = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, full, options=broadcast)
        print("loaded")
    else:
        model.reset_parameters()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randint(0, 64, (8, 12), device=device)
    losses = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(x).float().flatten(0, 1), x.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    torch.cuda.synchronize()
    full = get_model_state_dict(model, options=whole)
    if rank == 0:
        torch.save(full, CHECKPOINT)
    dist.barrier(device_ids=[rank])
    print(f"rank {rank}: it learns {losses[-1] < losses[0]}")
    dist.destroy_process_group()


main()
