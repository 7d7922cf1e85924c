"""Requested accelerators as one value: `A100`, `A100:8`, `L4:0.5`, `none`."""

from __future__ import annotations

import re

import msgspec

from skyward_nb.words.catalogue import canonical, kind_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.mig import models_of

_FORM = re.compile(r"(?P<name>\w[\w .\-]*?)(?::(?P<count>\d+(?:\.\d+)?))?", re.ASCII)


class Accelerator(msgspec.Struct, frozen=True):
    """`count` accelerators called `name` on each node; with a `part` below 1, one that is this part of a whole."""

    name: str
    count: int = 1
    part: float = 1.0

    def __str__(self) -> str:
        many = self.count if self.part == 1 else self.part
        return self.name if many == 1 else f"{self.name}:{many:g}"


def parse_accelerator(text: str) -> Accelerator | None:
    """Read `A100`, `A100-80GB:8`, `NVIDIA.A100` or `none`; raise `OptionError` for anything else.

    Known models get their name in the catalogue.
    """
    if text.lower() in ("none", "cpu"):
        return None
    if text.lower().partition(":")[0] in ("gpu", "cuda"):
        raise OptionError("accelerator", f"accelerator={text}: which one? {_HOW}")
    match = _FORM.fullmatch(text)
    if match is None or not (match["name"][0].isalpha() or kind_of(match["name"])):
        raise OptionError("accelerator", f"accelerator={text}: {_HOW}")
    name = canonical(match["name"])
    return counted(name, match["count"] or "1")


_HOW = (
    "write a name and, if more than one on each node, a whole count of 1 or more: accelerator=A100, "
    "accelerator=A100:8, accelerator=none"
)


def counted(name: str, text: str) -> Accelerator:
    """So many accelerators of this name, or a part of one; raises `OptionError` for none, and for 1.5."""
    try:
        count = float(text)
    except ValueError:
        count = 0.0
    if count >= 1 and count.is_integer():
        return Accelerator(name, int(count))
    if not 0 < count < 1:
        raise OptionError("accelerator", f"accelerator={name}:{text}: {_HOW}")
    return Accelerator(name, part=count)


def other_ways(asked: Accelerator) -> str:
    """How to use a part of an accelerator where none is rented as such."""
    name = asked.name
    parts = max(2, round(1 / asked.part))
    share = f"ranks_per_node={parts} with framework=torch backend=gloo has {parts} ranks share it"
    profile = _profile(name, parts)
    cut = f"accelerator={name} mig={profile} cuts it into slices, one for each rank; or "
    return f"write parts of one in another way: {cut if profile else ''}accelerator={name} {share}"


def _profile(name: str, parts: int) -> str:
    """The profile of the largest slices of which a GPU has so many; "" without any."""
    for model in models_of(name):
        fitting = [profile for profile, count in model.profiles.items() if count >= parts]
        if fitting:
            return min(fitting, key=lambda profile: (model.profiles[profile], -len(profile)))
    return ""
