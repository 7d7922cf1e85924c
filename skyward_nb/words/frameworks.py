"""The table of frameworks, and the reading of their words. Pure.

`torch`, `jax`, `keras:jax`, `torch,huggingface`. A framework that runs on another one includes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from skyward_nb.words.errors import OptionError


class Framework(msgspec.Struct, frozen=True):
    """A framework by `name`; it runs on one of its `variants`, or on what it `needs`.

    Code that imports one of `packages` needs it. `again` says, by variant or "", which objects users must make again after the ranks formed a new group.
    """

    name: str
    packages: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    again: dict[str, str] = {}


FRAMEWORKS = (
    Framework(
        "torch",
        ("torch", "lightning", "pytorch_lightning"),
        ("pytorch",),
        again={
            "": "models wrapped for the old group (DDP, FSDP, sky.parallelize) must be made again"
        },
    ),
    Framework(
        "jax",
        ("jax", "jaxlib", "flax", "optax", "equinox", "haiku"),
        again={
            "": "meshes, functions compiled for them, and arrays that are spread over ranks, must be "
            "made again"
        },
    ),
    Framework(
        "tensorflow",
        ("tensorflow", "tf_keras"),
        ("tf",),
        again={
            "": "an earlier strategy still works if all ranks called the same functions with it, "
            "else make it again"
        },
    ),
    Framework(
        "keras",
        ("keras",),
        variants=("jax", "torch", "tensorflow"),
        again={"jax": "Keras models must be made again"},
    ),
    Framework(
        "huggingface",
        (
            "transformers",
            "accelerate",
            "datasets",
            "peft",
            "trl",
            "diffusers",
            "sentence_transformers",
        ),
        ("transformers", "hf"),
        needs=("torch",),
    ),
)
"""In the order of their setup."""

WORDS = tuple(
    dict.fromkeys(
        word
        for each in FRAMEWORKS
        for word in (each.name, *(f"{each.name}:{variant}" for variant in each.variants))
    )
)
"""All words for frameworks, except aliases."""

AUTO = ("auto",)
"""The value of `framework=auto` before the choice."""

_BY_WORD = {word: each for each in FRAMEWORKS for word in (each.name, *each.aliases)}


def parse_frameworks(text: str) -> tuple[str, ...]:
    """Read `torch`, `keras:jax`, `torch,huggingface` or `none` into words of `WORDS`, each once.

    `keras` alone stays as it is: its backend is chosen elsewhere. `auto` is `AUTO`. Raises `OptionError`.
    """
    parts = [part.strip().lower() for part in text.split(",")]
    if parts == ["none"]:
        return ()
    if "none" in parts:
        raise OptionError("framework", f"framework={text}: none cannot be combined")
    if "auto" in parts:
        if parts != ["auto"]:
            raise OptionError("framework", f"framework={text}: auto chooses all of them itself")
        return AUTO
    words = tuple(dict.fromkeys(map(_read, parts)))
    kerases = [word for word in words if word.partition(":")[0] == "keras"]
    if len(kerases) > 1:
        raise OptionError("framework", f"framework={text}: a process has one Keras, not two")
    return words


def _read(part: str) -> str:
    name, colon, variant = part.partition(":")
    found = _BY_WORD.get(name)
    if name == "mig":
        raise OptionError("framework", "framework=mig: slices are asked for as mig=3g.40gb")
    if found is None:
        raise OptionError(
            "framework", f"framework={part}: choose one of {', '.join((*WORDS, *AUTO, 'none'))}"
        )
    variant = _BY_WORD[variant].name if variant in _BY_WORD else variant
    if colon and variant not in found.variants:
        known = " or ".join(f"{name}:{each}" for each in found.variants) or name
        raise OptionError("framework", f"framework={part}: write {known}")
    return f"{found.name}:{variant}" if colon else found.name


def with_what_they_need(words: Iterable[str]) -> dict[str, str]:
    """All frameworks of these words with their variants or "", in the order of their setup."""
    asked: dict[str, str] = {}
    for word in words:
        name, _, variant = word.partition(":")
        asked[name] = variant
        for needed in (*_BY_WORD[name].needs, *((variant,) if variant else ())):
            asked.setdefault(needed, "")
    return {each.name: asked[each.name] for each in FRAMEWORKS if each.name in asked}


def made_again(words: Iterable[str], regained: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What users must make again in a new group, for these frameworks and those they run on.

    Of those in `regained`, what it says instead.
    """
    wanted, regained = with_what_they_need(words), regained or {}
    return tuple(
        regained.get(each.name) or each.again[variant]
        for each in FRAMEWORKS
        if (variant := wanted.get(each.name)) is not None and variant in each.again
    )


def lacking(wanted: Iterable[str], have: Iterable[str]) -> tuple[str, ...]:
    """The wanted frameworks that are not among these, or those they run on."""
    there = with_what_they_need(have)
    parts = [(word, *word.partition(":")[::2]) for word in wanted]
    return tuple(
        word
        for word, name, variant in parts
        if name not in there or variant not in ("", there[name])
    )
