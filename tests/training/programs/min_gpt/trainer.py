"""Epochs over all ranks, and a snapshot after each, from which a later start goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from model import TinyGPT
from text import LETTERS, Pieces
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, settings: SimpleNamespace) -> None:
        self.settings, self.world = settings, dist.get_world_size()
        data = Pieces(settings.data.length, settings.data.block)
        sampler = DistributedSampler(data, shuffle=False, drop_last=True)
        self.batches = DataLoader(data, settings.trainer.batch // self.world, sampler=sampler)
        model = TinyGPT(
            LETTERS,
            settings.data.block,
            settings.model.width,
            settings.model.heads,
            settings.model.layers,
        )
        self.snapshot = Path(settings.trainer.snapshot)
        self.epoch = 0
        if self.snapshot.exists():
            found = torch.load(self.snapshot, weights_only=True)
            model.load_state_dict(found["model"])
            self.epoch = found["epoch"]
            print(f"resumed at epoch {self.epoch} as rank {dist.get_rank()}", flush=True)
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.trainer.rate)

    def train(self) -> None:
        while self.epoch < self.settings.trainer.epochs:
            self._may_die()
            total = torch.zeros(1)
            for ids, targets in self.batches:
                scores = self.model(ids)
                loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.detach()
            dist.all_reduce(total)
            if dist.get_rank() == 0:
                print(
                    f"epoch {self.epoch} loss {total.item() / self.world / len(self.batches):.6f}",
                    flush=True,
                )
            if os.environ.get("LOCAL_RANK", "0") == "0":
                self._save()
            dist.barrier()  # no rank begins an epoch that another one cannot resume at
            self.epoch += 1

    def _save(self) -> None:
        """One of each machine does: machines may have no folder together."""
        new = self.snapshot.with_suffix(f".{dist.get_rank()}")
        torch.save({"model": self.model.module.state_dict(), "epoch": self.epoch + 1}, new)
        new.replace(self.snapshot)

    def _may_die(self) -> None:
        """Rank 1 is killed once, at the epoch that the configuration names."""
        died = self.snapshot.with_suffix(".died")
        if self.epoch == self.settings.fault.epoch and dist.get_rank() == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
