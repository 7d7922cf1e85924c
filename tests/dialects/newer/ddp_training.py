"""DistributedDataParallel over four ranks: the process group is there, each rank has its shard."""

import torch
from torch import nn

import skyward_nb as sky

torch.manual_seed(0)
x = torch.randn(256, 8)
y = x @ torch.arange(8.0)[:, None] + 1


@sky.function
def train(x, y, epochs):
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = sky.shard(x, y)
    for epoch in sky.progress(range(epochs)):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sky.log(loss=loss.item(), step=epoch)
    return loss.item(), model.module.weight.detach()


with sky.Compute(provider=sky.Local(), nodes=4, plugins=[sky.plugins.torch()]) as pool:
    losses, weights = zip(*(train(x, y, epochs=50) @ pool), strict=True)

print(f"losses: {', '.join(f'{loss:.4f}' for loss in losses)}")
print(f"weights: {weights[0].flatten().round(decimals=2).tolist()}")
print(f"the same on every rank: {all(torch.equal(each, weights[0]) for each in weights)}")
