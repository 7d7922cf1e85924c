"""Only the head writes; the others wait for it, then all read what it wrote."""

import tempfile
from pathlib import Path

import skyward_nb as sky


@sky.function
def save_and_load(folder):
    import torch
    import torch.distributed as dist

    value = torch.tensor([float(sky.instance_info().rank + 1)])
    dist.all_reduce(value)
    checkpoint = Path(folder) / "checkpoint.pt"
    if sky.is_head():
        torch.save({"sum": value}, checkpoint)
        print(f"rank {sky.instance_info().rank} wrote {checkpoint.name}")
    sky.barrier()
    return torch.load(checkpoint)["sum"].item()


with (
    tempfile.TemporaryDirectory() as folder,
    sky.Compute(nodes=3, plugins=[sky.plugins.torch()]) as pool,
):
    print(f"read: {save_and_load(folder) @ pool}")
    print(f"files: {[path.name for path in Path(folder).iterdir()]}")
