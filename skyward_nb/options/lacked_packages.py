"""Which packages code needs that nodes of a new pool will lack, by what is installed here. Pure but for that look."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from skyward_nb.bootstrap.requirements import image_of, requirements
from skyward_nb.system.distributions import distribution_of
from skyward_nb.words.spec import PoolSpec

_CODE = (".py", ".so", ".pyd")
_THERE = frozenset({*sys.stdlib_module_names, "skyward_nb", "__main__"})


def lacked_note(modules: Iterable[str], spec: PoolSpec) -> str:
    """What to type for the modules that nodes of this spec will lack, in words; "" if they lack none."""
    lacks = lacked_packages(modules, spec)
    if not lacks:
        return ""
    packages = ",".join(dict.fromkeys(lacks.values()))
    names = ", ".join(lacks)
    return (
        f"nodes will not have {names}, which this code uses: pip={packages} on the line installs it"
    )


def lacked_packages(modules: Iterable[str], spec: PoolSpec) -> dict[str, str]:
    """By module that nodes will lack, the package that brings it.

    Nothing is said of an interpreter that is there, nor where packages are asked for whose needs are not known here.
    """
    if not spec.is_elsewhere or spec.image.interpreter is not None:
        return {}
    asked = sorted({each.partition(".")[0] for each in modules} - _THERE)
    if not asked:
        return {}
    there = _with_needs(requirements(image_of(spec)))
    if there is None:
        return {}
    asked = [each for each in asked if canonicalize_name(each) not in there]
    brought = {module for name in there for module in _modules_of(name)} if asked else set[str]()
    lacks = {module: _package_of(module) for module in asked if module not in brought}
    return {module: package for module, package in lacks.items() if package}


def _modules_of(package: str) -> set[str]:
    """The modules that a package has here, by their first names."""
    known = importlib.metadata.distribution(package)
    # `files` of torch, an object for each of 10,000, take a third of a second.
    listed = (known.read_text("RECORD") or "").splitlines() or map(str, known.files or ())
    paths = [each.partition(",")[0] for each in listed]
    return {each.partition("/")[0].partition(".")[0] for each in paths if each.endswith(_CODE)}


def _package_of(module: str) -> str:
    """The package that brings a module; "" where that is not known here.

    A module that is here and of no package may be somebody's own, and travels. Of one that is not here only the name
    is known, and a package of that name may be anybody's.
    """
    try:
        return canonicalize_name(importlib.metadata.metadata(module)["Name"])
    except importlib.metadata.PackageNotFoundError:
        package = distribution_of(module)
    return "" if package == module else package


def _with_needs(texts: Iterable[str]) -> set[str] | None:
    """The packages that these requirements install, and what those need; None if that is not known here."""
    known: set[tuple[str, str]] = set()
    waiting = [(text, "") for text in texts]
    while waiting:
        text, extra = waiting.pop()
        try:
            requirement = Requirement(text)
        except ValueError:
            return None
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        new = {(name, each) for each in ("", *requirement.extras)} - known
        known |= new
        if not new:
            continue
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            return None
        waiting += [(need, each) for _, each in new for need in needs]
    return {name for name, _ in known}
