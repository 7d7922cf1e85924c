"""`sky.DistributedSampler` with a DataLoader: as many batches on every rank, each epoch in a new order."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import skyward_nb as sky


@sky.function
def epochs(count):
    dataset = TensorDataset(torch.arange(103))
    sampler = sky.DistributedSampler(dataset, shuffle=True, seed=3)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    seen = []
    for epoch in range(count):
        sampler.set_epoch(epoch)
        seen.append([batch.tolist() for (batch,) in loader])
    return seen


with sky.Compute(nodes=4) as pool:
    ranks = epochs(2) @ pool

batches = [len(seen[0]) for seen in ranks]
first, second = (
    [item for seen in ranks for batch in seen[epoch] for item in batch] for epoch in range(2)
)
print(f"batches on each rank: {batches}")
print(f"all items seen: {set(first) == set(second) == set(range(103))}, {len(first)} in all")
print(f"another order in the second epoch: {first != second}")
