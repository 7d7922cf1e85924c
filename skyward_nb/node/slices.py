"""The MIG slices of this machine's GPUs, divided among its nodes.

An agent looks for slices whenever it forks ranks, as they may change. On request it cuts GPUs that
have none.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from skyward_nb.node.gpus import cards
from skyward_nb.protocol.commands import Fork, PluginUse
from skyward_nb.system.mig_partition import PartitionFailed, cut
from skyward_nb.words.mig import GpuCard, advice, is_called, most_of, slices_of, visible_cards


class TooFewSlices(Exception):
    """There are fewer slices than ranks; `advice` has the commands that make some."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def with_slices(order: Fork, folder: Path) -> dict[int, tuple[PluginUse, ...]]:
    """The plugins of each node; the option `devices` of `mig` has the node's slices, one for each rank.

    Raises `TooFewSlices`. Asking the driver may take a second, and cutting GPUs longer; a cut is
    noted in `folder`.
    """
    nodes = sorted({place.node for place in order.places})
    mig = next((use for use in order.plugins if use.name == "mig"), None)
    if mig is None:
        return dict.fromkeys(nodes, order.plugins)
    free = _slices(mig.options, len(order.places), folder)
    found: dict[int, tuple[PluginUse, ...]] = {}
    for node in nodes:
        many = sum(place.node == node for place in order.places)
        own, free = free[:many], free[many:]
        given = replace(mig, options={**mig.options, "devices": ",".join(own)})
        found[node] = tuple(given if use is mig else use for use in order.plugins)
    return found


def _slices(options: dict[str, str], needed: int, folder: Path) -> tuple[str, ...]:
    """The UUIDs of enough slices."""
    profile, asked = options["profile"], options["accelerator"]
    visible = visible_cards(cards(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    here = tuple(card for card in visible if is_called(card.name, asked))
    if "partition" in options:
        try:
            here = _partitioned(here, profile, needed, folder)
        except PartitionFailed as error:
            why = advice(here, profile, needed)
            raise TooFewSlices(f"mig={profile} partition: {error}", why) from None
    free = slices_of(here, profile)
    if len(free) < needed:
        why = advice(here, profile, needed) if here else f"There is no {asked}"
        raise TooFewSlices(f"mig={profile}: there are not enough slices", why)
    return free


def _partitioned(
    here: tuple[GpuCard, ...], profile: str, needed: int, folder: Path
) -> tuple[GpuCard, ...]:
    """Cut GPUs without slices until there are enough slices; the GPUs after that."""
    missing = needed - len(slices_of(here, profile))
    done: set[str] = set()
    for card in here:
        many = min(most_of(card, profile, 0), missing)
        if many > 0 and not card.slices:
            cut(folder, card, profile, many)
            done.add(card.uuid)
            missing -= many
    now = {card.uuid: card for card in cards()} if done else {}
    return tuple(now.get(card.uuid, card) if card.uuid in done else card for card in here)
