"""DistributedDataParallel in the older dialect: the decorator readies PyTorch on the ranks of the pool."""

import skyward_nb as sky


@sky.compute
@sky.integrations.torch(backend="gloo")
def train(epochs, batch_size=32):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, TensorDataset

    info = sky.instance_info()
    assert dist.is_initialized()
    assert (dist.get_rank(), dist.get_world_size()) == (info.rank, info.world_size)

    generator = torch.Generator().manual_seed(0)
    points = torch.rand(512, 2, generator=generator) * 2 - 1
    inside = (points.norm(dim=1) < 0.7).float()[:, None]
    dataset = TensorDataset(points, inside)
    sampler = sky.DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)

    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    with torch.no_grad():
        right = ((model(points) > 0).float() == inside).float().mean().item()
    if info.is_head:
        print(f"accuracy {right:.3f} on {info.world_size} ranks")
    return right, [weight.sum().item() for weight in model.parameters()]


with sky.ComputePool(provider=sky.Local(), nodes=2) as pool:
    (accuracy, weights), (other_accuracy, other_weights) = train(epochs=30) @ pool

print(f"ranks agree: {accuracy == other_accuracy and weights == other_weights}")
print(f"it learned: {accuracy > 0.9}")
