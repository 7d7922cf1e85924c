"""Checks that this machine has what an image asks for: local ranks run in the notebook's own Python."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from skyward_nb.bootstrap.apt import FORMAT, installed
from skyward_nb.words.errors import MissingDependency, OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address

_LIMIT = 20


def check_image(image: Image) -> None:
    """Raise `OptionError` or `MissingDependency` if this machine lacks a part of an image that is not installed.

    Packages of `pip=` that it lacks are: `package_folder`.
    """
    _check_python(image.python)
    _check_interpreter(image.interpreter)
    lacking(image.pip)
    if image.apt:
        _check_apt(image.apt)


def _check_python(asked: str | None) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if asked and asked.split(".")[:2] != here.split("."):
        raise OptionError(
            "python",
            f"python={asked}: provider=local runs ranks with this Python, {here}. "
            f"Leave python= out, or start the notebook or script with Python {asked}.",
        )


def _check_interpreter(asked: str | None) -> None:
    if asked is None:
        return
    if not is_this_python(asked):
        raise OptionError(
            "interpreter",
            f"interpreter={asked}: provider=local runs ranks with this Python, {sys.executable}. "
            "Leave it out (python= on a line), or start the notebook or script with that one.",
        )


def is_this_python(asked: str) -> bool:
    """Whether the program of this path is the Python that runs here."""
    path = Path(asked).expanduser()
    # The links of two environments may lead to one interpreter.
    return path.parent.resolve() / path.name in _names_of(Path(sys.executable))


def _names_of(python: Path) -> set[Path]:
    """The names of an interpreter within its folder."""
    folder = python.parent.resolve()
    return {each for each in folder.glob("python*") if each.samefile(python)}


def lacking(asked: Sequence[str]) -> dict[str, str]:
    """By requirement that this Python does not meet, what it has instead; raises `OptionError` for no package."""
    return {text: word for text in asked if (word := _lack(_read(text), set()))}


def _read(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        why = str(error).partition("\n")[0]
        raise OptionError(
            "pip",
            f"pip={masked_address(text)}: {why}. provider=local installs packages by name: "
            "as in numpy>=2",
        ) from None


def _lack(wanted: Requirement, known: set[tuple[str, str]]) -> str:
    """What this Python has instead of a requirement; "" if it meets the requirement.

    `known` are extras that are checked already.
    """
    if wanted.marker is not None and not wanted.marker.evaluate():
        return ""
    try:
        found = metadata.distribution(wanted.name)
    except metadata.PackageNotFoundError:
        return f"no {wanted.name}"
    if wanted.url and not _is_from(found, wanted.url):
        return f"{wanted.name} {found.version} from elsewhere"
    if not wanted.specifier.contains(found.version, prereleases=True):
        return f"{wanted.name} {found.version}"
    inner = (_lack(each, known) for each in _of_extras(wanted, found, known))
    return next(filter(None, inner), "")


def _of_extras(
    wanted: Requirement, found: metadata.Distribution, known: set[tuple[str, str]]
) -> Iterator[Requirement]:
    """The requirements of a requirement's extras, which may name further extras of the package."""
    for extra in sorted(wanted.extras):
        if (found.name, extra) in known:
            continue
        known.add((found.name, extra))
        for each in map(Requirement, found.requires or ()):
            mark = each.marker
            if mark and mark.evaluate({"extra": extra}) and not mark.evaluate({"extra": ""}):
                each.marker = None
                yield each


def _is_from(found: metadata.Distribution, url: str) -> bool:
    """Whether a package was installed from this address."""
    text = found.read_text("direct_url.json")
    origin = json.loads(text).get("url", "") if text else ""
    return bool(origin) and origin in url


def _check_apt(asked: Sequence[str]) -> None:
    tool = shutil.which("dpkg-query")
    if tool is None:
        raise OptionError(
            "apt",
            f"apt={','.join(asked)}: there is no dpkg-query on this machine, and provider=local "
            "installs nothing: install the same things in another way, and leave apt= out",
        )
    command = [tool, "--show", f"--showformat={FORMAT}"]
    answer = subprocess.run(  # noqa: S603 - Debian's own tool, found in PATH
        command, capture_output=True, text=True, timeout=_LIMIT, check=True
    )
    there = installed(answer.stdout)
    if lacking := [name for name in asked if name not in there]:
        install = f"sudo apt-get install {shlex.join(lacking)}"
        raise MissingDependency(", ".join(lacking), "apt=", install)
