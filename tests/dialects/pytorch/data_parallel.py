"""DDP with a snapshot and AMP by `torch.cuda`: the shape of PyTorch's DDP tutorials, whose series this joins."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SNAPSHOT = Path("ddp.pt")

gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
dist.init_process_group(backend="nccl")
assert torch.cuda.current_device() == gpu < torch.cuda.device_count() == 2
torch.backends.cudnn.benchmark = True
torch.manual_seed(gpu)
torch.cuda.manual_seed_all(gpu)

model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)).cuda(gpu)
if SNAPSHOT.exists():
    model.load_state_dict(torch.load(SNAPSHOT, map_location={"cuda:0": f"cuda:{gpu}"}))
    print("resumed")
model = DDP(model, device_ids=[gpu], output_device=gpu)
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 5))
loader = DataLoader(data, batch_size=8, pin_memory=True, sampler=DistributedSampler(data))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda")
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
copies = torch.cuda.Stream()
start.record()
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        with torch.cuda.stream(copies):
            x, y = x.cuda(non_blocking=True), y.to(f"cuda:{gpu}", non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        x.record_stream(torch.cuda.current_stream())
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
end.record()
torch.cuda.synchronize()
torch.cuda.empty_cache()
with torch.device("cuda"):
    total = torch.zeros(1)
total += gpu + 1
dist.all_reduce(total)
same = [torch.empty(10, device=gpu) for _ in range(dist.get_world_size())]
dist.all_gather(same, model.module[0].bias.detach())
if gpu == 0:
    torch.save(model.module.state_dict(), SNAPSHOT)
dist.barrier()
print(
    f"GPU {gpu}: sum {total.item():g}, alike {torch.equal(*same)}, took time {start.elapsed_time(end) > 0}, "
    f"{torch.cuda.memory_allocated()} bytes, CUDA {torch.cuda.is_available()}"
)
dist.destroy_process_group()
