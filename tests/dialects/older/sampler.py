"""The sampler in the older dialect: it pads, so that every rank has as many batches, or drops."""

import skyward_nb as sky


@sky.compute
@sky.integrations.torch()
def batches(length, drop_last):
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader

    sampler = sky.DistributedSampler(range(length), shuffle=False, drop_last=drop_last)
    total = torch.zeros(1)
    for batch in DataLoader(range(length), batch_size=2, sampler=sampler):
        part = batch.sum().float()[None]
        dist.all_reduce(part)  # hangs, if a rank has more batches than another
        total += part
    return len(sampler), total.item()


with sky.ComputePool(nodes=3) as pool:
    print(f"padded: {batches(10, drop_last=False) @ pool}")
    print(f"dropped: {batches(10, drop_last=True) @ pool}")
