"""A cell in which ranks train one model."""

DDP = """
import os
import torch, torch.distributed as dist
torch.manual_seed(int(os.environ['RANK']))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
total, weights = total.item(), round(sum(float(each.sum()) for each in model.parameters()), 5)
"""
"""`total` is the sum of 1 to the number of ranks, and `weights` are the same on all of them."""
