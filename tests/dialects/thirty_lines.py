"""The whole in thirty lines: train on four ranks, bring the model home, and try it on two at once."""

import torch

import skyward_nb as sky

x = torch.randn(1024, 16, generator=torch.Generator().manual_seed(0))
y = (x.sum(dim=1) > 0).long()


@sky.function
def train(x, y, epochs):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x, y = sky.shard(x, y)
    for epoch in sky.progress(range(epochs)):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sky.log(loss=loss.item(), step=epoch)
    return model.module


@sky.function
def accuracy(model, x, y):
    return (model(x).argmax(dim=1) == y).float().mean().item()


with sky.Compute(nodes=4, plugins=[sky.plugins.torch()]) as pool:
    model, *_ = train(x, y, epochs=60) @ pool
    first, second = (accuracy(model, x[::2], y[::2]) & accuracy(model, x[1::2], y[1::2])) >> pool
print(f"accuracy {first:.3f} and {second:.3f}")
