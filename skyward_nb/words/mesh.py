"""A mesh as text: `fsdp:2,tp:2`, or `[[2,2],["fsdp","tp"]]`. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from skyward_nb.words.errors import OptionError

Axes = tuple[tuple[str, int], ...]
"""Names of the axes and their sizes, the slowest first: rank = ((i·size₁) + j)·size₂ + k …"""

PARALLEL_AXES = ("dp", "fsdp", "tp")
"""The axes that `sky.parallelize` knows, in the order in which they nest."""

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_FORM = 'write its axes and their sizes: mesh=fsdp:2,tp:2, or mesh=[[2,2],["fsdp","tp"]]'


def parse_mesh(text: str) -> Axes:
    """Read a mesh in either form; raises `OptionError` for other texts, and for an axis named twice."""
    try:
        axes = _from_lists(text) if text.lstrip().startswith("[") else _from_pairs(text)
    except ValueError:
        raise OptionError("mesh", f"mesh={text}: {_FORM}") from None
    names = [name for name, _ in axes]
    for name, size in axes:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise OptionError("mesh", f"mesh={text}: {name!r} is not an axis name; {_FORM}")
        if names.count(name) > 1:
            raise OptionError("mesh", f"mesh={text}: the axis {name!r} is listed twice")
        if size < 1:
            raise OptionError("mesh", f"mesh={text}: the axis {name!r} needs a size of 1 or more")
    return axes


def _from_pairs(text: str) -> Axes:
    pairs = [part.partition(":") for part in text.split(",")]
    return tuple((name.strip(), int(size)) for name, _, size in pairs)


def _from_lists(text: str) -> Axes:
    """Names may lack their quotes, which an option line removes."""
    found = re.fullmatch(r"\s*\[\s*\[([^][]*)\]\s*,\s*\[([^][]*)\]\s*\]\s*", text)
    if found is None:
        raise ValueError(text)
    sizes = [int(size) for size in found[1].split(",")]
    names = [name.strip().strip("'\"") for name in found[2].split(",")]
    return tuple(zip(names, sizes, strict=True))


def other_axes(names: Iterable[str]) -> str:
    """Why models cannot be spread over axes of these names; "" if they can."""
    found = tuple(names)
    if found and set(found) <= set(PARALLEL_AXES):
        return ""
    has = ", ".join(found) or "axes without names"
    return (
        f"knows the axes {', '.join(PARALLEL_AXES)}, and the mesh has {has}: make the pool with "
        "mesh=fsdp:2,tp:2, or give mesh="
    )


def dtype_name(function: str, word: str) -> str:
    """`bfloat16` for `bf16`, as frameworks call it; raises ValueError, as `function` would, for others."""
    if word in _DTYPES.values():
        return word
    if word not in _DTYPES:
        raise ValueError(f"{function}: {word!r} is not one of {', '.join(_DTYPES)}")
    return _DTYPES[word]


def axes_of(axes: Axes, places: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Sizes and names of a mesh; without one, all `places` along `fsdp`, by 1 on `tp`."""
    axes = axes or (("fsdp", places), ("tp", 1))
    return tuple(size for _, size in axes), tuple(name for name, _ in axes)


def size_of(axes: Axes) -> int:
    """The number of ranks, or devices, of a mesh."""
    return math.prod(size for _, size in axes)


def spell_mesh(axes: Axes) -> str:
    """`fsdp:2,tp:2`."""
    return ",".join(f"{name}:{size}" for name, size in axes)


def part_of(axes: Axes, rank: int, world_size: int, whole: str = "tp") -> tuple[int, int]:
    """(index, count): the part of the data of one of `world_size` ranks, split along all axes but `whole`.

    A rank may have several places of the mesh, one after the other: those of its devices. The mesh
    is one that `uneven` finds nothing in.
    """
    if not axes:
        return rank, world_size
    parts = _parts(axes, rank, world_size, whole)
    return parts[0] // len(parts), _count(axes, whole) // len(parts)


def uneven(axes: Axes, world_size: int, whole: str = "tp") -> str:
    """Why data cannot be split over the ranks of a mesh: devices of one straddle parts; "" if it can."""
    every = [_parts(axes, rank, world_size, whole) for rank in range(world_size)]
    own = len(every[0])
    for rank, parts in enumerate(every):
        if parts != list(range(parts[0] // own * own, (parts[0] // own + 1) * own)):
            said = [
                f"rank {each} has {', '.join(map(str, every[each]))}"
                for each in sorted({0, rank, rank - 1} - {-1})
            ]
            return f"of the {_count(axes, whole)} parts of the data {'; '.join(said)}"
    return ""


def _parts(axes: Axes, rank: int, world_size: int, whole: str) -> list[int]:
    """The parts of the data that a rank's places have, in order."""
    each = max(1, size_of(axes) // world_size)
    places = range(rank * each, (rank + 1) * each)
    return sorted({_part(axes, place, whole) for place in places})


def _count(axes: Axes, whole: str) -> int:
    return math.prod(size for name, size in axes if name != whole)


def _part(axes: Axes, place: int, whole: str) -> int:
    part, below = 0, 1
    for name, size in reversed(axes):
        if name != whole:
            part += below * (place % size)
            below *= size
        place //= size
    return part
