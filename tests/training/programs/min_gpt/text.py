"""Pieces of a text, each with the same piece one letter on."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset

LETTERS = 12


class Pieces(Dataset):
    def __init__(self, length: int, block: int) -> None:
        numbers = torch.arange(length)
        self.letters = (numbers * numbers + 3 * numbers) % LETTERS
        self.block = block

    def __len__(self) -> int:
        return (len(self.letters) - 1) // self.block

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = number * self.block
        piece = self.letters[at : at + self.block + 1]
        return piece[:-1], piece[1:]
