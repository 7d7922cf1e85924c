"""Accelerators by name: their makers, their sizes of memory, their other names. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from skyward_nb.words.errors import OptionError


@dataclass(frozen=True)
class AcceleratorModel:
    """A model of accelerators of a `maker`, and the GB of memory of its variants, the usual first."""

    name: str
    maker: str
    memory: tuple[int, ...]
    aliases: tuple[str, ...] = ()


# fmt: off
_MEMORY = {
    "NVIDIA": {
        "K80": (12,), "M40": (24, 12), "M60": (8,), "P4": (8,), "P40": (24,), "P100": (16, 12),
        "V100": (16, 32), "T4": (16,), "T4G": (16,),
        "A2": (16,), "A10": (24,), "A10G": (24,), "A16": (16,), "A30": (24,), "A40": (48,),
        "A100": (80, 40, 64), "A100X": (80,), "A800": (80, 40),
        "L2": (24,), "L4": (24,), "L20": (48,), "L40": (48,), "L40S": (48,),
        "H20": (96, 141), "H100": (80, 94, 96, 64), "H200": (141,), "H800": (80,),
        "GH200": (96, 144, 480),  # the last is its CPU's: drivers name one so
        "B100": (192,), "B200": (180, 192), "B300": (288,), "GB200": (186, 192), "GB300": (288,),
        "GTX-1060": (6, 3), "GTX-1070": (8,), "GTX-1080": (8,), "GTX-1080-Ti": (11,),
        "GTX-1650": (4,), "GTX-1660": (6,),
        "TITAN-V": (12, 32), "TITAN-Xp": (12,), "TITAN-RTX": (24,),
        "RTX-2060": (6, 12), "RTX-2070": (8,), "RTX-2080": (8,), "RTX-2080-Ti": (11,),
        "RTX-3050": (8, 6, 4), "RTX-3060": (12, 8, 6), "RTX-3060-Ti": (8,),
        "RTX-3070": (8,), "RTX-3070-Ti": (8,),
        "RTX-3080": (10, 12, 16), "RTX-3080-Ti": (12, 16), "RTX-3090": (24,), "RTX-3090-Ti": (24,),
        "RTX-4050": (6,), "RTX-4060": (8,), "RTX-4060-Ti": (8, 16), "RTX-4070": (12, 8),
        "RTX-4070-Ti": (12, 16), "RTX-4080": (16, 12), "RTX-4090": (24, 16),
        "RTX-5050": (8,), "RTX-5060": (8,), "RTX-5060-Ti": (16, 8), "RTX-5070": (12, 8),
        "RTX-5070-Ti": (16, 12), "RTX-5080": (16,), "RTX-5090": (32, 24),
        "RTX-A2000": (6, 12, 8, 4), "RTX-A4000": (16, 8), "RTX-A4500": (20, 16),
        "RTX-A5000": (24, 16), "RTX-A5500": (24, 16), "RTX-A6000": (48,),
        "RTX-4000": (8,), "RTX-5000": (16,), "RTX-6000": (24,), "RTX-8000": (48,),
        "RTX-2000-Ada": (16, 8), "RTX-4000-Ada": (20, 12), "RTX-4500-Ada": (24,),
        "RTX-5000-Ada": (32, 16), "RTX-6000-Ada": (48,),
        "RTX-PRO-2000": (16, 8), "RTX-PRO-4000": (24, 16), "RTX-PRO-4500": (32,),
        "RTX-PRO-5000": (48, 72, 24), "RTX-PRO-6000": (96,),
    },
    "AMD": {
        "MI50": (16, 32), "MI60": (32,), "MI100": (32,),
        "MI210": (64,), "MI250": (128,), "MI250X": (128,),
        "MI300A": (128,), "MI300X": (192,), "MI308X": (192,),
        "MI325X": (256,), "MI350X": (288,), "MI355X": (288,),
    },
    "AWS": {
        "Inferentia": (8,), "Inferentia2": (32,),
        "Trainium": (32,), "Trainium2": (96,), "Trainium3": (144,),
    },
    "Google": {
        "TPUv2": (16,), "TPUv3": (32,), "TPUv4": (32,), "TPUv5e": (16,), "TPUv5p": (95,),
        "TPUv6e": (32,), "TPU7x": (192,),
    },
    "Intel": {
        "Gaudi": (32,), "Gaudi2": (96,), "Gaudi3": (128,),
    },
}
# fmt: on
"""GB of memory by maker and name, as makers state it; a row is a family. Laptop variants are included."""

_ALIASES = {
    "Gaudi": ("Gaudi1",),
    "Inferentia": ("Inferentia1", "Inf1"),
    "Inferentia2": ("Inf2",),
    "TPU7x": ("TPUv7", "Ironwood"),
    "TPUv6e": ("Trillium",),
    "Trainium": ("Trainium1", "Trn1"),
    "Trainium2": ("Trn2",),
    "Trainium3": ("Trn3",),
    "V100": ("V100S",),
}
_BARE = re.compile(r"(?:GTX-|RTX-)(\d\d[5-9]0(?:-Ti)?)|RTX-(A\d{4})")
"""Graphics cards that are known by the rest of their names: 4090, A6000."""

_MAKERS = ("nvidia", "amd", "aws", "google", "intel", "habana")
_LINES = ("tesla", "geforce", "quadro", "instinct")
"""Words in front of a name that do not matter."""

_BETWEEN = re.compile(r"[\s._\-]+")
_GIGABYTES = re.compile(r"(\d+)(?:g|gb|gib)?")


def _kinds() -> Iterator[AcceleratorModel]:
    for maker, rows in _MEMORY.items():
        for name, memory in rows.items():
            bare = _BARE.fullmatch(name)
            short = [part for part in bare.groups() if part] if bare else []
            yield AcceleratorModel(name, maker, memory, (*_ALIASES.get(name, ()), *short))


KINDS = tuple(_kinds())


def _key(words: list[str] | str) -> str:
    return "".join(words).replace("-", "").lower()


_BY_KEY = {_key(word): kind for kind in KINDS for word in (kind.name, *kind.aliases)}


def kind_of(name: str) -> AcceleratorModel | None:
    """The model of an accelerator of this name; None if it is unknown."""
    return _split(name)[0]


def canonical(name: str) -> str:
    """The standard form of a name: `A100-80GB` for `nvidia.a100_80g`, `RTX-4090` for `4090`.

    An unknown name only loses its maker. Raises `OptionError` for an unknown name without a maker that
    resembles a known one, and for a size of memory that a known model does not have.
    """
    kind, rest, is_made_known = _split(name)
    if kind is None:
        if not is_made_known:
            _check_not_near(name)
        return "-".join(rest)
    said = [word for word in rest if not _GIGABYTES.fullmatch(word.lower())]
    memory = [found[1] for word in rest if (found := _GIGABYTES.fullmatch(word.lower()))]
    wrong = [each for each in memory if int(each) not in kind.memory]
    if wrong or len(memory) > 1:
        has = " or ".join(map(str, sorted(kind.memory)))
        raise OptionError("accelerator", f"accelerator={name}: {kind.name} has {has} GB of memory")
    return "-".join([kind.name, *map(str.upper, said), *(f"{each}GB" for each in memory)])


def _split(name: str) -> tuple[AcceleratorModel | None, list[str], bool]:
    """(the model, or None; the other words of the name; whether its maker is named)."""
    words = [word for word in _BETWEEN.split(name) if word]
    is_made_known = len(words) > 1 and words[0].lower() in _MAKERS
    words = words[is_made_known:]
    own = words[1:] if len(words) > 1 and words[0].lower() in _LINES else words
    for end in range(len(own), 0, -1):
        if kind := _BY_KEY.get(_key(own[:end])):
            return kind, own[end:], is_made_known
    return None, words, is_made_known


def _check_not_near(name: str) -> None:
    known = {_key(word): word for kind in KINDS for word in (kind.name, *kind.aliases)}
    near = difflib.get_close_matches(_key(_BETWEEN.split(name)), list(known), n=2, cutoff=0.7)
    if near:
        raise OptionError(
            "accelerator",
            f"accelerator={name}: there is no {name} among the models known here; did you mean "
            f"{' or '.join(known[each] for each in near)}? One that is newer is written with its "
            f"maker: {_BY_KEY[near[0]].maker}-{name}",
        )
