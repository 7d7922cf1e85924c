"""What an environment on a node has to have, as text for an installer: ours, and what is asked for.

What runs here too is asked for at the version that runs here, where that is what is wanted, so that
values mean the same on both ends.
"""

from __future__ import annotations

import sys
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from skyward_nb.plugins.plugin_table import find_plugin, uses_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address
from skyward_nb.words.spec import PoolSpec

RUNNING = (
    "cloudpickle>=3.1,<4",
    "dill>=0.4",
    "ipython>=9,<10",
    "matplotlib-inline>=0.1.7",
    "msgspec>=0.20",
    "platformdirs>=4",
    "psutil>=6",
    "threadpoolctl>=3.5",
    "xxhash>=3.5",
)
"""What agent and ranks import of others."""

BESIDE = ("ipykernel>=7,<8", "ipywidgets>=8.1,<9", "packaging>=24", "tblib>=3.2")
"""What of our needs code of cells may import there, as it can here."""


def minor() -> str:
    """The minor version of Python that runs here, and has to run on every node."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_minor(image: Image) -> None:
    """Raise `OptionError` where an image asks for another minor version of Python than runs here."""
    if image.python and image.python.split(".")[:2] != minor().split("."):
        raise OptionError(
            "python",
            f"python={image.python}: this is Python {minor()}, and code of one minor version does not "
            f"run in another: leave python= out, or start the notebook or script with {image.python}",
        )


def image_of(spec: PoolSpec) -> Image:
    """The image of a pool, with what its frameworks need; what is asked for by name stays as asked."""
    asked = {name for text in spec.image.pip if (name := _name(text))}
    needed = [text for use in uses_of(spec) for text in find_plugin(use.name).image]
    return spec.image.having(pip=[text for text in needed if _name(text) not in asked])


def requirements(image: Image, *, exactly: bool = True) -> tuple[str, ...]:
    """All that an environment for this image needs; `exactly` at the versions that run here.

    Raises `OptionError` for what no node could install.
    """
    asked = [wanted(text, exactly=exactly) for text in image.pip]
    names = {_name(text) for text in image.pip}
    every = [text for text in (*RUNNING, *BESIDE) if _name(text) not in names]
    ours = [wanted(text, exactly=exactly) for text in every]
    # A bound of ours holds also for what is asked for by name.
    bounds = [text for text in (*RUNNING, *BESIDE) if _name(text) in names]
    return tuple(sorted({*asked, *ours, *bounds}))


def wanted(text: str, *, exactly: bool = True) -> str:
    """A requirement as a node can install it, `exactly` at the version that runs here if that fits.

    Local tags of versions (`2.13.0+cpu`) are left out: which build a node needs is its own affair.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        if "://" in text and not text.startswith(("-", "file:")):
            return text
        raise _unfit(text, str(error).partition("\n")[0]) from None
    if requirement.url:
        if requirement.url.startswith("file:"):
            raise _unfit(text, "a path of this machine")
        return str(requirement)
    requirement.specifier = _without_tags(requirement.specifier)
    if exactly and (here := _version_here(requirement)):
        requirement.specifier = SpecifierSet(f"=={here}")
    return str(requirement)


def _unfit(text: str, why: str) -> OptionError:
    return OptionError(
        "pip",
        f"pip={masked_address(text)}: {why}. A node installs packages by name or address, as in "
        "numpy>=2 or git+https://...; send modules of your own with includes=, and name an index "
        "with UV_DEFAULT_INDEX in env=",
    )


def _without_tags(specifiers: SpecifierSet) -> SpecifierSet:
    return SpecifierSet(",".join(str(_without_tag(each)) for each in specifiers))


def _without_tag(specifier: Specifier) -> Specifier:
    return Specifier(f"{specifier.operator}{specifier.version.partition('+')[0]}")


def _version_here(requirement: Requirement) -> str:
    """The version that runs here, where it came from an index and is what is wanted; else ""."""
    if requirement.marker is not None and not requirement.marker.evaluate():
        return ""
    try:
        found = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return ""
    version = Version(found.version)
    if version.is_devrelease or _is_own(found):
        return ""
    fits = requirement.specifier.contains(version.public, prereleases=True)
    return version.public if fits else ""


def _is_own(found: metadata.Distribution) -> bool:
    """Whether a package was installed from an address, or from a folder that is worked in."""
    return found.read_text("direct_url.json") is not None


def _name(text: str) -> str:
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement:
        return ""
