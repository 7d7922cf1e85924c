"""A character model trained by DDP and AMP on GPUs: the shape of PyTorch's minGPT example."""

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, random_split
from torch.utils.data.distributed import DistributedSampler

SNAPSHOT = Path("snapshot.pt")


class Characters(Dataset):
    def __init__(self, text, block):
        self.known = {each: number for number, each in enumerate(sorted(set(text)))}
        self.data, self.block = [self.known[each] for each in text], block

    def __len__(self):
        return len(self.data) - self.block

    def __getitem__(self, at):
        piece = torch.tensor(self.data[at : at + self.block + 1])
        return piece[:-1], piece[1:]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        split = [
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(self.before(x)).chunk(3, -1)
        ]
        seen = functional.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x))


class GPT(nn.Module):
    def __init__(self, characters, block, width=32, layers=2, heads=2):
        super().__init__()
        self.embed, self.place = nn.Embedding(characters, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, idx, targets):
        place = torch.arange(idx.size(1), device=idx.device)
        logits = self.head(self.blocks(self.embed(idx) + self.place(place)))
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@dataclass
class Snapshot:
    model: dict
    optimizer: dict
    epochs: int


class Trainer:
    def __init__(self, model, optimizer, train_set, test_set):
        self.local_rank, self.rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
        self.device = torch.device(f"{torch.accelerator.current_accelerator()}:{self.local_rank}")
        self.train_loader, self.test_loader = self.loader(train_set), self.loader(test_set)
        self.optimizer, self.epochs = optimizer, 0
        model = model.to(self.local_rank)
        self.scaler = torch.amp.GradScaler(self.device.type)
        if SNAPSHOT.exists():
            found = Snapshot(**torch.load(SNAPSHOT, map_location=self.device))
            model.load_state_dict(found.model)
            optimizer.load_state_dict(found.optimizer)
            self.epochs = found.epochs
            print(f"resumed after epoch {self.epochs}")
        self.model = DDP(model, device_ids=[self.local_rank])

    def loader(self, data):
        sampler = DistributedSampler(data)
        return DataLoader(data, batch_size=16, pin_memory=True, num_workers=1, sampler=sampler)

    def batch(self, source, targets, train):
        kind = self.device.type
        with torch.set_grad_enabled(train), torch.amp.autocast(kind, dtype=torch.float16):
            _, loss = self.model(source, targets)
        if train:
            self.optimizer.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.item()

    def epoch(self, number, loader, train):
        loader.sampler.set_epoch(number)
        losses = [
            self.batch(source.to(self.local_rank), targets.to(self.local_rank), train)
            for source, targets in loader
        ]
        return sum(losses) / len(losses)

    def train(self, until):
        first = last = 0.0
        for number in range(self.epochs + 1, until + 1):
            last = self.epoch(number, self.train_loader, train=True)
            first = first or last
            if self.rank == 0:
                state = Snapshot(
                    self.model.module.state_dict(), self.optimizer.state_dict(), number
                )
                torch.save(asdict(state), SNAPSHOT)
        seen = self.epoch(0, self.test_loader, train=False)
        print(f"rank {self.rank}: it learns {last < first}, test loss is finite {seen < 10}")


def main():
    accelerator = torch.accelerator.current_accelerator()
    local_rank = int(os.environ["LOCAL_RANK"])
    backend = torch.distributed.get_default_backend_for_device(f"{accelerator}:{local_rank}")
    init_process_group(backend=backend)
    torch.accelerator.set_device_index(local_rank)
    torch.manual_seed(0)
    data = Characters("to be or not to be, that is the question. " * 4, block=16)
    parts = random_split(data, [0.8, 0.2])
    model = GPT(len(data.known), data.block)
    Trainer(model, torch.optim.AdamW(model.parameters(), lr=3e-3), *parts).train(int(sys.argv[1]))
    destroy_process_group()


if __name__ == "__main__":
    if not torch.accelerator.is_available() or torch.accelerator.device_count() < 2:
        sys.exit("this needs two GPUs")
    main()
