"""Accelerators as values: `sky.accelerators.A100(count=8)`, `sky.NVIDIA.A100`.

The names are those of `words/catalogue`, repeated for editors and type checkers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from skyward_nb.words import accelerators as words
from skyward_nb.words.catalogue import KINDS, kind_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.mig import models_of, parse_mig, slices_per_gpu
from skyward_nb.words.units import near_words


class AcceleratorChoice(msgspec.Struct, frozen=True):
    """Accelerators of each node, and with `mig` the profile of their slices.

    A call changes it: `A100(count=8)`, `A100(mig="3g.40gb")`.
    """

    accelerator: words.Accelerator
    mig: str | None = None

    def __call__(
        self,
        *,
        count: float | None = None,
        memory: str | int | None = None,
        form_factor: str | None = None,
        mig: str | None = None,
    ) -> AcceleratorChoice:
        """The same model, `count` of it on each node; `memory` in GB, or as in `"40GB"`.

        `mig` is the profile of slices that ranks get instead of whole ones. `count=0.5` is a half of one, as
        AWS rents it. Raises `OptionError` for parts that the model lacks.
        """
        more = [*filter(None, (form_factor, _gigabytes(memory)))]
        name = _read("-".join((self.name, *more))).name if more else self.name
        own = self.accelerator
        many = f"{own.count * own.part:g}" if count is None else str(count)
        chosen = words.counted(name, many)
        profile = self.mig if mig is None else _profile(mig)
        if profile:
            slices_per_gpu(profile, chosen)
        return AcceleratorChoice(chosen, profile)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.accelerator.name

    @property
    def count(self) -> int:
        """How many there are on each node."""
        return self.accelerator.count

    @property
    def maker(self) -> str | None:
        """The maker; None for an unknown model."""
        kind = kind_of(self.name)
        return kind.maker if kind else None

    @property
    def memory(self) -> int | None:
        """GB of memory of each, by its name or else the usual; None for an unknown model."""
        kind = kind_of(self.name)
        said = [int(word[:-2]) for word in self.name.split("-") if word[:-2].isdecimal()]
        return said[0] if said and kind and said[0] in kind.memory else kind and kind.memory[0]

    @property
    def mig_profiles(self) -> dict[str, int]:
        """The profiles of its MIG slices, and the number of each; empty without MIG."""
        found = models_of(self.name)
        return dict(found[0].profiles) if found else {}

    def __str__(self) -> str:
        return f"{self.accelerator}{f' mig={self.mig}' if self.mig else ''}"

    def __repr__(self) -> str:
        name = self.name.replace("-", "_")
        many = self.count * self.accelerator.part
        said = [f"count={many:g}"] if many != 1 else []
        said += [f"mig={self.mig!r}"] if self.mig else []
        return f"sky.accelerators.{name}({', '.join(said)})"


class _Named:
    """Accelerators of the catalogue as attributes, those of one maker or all of them."""

    _maker = ""

    if not TYPE_CHECKING:  # else every name would do for type checkers

        def __getattr__(self, name: str) -> AcceleratorChoice:
            kind = None if name.startswith("_") else kind_of(name)
            if kind is not None and self._maker in ("", kind.maker):
                return AcceleratorChoice(_read(name))
            near = near_words(name, dir(self)) or "; Custom(name) is of any name"
            if kind is not None:
                near = f": it is of {kind.maker}, sky.accelerators.{kind.maker}.{name}"
            whose = f"sky.accelerators.{self._maker}".rstrip(".")
            raise AttributeError(f"{whose} has no {name!r}{near}")

    def __dir__(self) -> list[str]:
        return [kind.name.replace("-", "_") for kind in KINDS if self._maker in ("", kind.maker)]

    def __repr__(self) -> str:
        return (
            f"<accelerators{f' of {self._maker}' if self._maker else ''}: {', '.join(dir(self))}>"
        )


class Nvidia(_Named):
    """Accelerators of NVIDIA."""

    _maker = "NVIDIA"

    K80: AcceleratorChoice
    M40: AcceleratorChoice
    M60: AcceleratorChoice
    P4: AcceleratorChoice
    P40: AcceleratorChoice
    P100: AcceleratorChoice
    V100: AcceleratorChoice
    T4: AcceleratorChoice
    T4G: AcceleratorChoice
    A2: AcceleratorChoice
    A10: AcceleratorChoice
    A10G: AcceleratorChoice
    A16: AcceleratorChoice
    A30: AcceleratorChoice
    A40: AcceleratorChoice
    A100: AcceleratorChoice
    A100_40GB: AcceleratorChoice
    A100_80GB: AcceleratorChoice
    A100X: AcceleratorChoice
    A800: AcceleratorChoice
    L2: AcceleratorChoice
    L4: AcceleratorChoice
    L20: AcceleratorChoice
    L40: AcceleratorChoice
    L40S: AcceleratorChoice
    H20: AcceleratorChoice
    H100: AcceleratorChoice
    H200: AcceleratorChoice
    H800: AcceleratorChoice
    GH200: AcceleratorChoice
    B100: AcceleratorChoice
    B200: AcceleratorChoice
    B300: AcceleratorChoice
    GB200: AcceleratorChoice
    GB300: AcceleratorChoice
    GTX_1060: AcceleratorChoice
    GTX_1070: AcceleratorChoice
    GTX_1080: AcceleratorChoice
    GTX_1080_Ti: AcceleratorChoice
    GTX_1650: AcceleratorChoice
    GTX_1660: AcceleratorChoice
    TITAN_V: AcceleratorChoice
    TITAN_Xp: AcceleratorChoice
    TITAN_RTX: AcceleratorChoice
    RTX_2060: AcceleratorChoice
    RTX_2070: AcceleratorChoice
    RTX_2080: AcceleratorChoice
    RTX_2080_Ti: AcceleratorChoice
    RTX_3050: AcceleratorChoice
    RTX_3060: AcceleratorChoice
    RTX_3060_Ti: AcceleratorChoice
    RTX_3070: AcceleratorChoice
    RTX_3070_Ti: AcceleratorChoice
    RTX_3080: AcceleratorChoice
    RTX_3080_Ti: AcceleratorChoice
    RTX_3090: AcceleratorChoice
    RTX_3090_Ti: AcceleratorChoice
    RTX_4050: AcceleratorChoice
    RTX_4060: AcceleratorChoice
    RTX_4060_Ti: AcceleratorChoice
    RTX_4070: AcceleratorChoice
    RTX_4070_Ti: AcceleratorChoice
    RTX_4080: AcceleratorChoice
    RTX_4090: AcceleratorChoice
    RTX_5050: AcceleratorChoice
    RTX_5060: AcceleratorChoice
    RTX_5060_Ti: AcceleratorChoice
    RTX_5070: AcceleratorChoice
    RTX_5070_Ti: AcceleratorChoice
    RTX_5080: AcceleratorChoice
    RTX_5090: AcceleratorChoice
    RTX_A2000: AcceleratorChoice
    RTX_A4000: AcceleratorChoice
    RTX_A4500: AcceleratorChoice
    RTX_A5000: AcceleratorChoice
    RTX_A5500: AcceleratorChoice
    RTX_A6000: AcceleratorChoice
    RTX_4000: AcceleratorChoice
    RTX_5000: AcceleratorChoice
    RTX_6000: AcceleratorChoice
    RTX_8000: AcceleratorChoice
    RTX_2000_Ada: AcceleratorChoice
    RTX_4000_Ada: AcceleratorChoice
    RTX_4500_Ada: AcceleratorChoice
    RTX_5000_Ada: AcceleratorChoice
    RTX_6000_Ada: AcceleratorChoice
    RTX_PRO_2000: AcceleratorChoice
    RTX_PRO_4000: AcceleratorChoice
    RTX_PRO_4500: AcceleratorChoice
    RTX_PRO_5000: AcceleratorChoice
    RTX_PRO_6000: AcceleratorChoice


class Amd(_Named):
    """Accelerators of AMD."""

    _maker = "AMD"

    MI50: AcceleratorChoice
    MI60: AcceleratorChoice
    MI100: AcceleratorChoice
    MI210: AcceleratorChoice
    MI250: AcceleratorChoice
    MI250X: AcceleratorChoice
    MI300A: AcceleratorChoice
    MI300X: AcceleratorChoice
    MI308X: AcceleratorChoice
    MI325X: AcceleratorChoice
    MI350X: AcceleratorChoice
    MI355X: AcceleratorChoice


class Aws(_Named):
    """Accelerators of AWS."""

    _maker = "AWS"

    Inferentia: AcceleratorChoice
    Inferentia2: AcceleratorChoice
    Trainium: AcceleratorChoice
    Trainium2: AcceleratorChoice
    Trainium3: AcceleratorChoice


class Google(_Named):
    """Accelerators of Google."""

    _maker = "Google"

    TPUv2: AcceleratorChoice
    TPUv3: AcceleratorChoice
    TPUv4: AcceleratorChoice
    TPUv5e: AcceleratorChoice
    TPUv5p: AcceleratorChoice
    TPUv6e: AcceleratorChoice
    TPU7x: AcceleratorChoice


class Intel(_Named):
    """Accelerators of Intel."""

    _maker = "Intel"

    Gaudi: AcceleratorChoice
    Gaudi2: AcceleratorChoice
    Gaudi3: AcceleratorChoice


class Accelerators(Nvidia, Amd, Aws, Google, Intel):
    """All known accelerators, by name, and their makers."""

    _maker = ""

    NVIDIA: Nvidia = Nvidia()
    AMD: Amd = Amd()
    AWS: Aws = Aws()
    Google: Google = Google()
    Intel: Intel = Intel()

    def Custom(self, name: str, *, count: float = 1) -> AcceleratorChoice:  # noqa: N802 - as models are
        """An accelerator with its driver's name for it; raises `OptionError` for a count of none."""
        if not re.fullmatch(r"\w[\w .\-]*", name):
            raise OptionError("accelerator", f"{name!r} is not an accelerator's name")
        return AcceleratorChoice(words.counted(name, str(count)))


accelerators: Accelerators = Accelerators()
Accelerator: Accelerators = accelerators
NVIDIA: Nvidia = accelerators.NVIDIA


def chosen(value: str | AcceleratorChoice | None) -> AcceleratorChoice | None:
    """The accelerators of an argument, which is a text or a value; None for none.

    Raises `OptionError` for other values.
    """
    given: Any = value
    if isinstance(given, str):
        found = words.parse_accelerator(given)
        return found and AcceleratorChoice(found)
    if given is None or isinstance(given, AcceleratorChoice):
        return given
    raise OptionError(
        "accelerator",
        f"accelerator= takes 'A100:8' or sky.accelerators.A100(count=8), not {type(given).__name__}",
    )


def _read(name: str) -> words.Accelerator:
    found = words.parse_accelerator(name)
    assert found is not None
    return found


def _gigabytes(memory: Any) -> str:
    return "" if memory is None else f"{memory}GB" if isinstance(memory, int) else str(memory)


def _profile(mig: Any) -> str | None:
    if not isinstance(mig, str):
        raise OptionError("mig", f"mig={mig!r}: all slices have one profile, such as mig='3g.40gb'")
    return parse_mig(mig)
