"""MIG slices of GPUs: the profiles of each model, and the number of each. Pure.

The table is that of NVIDIA's Multi-Instance GPU User Guide, "Supported MIG Profiles":
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skyward_nb.words.errors import OptionError

if TYPE_CHECKING:
    from skyward_nb.words.accelerators import Accelerator

_LITTLE = 0.1
_FORM = re.compile(r"\d+g\.\d+gb(\+me)?")


@dataclass(frozen=True)
class MigModel:
    """A GPU by its family and memory, and the most slices of each profile.

    `marks` are words of a GPU's name that distinguish it in its `family`.
    """

    family: str
    memory: str
    profiles: dict[str, int] = field(hash=False)
    marks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.family.upper()} {self.memory.upper()}"


def _sevenths(small: int, quarter: int, half: int, whole: int) -> dict[str, int]:
    """Profiles of a GPU of seven compute slices, by the GB of an eighth of its memory, and so on."""
    return {
        f"1g.{small}gb": 7,
        f"1g.{small}gb+me": 1,
        f"1g.{quarter}gb": 4,
        f"2g.{quarter}gb": 3,
        f"3g.{half}gb": 2,
        f"4g.{half}gb": 1,
        f"7g.{whole}gb": 1,
    }


_A30 = {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1}

MODELS = (
    MigModel("a100", "80gb", _sevenths(10, 20, 40, 80)),
    MigModel("a100", "40gb", _sevenths(5, 10, 20, 40)),
    MigModel("a30", "24gb", _A30),
    MigModel("h100", "80gb", _sevenths(10, 20, 40, 80)),
    MigModel("h100", "94gb", _sevenths(12, 24, 47, 94), ("nvl",)),
    MigModel("h100", "96gb", _sevenths(12, 24, 48, 96)),
    MigModel("gh200", "96gb", _sevenths(12, 24, 48, 96), ("480gb",)),
    MigModel("h200", "141gb", _sevenths(18, 35, 71, 141)),
    MigModel("b200", "180gb", _sevenths(23, 45, 90, 180)),
)
"""In each family the usual model first: a name without memory means the first one with the profile."""


def parse_mig(text: str) -> str | None:
    """Read `3g.40gb`, `1g.10gb+me` or `none`; raises `OptionError` for other texts."""
    profile = text.lower().removeprefix("mig-").replace(".me", "+me")
    if profile == "none":
        return None
    if not _FORM.fullmatch(profile):
        raise OptionError(
            "mig", f"mig={text}: name a profile as nvidia-smi does, such as mig=3g.40gb, or none"
        )
    return profile


def models_of(name: str) -> tuple[MigModel, ...]:
    """The possible models of an accelerator of this name, such as `A100` or `A100-SXM4-80GB`."""
    words = set(re.split(r"[\s-]+", name.lower()))
    family = [model for model in MODELS if model.family in words]
    exact = tuple(model for model in family if words & {model.memory, *model.marks})
    is_exact = any(re.fullmatch(r"\d+gb?", word) for word in words)
    return exact if exact or is_exact else tuple(family)


def slices_per_gpu(profile: str, accelerator: Accelerator) -> int:
    """The most slices of this profile on each of these GPUs.

    Raises `OptionError` for a GPU without MIG, and for a profile that it lacks, with those it has.
    """
    models = models_of(accelerator.name)
    if not models:
        known = ", ".join(dict.fromkeys(model.family.upper() for model in MODELS))
        raise OptionError(
            "mig",
            f"mig={profile}: slices of {accelerator.name} are not known here; those of these GPUs are: "
            f"{known}. The name may include the memory: accelerator=A100-80GB",
        )
    for model in models:
        if profile in model.profiles:
            return model.profiles[profile]
    have = "; ".join(f"{model} has {spell_profiles(model.profiles)}" for model in models)
    raise OptionError("mig", f"mig={profile} is not a profile of {accelerator.name}: {have}")


def card_model(name: str, gigabytes: float) -> MigModel | None:
    """The model of cards of this name and memory; None without MIG, or of an unknown size."""
    family = [model for model in MODELS if model.family == name.lower()]
    sizes = {abs(int(model.memory.removesuffix("gb")) - gigabytes): model for model in family}
    # Drivers and clouds report a little less, or more, than the makers.
    near = min(sizes, default=math.inf)
    return sizes[near] if near < _LITTLE * gigabytes else None


def spell_profiles(profiles: dict[str, int]) -> str:
    """Profiles, and the most slices of each: `3g.40gb (2)`."""
    return ", ".join(f"{profile} ({count})" for profile, count in profiles.items())


@dataclass(frozen=True)
class MigSlice:
    """An existing slice: its profile, and its UUID for CUDA_VISIBLE_DEVICES."""

    profile: str
    uuid: str


@dataclass(frozen=True)
class GpuCard:
    """A GPU as its driver reports it: `mig` is whether MIG is on, None without MIG."""

    index: int
    name: str
    uuid: str
    mig: bool | None
    slices: tuple[MigSlice, ...] = ()

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"


def is_called(card_name: str, asked: str) -> bool:
    """Whether `asked` means a GPU of this name.

    The name has all words of `asked`, or both are one model of the table: an `H100-94GB` is called NVL.
    """
    words = [set(re.split(r"[\s-]+", text.lower())) for text in (asked, card_name)]
    models = models_of(card_name)
    return words[0] <= words[1] or (len(models) == 1 and models == models_of(asked))


def own_slice(visible: str | None) -> str | None:
    """The one slice that CUDA_VISIBLE_DEVICES gives a process, as its device 0; else None."""
    name = (visible or "").strip()
    return name if name.startswith("MIG-") and "," not in name else None


def visible_cards(cards: tuple[GpuCard, ...], visible: str | None) -> tuple[GpuCard, ...]:
    """The GPUs and slices of CUDA_VISIBLE_DEVICES; all if it is not set.

    It has indices of GPUs, UUIDs or their beginnings, and UUIDs of slices.
    """
    if visible is None:
        return cards
    names = [name.strip() for name in visible.split(",") if name.strip()]
    left: list[GpuCard] = []
    for card in cards:
        if any(_names_whole(name, card) for name in names):
            left.append(card)
        elif own := tuple(each for each in card.slices if each.uuid in names):
            left.append(GpuCard(card.index, card.name, card.uuid, card.mig, own))
    return tuple(left)


def _names_whole(name: str, card: GpuCard) -> bool:
    is_uuid = name.startswith("GPU-") and card.uuid.startswith(name)
    return is_uuid or (name.isdecimal() and int(name) == card.index)


def slices_of(cards: tuple[GpuCard, ...], profile: str) -> tuple[str, ...]:
    """The UUIDs of all slices of a profile, GPU by GPU."""
    return tuple(
        each.uuid for card in cards if card.mig for each in card.slices if each.profile == profile
    )


_PENDING = (
    "No process may use the GPU meanwhile. If the first command says that the mode is pending, reset "
    "the GPU, or restart the machine, first: sudo nvidia-smi --gpu-reset -i {index}"
)


def advice(cards: tuple[GpuCard, ...], profile: str, needed: int) -> str:
    """Why these GPUs do not have `needed` slices, and the commands that make them."""
    have = len(slices_of(cards, profile))
    said = [f"{needed} slices {profile} are needed, and there are {have}:"]
    said += [f"  {card} {_state(card)}" for card in cards]
    typed: list[str] = []
    missing = needed - have
    for card in cards:
        more = min(most_of(card, profile, needed) - len(slices_of((card,), profile)), missing)
        if more > 0:
            missing -= more
            typed += commands(card, profile, more)
    if missing:
        said.append(
            f"There can be {needed - missing} at most: ask for fewer with ranks_per_node=N, or for "
            "another profile"
        )
    if typed:
        said += ["To cut them, type", *(f"  sudo {command}" for command in typed)]
    off = [card.index for card in cards if card.mig is False]
    if typed and off:
        said.append(_PENDING.format(index=off[0]))
    return "\n".join(said)


def most_of(card: GpuCard, profile: str, unknown: int) -> int:
    """The most slices of a profile on a GPU; `unknown` for an unknown model."""
    models = models_of(card.name)
    if card.mig is None:
        return 0
    known = [model.profiles[profile] for model in models if profile in model.profiles]
    return known[0] if known else 0 if models else unknown


def commands(card: GpuCard, profile: str, more: int) -> list[str]:
    """The commands that make so many `more` slices; slices of other profiles are removed first."""
    tool, index = "nvidia-smi", card.index
    own = len(slices_of((card,), profile))
    typed = [] if card.mig else [f"{tool} -i {index} -mig 1"]
    if len(card.slices) > own:
        typed += [f"{tool} mig -i {index} -dci", f"{tool} mig -i {index} -dgi"]
        more += own
    return [*typed, f"{tool} mig -i {index} -cgi {','.join([profile] * more)} -C"]


def _state(card: GpuCard) -> str:
    if card.mig is None:
        return "has no MIG"
    if not card.mig:
        return "has MIG off"
    profiles = [each.profile for each in card.slices]
    counts = [f"{profiles.count(each)} × {each}" for each in dict.fromkeys(profiles)]
    return f"is cut into {', '.join(counts)}" if counts else "has MIG on and no slices"
