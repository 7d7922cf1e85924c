"""A transformer of two blocks as people write them, and how it is trained: code for a cell."""

# Keys have no bias: its true gradient is 0, so that Adam would make steps of what is left by rounding.
MODEL = """
import torch, warnings, torch.distributed as dist, torch.nn.functional as F
from torch import nn
import skyward_nb as sky

class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
    def forward(self, x):
        q, k, v = (each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.attention, self.first, self.second = Attention(width, heads), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))
    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))

class Tiny(nn.Module):
    def __init__(self, words=32, width=16, dropout=0.0, tied=False):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(8, width) / 50)
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("mask", torch.rand(8) > 0.5)
        if tied:
            self.head.weight = self.words.weight
    def forward(self, x):
        x = self.words(x) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

def tied():
    return Tiny(tied=True)

def train(model, place=(0, 1), steps=6, foreach=None):
    part, count = place
    text = torch.randint(32, (8, 8), generator=torch.Generator().manual_seed(0)).chunk(count)[part]
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(steps):
        optimizer.zero_grad()
        said = model(text)
        said = getattr(said, "logits", said)
        loss = F.cross_entropy(said[:, :-1].flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=foreach)
        optimizer.step()
        whole = loss.detach().clone()
        if dist.is_initialized():
            dist.all_reduce(whole)
            whole /= dist.get_world_size()
        losses.append(whole.item())
    return losses

def made(make, seed=0):
    torch.manual_seed(seed)
    return make()
"""
