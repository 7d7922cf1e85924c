"""transformers' private names: what a model says of how it is spread, and where arguments note their process.

A model that does not say it, as one that is none of transformers', has a plan made for it.

Seen with transformers 5.23.0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

OF_PROCESS = frozenset({"distributed_state", "_setup_devices", "__cached__setup_devices"})
"""What a `TrainingArguments` notes of the process that asks it for a device; the last one before transformers 5."""


def tensor_plan(model: Any) -> Mapping[str, str]:
    """A model's own plan of split layers: a word for each pattern of names, with `*`."""
    return getattr(model, "_tp_plan", None) or {}


def whole_blocks(model: Any) -> Collection[str]:
    """Names of classes that a model says are not to be split: its repeated blocks."""
    return getattr(model, "_no_split_modules", None) or ()
