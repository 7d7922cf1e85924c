"""The requirements of a node's environment as text for an installer: this package's and the image's.

Packages that are installed here, too, are pinned to the version here if it fits, so that values mean the
same on both ends.
"""

from __future__ import annotations

import sys
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from skyward_nb.bootstrap import volumes
from skyward_nb.plugins.plugin_table import find_plugin, uses_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address
from skyward_nb.words.simulation import on_cpu
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
"""Packages that agent and ranks import."""

BESIDE = ("ipykernel>=6.29,<8", "ipywidgets>=8.1,<9", "packaging>=24", "tblib>=3.2")
"""Other packages that code of cells may import there, as it can here."""


def minor() -> str:
    """The minor version of Python here, which every node has to have."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_minor(image: Image) -> None:
    """Raise `OptionError` if an image asks for another minor version of Python than this one."""
    if image.python and image.python.split(".")[:2] != minor().split("."):
        raise OptionError(
            "python",
            f"python={image.python}: this is Python {minor()}, and code of one minor version does not "
            f"run in another: leave python= out, or start the notebook or script with {image.python}",
        )


def image_of(spec: PoolSpec) -> Image:
    """The image of a pool, with what its frameworks and volumes need; packages named by the user stay as named."""
    image = on_cpu(spec.image) if spec.simulate else spec.image
    asked = {name for text in image.pip if (name := package_name(text))}
    needed = [text for use in uses_of(spec) for text in find_plugin(use.name).image]
    apt = volumes.PACKAGES if any(each.bucket for each in spec.volumes) else ()
    return image.having(pip=[text for text in needed if package_name(text) not in asked], apt=apt)


def requirements(image: Image, *, exactly: bool = True) -> tuple[str, ...]:
    """All that an environment for this image needs; `exactly` pins the versions that run here.

    Raises `OptionError` for a requirement that no node can install.
    """
    asked = [wanted(text, exactly=exactly) for text in image.pip]
    names = {package_name(text) for text in image.pip}
    every = [text for text in (*RUNNING, *BESIDE) if package_name(text) not in names]
    ours = [wanted(text, exactly=exactly) for text in every]
    # This package's bounds hold also for packages that are asked for by name.
    bounds = [text for text in (*RUNNING, *BESIDE) if package_name(text) in names]
    return tuple(sorted({*asked, *ours, *bounds}))


def wanted(text: str, *, exactly: bool = True) -> str:
    """A requirement that a node can install; `exactly` pins the version that runs here, if it fits.

    Local tags of versions (`2.13.0+cpu`) are left out: a node may need another build.
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
    tagless = (f"{each.operator}{each.version.partition('+')[0]}" for each in requirement.specifier)
    requirement.specifier = SpecifierSet(",".join(tagless))
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


def _version_here(requirement: Requirement) -> str:
    """The version that runs here if it came from an index and fits the requirement; else ""."""
    if requirement.marker is not None and not requirement.marker.evaluate():
        return ""
    try:
        found = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return ""
    version = Version(found.version)
    # A package with a direct_url.json was installed from an address, or from a working folder.
    if version.is_devrelease or found.read_text("direct_url.json") is not None:
        return ""
    fits = requirement.specifier.contains(version.public, prereleases=True)
    return version.public if fits else ""


def package_name(text: str) -> str:
    """The name of a requirement as indexes spell it; "" for what is no plain requirement."""
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement:
        return ""
