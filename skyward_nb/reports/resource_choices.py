"""Picks the first of several pools that can be started, for work that each of them would do for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from skyward_nb.words.errors import (
    AcceleratorError,
    AccountError,
    HostError,
    LaunchError,
    NodesRefused,
    NothingFits,
    StartError,
)

W = TypeVar("W")
T = TypeVar("T")
CANNOT_BE_HAD = AcceleratorError, AccountError, HostError, LaunchError, NodesRefused, NothingFits
"""The errors that lead to the next one; any other would come there, too."""


def first_to_be_had(what: str, choices: Sequence[W], run: Callable[[W], T]) -> T:
    """What `run` gives for the first of these that can be had.

    Raises what it raises where there is one alone, or where that is no lack of machines, and `StartError` where
    none can be had.
    """
    refused: list[str] = []
    for number, each in enumerate(choices, 1):
        try:
            return run(each)
        except CANNOT_BE_HAD as error:
            if len(choices) == 1:
                raise
            refused.append(f"number {number}: {error.message}")
    raise StartError(what, f"none of its {len(choices)} resources can be had", "\n".join(refused))
