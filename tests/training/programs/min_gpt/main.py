"""minGPT in the shape of PyTorch's example: a configuration, a model, a trainer, a snapshot."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from settings import load
from trainer import Trainer


def main() -> None:
    settings = load(sys.argv[1:])
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(0)
    Trainer(settings).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
