"""The kernels that front ends offer: installed with the defaults of their pools, listed, taken away.

Only kernels that were installed here are replaced or removed.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyward_nb.options.option_line import parse_settings
from skyward_nb.words.errors import OptionError
from skyward_nb.words.masking import masked_setting

NAME = "python-on-a-pool"
TITLE = "Python on a pool"
_OURS = "skyward_nb"
_VALUES = ("--name", "--display-name", "--prefix")
_FLAGS = ("--user", "--sys-prefix")


@dataclass(frozen=True)
class Installation:
    """A kernel to be installed: its names, where, and the defaults of its options as one line.

    `prefix` None is the user's own folder.
    """

    name: str
    title: str
    prefix: str | None
    options: str = ""


def read(words: Sequence[str]) -> Installation:
    """The words of a command line; raises `OptionError`."""
    given: dict[str, str] = {}
    rest: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        key, equals, value = word.partition("=")
        if key in _FLAGS and not equals:
            given[key] = "yes"
        elif key in _VALUES:
            if not equals:
                value = waiting.pop(0) if waiting else ""
            if not value:
                raise OptionError(key, f"{key} needs a value")
            given[key] = value
        else:
            rest.append(word)
    settings = {option: text for option, text in parse_settings(shlex.join(rest)).items() if text}
    for option, text in settings.items():
        if masked_setting(option, text) != text:
            raise OptionError(
                option,
                f"{option}= has a secret, and a kernel's file and name are read by others: give it to the "
                "notebook's own environment, or with %sky config in the notebook",
            )
    options = shlex.join(f"{option}={text}" for option, text in settings.items())
    name = given.get("--name", NAME)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise OptionError("name", f"--name {name}: letters, digits, dots, hyphens and underscores")
    return Installation(
        name.lower(),
        given.get("--display-name", f"{TITLE} ({options})" if options else TITLE),
        _prefix(given),
        options,
    )


def _prefix(given: dict[str, str]) -> str | None:
    places = [each for each in ("--user", "--sys-prefix", "--prefix") if each in given]
    if len(places) > 1:
        raise OptionError("prefix", f"{' and '.join(places)}: state one of them")
    if "--prefix" in given:
        return given["--prefix"]
    is_own = sys.prefix != sys.base_prefix or (Path(sys.prefix) / "conda-meta").is_dir()
    return sys.prefix if "--sys-prefix" in given or (is_own and not places) else None


def spec(asked: Installation) -> dict[str, Any]:
    """What `kernel.json` says."""
    # -P: files beside the notebook, such as random.py, do not stand before Python's own while this loads.
    argv = [sys.executable, "-P", "-Xfrozen_modules=off", "-m", "skyward_nb.kernel"]
    argv += ["-f", "{connection_file}"]
    if asked.options:
        # traitlets would take quotes away that stand at both ends.
        argv.append(f"--PoolKernel.options= {asked.options}")
    return {
        "argv": argv,
        "display_name": asked.title,
        "language": "python",
        "metadata": {"debugger": True, _OURS: {"options": asked.options}},
        "kernel_protocol_version": "5.5",
    }


def install(asked: Installation) -> str:
    """Install a kernel, in the place of one of the same name; in words where.

    Raises `OptionError` where another package's kernel has the name, OSError where it cannot be written.
    """
    from ipykernel.kernelspec import RESOURCES
    from jupyter_client.kernelspec import KernelSpecManager

    there = Path(asked.prefix or "") / "share" / "jupyter" / "kernels" / asked.name
    if asked.prefix is None:
        there = Path(KernelSpecManager().user_kernel_dir) / asked.name
    if (there / "kernel.json").exists() and not _is_ours(there):
        raise OptionError(
            "name", f"{there} is a kernel of another package: take another --name for this one"
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / asked.name
        shutil.copytree(RESOURCES, source, ignore=shutil.ignore_patterns("*.json"))
        (source / "kernel.json").write_text(json.dumps(spec(asked), indent=1))
        where = KernelSpecManager().install_kernel_spec(
            str(source), asked.name, user=asked.prefix is None, prefix=asked.prefix
        )
    return (
        f"installed {asked.title!r} in {where}\n"
        f"choose it as a notebook's kernel, or: jupyter execute --kernel_name={asked.name} FILE"
    )


def uninstall(words: Sequence[str]) -> str:
    """Take a kernel away; in words which one. Raises `OptionError` where there is none of this name."""
    if len(words) > 1:
        raise OptionError("name", f"one name is taken, not {' '.join(words)}")
    name = (words[0] if words else NAME).lower()
    found = _found()
    if name not in found:
        known = f"; there is {', '.join(found)}" if found else ": none is installed"
        raise OptionError("name", f"no kernel {name!r} was installed here{known}")
    shutil.rmtree(found[name])
    return f"removed {found[name]}"


def listed() -> str:
    """The kernels that were installed, a line each."""
    found = _found()
    if not found:
        return "none is installed: python -m skyward_nb.kernel install"
    return "\n".join(
        f"{name}  {_spec_at(folder)['display_name']}  {folder}" for name, folder in found.items()
    )


def _found() -> dict[str, Path]:
    from jupyter_client.kernelspec import KernelSpecManager

    folders = {
        name: Path(folder) for name, folder in KernelSpecManager().find_kernel_specs().items()
    }
    return {name: folder for name, folder in sorted(folders.items()) if _is_ours(folder)}


def _spec_at(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "kernel.json").read_text())


def _is_ours(folder: Path) -> bool:
    try:
        return _OURS in _spec_at(folder).get("metadata", {})
    except (OSError, ValueError):
        return False
