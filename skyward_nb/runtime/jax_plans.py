"""Which axis of which array of JAX is divided along which axis of a mesh.

Pure: shapes, names and sizes in, tuples of mesh axes out. Any of them is right, as the compiler adds
the collectives; a rule only has to keep them few. The larger of the last two axes along `tp` splits a
layer that widens by what it gives, and the one after it, which narrows, by what it takes, so that between
the two nothing is gathered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from skyward_nb.runtime.plan_words import WORDS, near_name, unknown_word
from skyward_nb.words.mesh import PARALLEL_AXES

Spec = tuple[Any, ...]
"""A mesh axis, several or None for each axis of an array, as in a `PartitionSpec`."""


@dataclass(frozen=True)
class Leaf:
    """One array: its full name, its shape, whether it is of floats, and the model's own spec for it."""

    name: str
    shape: tuple[int, ...]
    is_float: bool = True
    own: Spec | None = None


@dataclass
class Placement:
    """Where each array goes, and what had to stay `whole` along which mesh axis."""

    specs: list[Spec] = field(default_factory=list)
    whole: dict[str, list[Leaf]] = field(default_factory=dict)


def place(
    leaves: Sequence[Leaf], plan: Mapping[str, Any] | None, sizes: Mapping[str, int]
) -> Placement:
    """How arrays lie on a mesh with axes of these sizes.

    Raises ValueError for a plan that names no array, has another word, or cannot be followed.
    """
    wanted = _by_leaf(leaves, plan)
    found = Placement()
    for leaf in leaves:
        own = leaf.own if plan is None else None
        word = wanted.get(leaf.name, own if plan is None else "replicate")
        if word is not None and not isinstance(word, str):
            found.specs.append(_checked(leaf, tuple(word), sizes))
            continue
        spec: list[str | None] = [None] * len(leaf.shape)
        for axis, among in (("tp", _for_tp(leaf, word)), ("fsdp", _for_fsdp(leaf))):
            size = sizes.get(axis, 1)
            if size == 1 or not among:
                continue
            fits = [at for at in among if spec[at] is None and leaf.shape[at] % size == 0]
            if fits:
                spec[fits[0]] = axis
            elif axis == "tp" and word is not None:
                raise ValueError(
                    f"sky.parallelize: {_said(leaf)} cannot be {word} with tp={size}: its axis "
                    f"{among[0]} is not a multiple of that"
                )
            else:
                found.whole.setdefault(axis, []).append(leaf)
        found.specs.append(tuple(spec))
    return found


def remark(placement: Placement, sizes: Mapping[str, int], most: int = 4) -> str:
    """A sentence on what stays whole; "" if nothing had to."""
    parts: list[str] = []
    for axis, leaves in placement.whole.items():
        named = ", ".join(map(_said, leaves[:most])) + f" and {len(leaves) - most} more" * (
            len(leaves) > most
        )
        parts.append(f"along {axis}={sizes[axis]} each device holds all of {named}")
    if not parts:
        return ""
    return f"sky.parallelize: {'; '.join(parts)}: no free axis is a multiple of the size"


def _for_tp(leaf: Leaf, word: str | None) -> list[int]:
    """The axes that may be divided along `tp`, the best first."""
    last = len(leaf.shape) - 1
    if word == "replicate" or last < 0 or not leaf.is_float:
        return []
    if word in ("colwise", "gather"):
        return [last]
    if last < 1:
        return []
    if word == "rowwise":
        return [last - 1]
    return sorted((last, last - 1), key=lambda at: -leaf.shape[at])


def _for_fsdp(leaf: Leaf) -> list[int]:
    if len(leaf.shape) < 2 or not leaf.is_float:
        return []
    return sorted(range(len(leaf.shape)), key=lambda at: -leaf.shape[at])


def _by_leaf(leaves: Sequence[Leaf], plan: Mapping[str, Any] | None) -> dict[str, Any]:
    """The word or spec for each array that a plan names; what comes later in it goes before."""
    found: dict[str, Any] = {}
    for pattern, word in (plan or {}).items():
        if isinstance(word, str) and word not in WORDS:
            raise unknown_word(pattern, word, "PartitionSpec of jax.sharding")
        if not isinstance(word, str | tuple) and type(word).__name__ != "PartitionSpec":
            raise ValueError(
                f"sky.parallelize: {pattern}: a {type(word).__name__} is not a word or a "
                "PartitionSpec of jax.sharding"
            )
        named = [leaf.name for leaf in leaves if _matches(pattern, leaf.name)]
        if not named:
            raise ValueError(
                f"sky.parallelize: no layer or array is named {pattern!r}"
                f"{_near(pattern, [leaf.name for leaf in leaves])}"
            )
        found |= dict.fromkeys(named, word)
    return found


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern names an array, or what it is in; a `*` stands for one part between dots."""
    wanted = pattern.split(".") if pattern else []
    parts = name.split(".")
    return len(wanted) <= len(parts) and all(map(fnmatchcase, parts, wanted))


def _near(pattern: str, names: Iterable[str]) -> str:
    there = {name for each in names for name in (each, each.rpartition(".")[0]) if name}
    return near_name(pattern, sorted(there))


def _checked(leaf: Leaf, spec: Spec, sizes: Mapping[str, int]) -> Spec:
    """A spec that is asked for, without those of our axes that the mesh has not; else ValueError."""
    if len(spec) > len(leaf.shape):
        raise ValueError(
            f"sky.parallelize: {_said(leaf)} has {len(leaf.shape)} axes, and the PartitionSpec for "
            f"it {len(spec)}"
        )
    found: list[Any] = []
    for at, each in enumerate(spec):
        names = each if isinstance(each, tuple) else (each,) if each else ()
        for name in names:
            if name not in sizes and name not in PARALLEL_AXES:
                raise ValueError(
                    f"sky.parallelize: the PartitionSpec for {_said(leaf)} names the axis {name!r}, "
                    f"and the mesh has {', '.join(sizes) or 'none'}: give plan= with those"
                )
        there = tuple(name for name in names if name in sizes)
        count = math.prod(sizes[name] for name in there)
        if leaf.shape[at] % count:
            raise ValueError(
                f"sky.parallelize: axis {at} of {_said(leaf)} cannot be divided along "
                f"{', '.join(there)} into {count} equal parts"
            )
        found.append(there if len(there) > 1 else there[0] if there else None)
    return tuple(found)


def _said(leaf: Leaf) -> str:
    return f"{leaf.name or 'the array'} {leaf.shape}"
