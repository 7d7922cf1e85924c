"""Which slices of this machine's GPUs the nodes on it have, where ranks are to have slices.

An agent looks when it forks ranks: until then nobody can know, and they may be others each time.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from skyward_nb.node.gpus import cards
from skyward_nb.words.commands import Fork, PluginUse
from skyward_nb.words.mig import advice, is_called, slices_of, visible_cards


class SlicesLacking(Exception):
    """There are fewer slices than ranks; `advice` says what to type."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def with_slices(order: Fork) -> dict[int, tuple[PluginUse, ...]]:
    """The plugins of each node; the `mig` of those has as `devices` the node's slices, one a rank.

    Raises `SlicesLacking`. Asks the driver, which may take a second.
    """
    nodes = sorted({place.node for place in order.places})
    mig = next((use for use in order.plugins if use.name == "mig"), None)
    if mig is None:
        return dict.fromkeys(nodes, order.plugins)
    profile, asked = mig.options["profile"], mig.options["accelerator"]
    every = visible_cards(cards(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    fitting = tuple(card for card in every if is_called(card.name, asked))
    free = slices_of(fitting, profile)
    if len(free) < len(order.places):
        here = advice(fitting, profile, len(order.places)) if fitting else f"there is no {asked}"
        raise SlicesLacking(f"mig={profile}: there are not enough slices", here)
    found: dict[int, tuple[PluginUse, ...]] = {}
    for node in nodes:
        many = sum(place.node == node for place in order.places)
        own, free = free[:many], free[many:]
        given = replace(mig, options={**mig.options, "devices": ",".join(own)})
        found[node] = tuple(given if use is mig else use for use in order.plugins)
    return found
