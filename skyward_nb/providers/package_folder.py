"""Packages that ranks of this machine have and this Python lacks: a folder beside its own, made once by uv.

Nothing that this Python has is changed, or there twice: so values mean the same to the notebook and to ranks.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from skyward_nb.bootstrap import uv, version_locks
from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.providers.installed import lacking
from skyward_nb.words.errors import MissingDependency
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address

_LIMIT = 3600.0
_TO_INSTALL = re.compile(r"^ \+ (\S+?)==(\S+?)(?: \(from (\S+)\))?$", re.MULTILINE)
_TO_REMOVE = re.compile(r"^ - (\S+==\S+)", re.MULTILINE)
_CONSTRAINTS = "constraints.txt"
_LOCK = "packages.txt"
"""The file in such a folder that lists its packages, each at its version."""


async def folder_for(image: Image, heard: Callable[[str], None]) -> str:
    """The folder of the packages of an image that this Python lacks; "" if it lacks none.

    `heard` gets what the installer says. Raises `MissingDependency` with the installer's words, and
    `OptionError` for what names no package.
    """
    lacks = lacking(image.pip)
    if not lacks:
        return ""
    variables = uv.settings(image.env)
    listed = (await _uv(["pip", "freeze", "--python", sys.executable], variables))[1]
    # What was installed from a working folder or an address cannot be asked for by its version.
    there = [line for line in listed.splitlines() if re.match(r"[\w.-]+==", line)]
    parts = [sys.version, sys.prefix, there, uv.origins(variables), [*map(masked_address, lacks)]]
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    root = _root()
    if (root / name / _LOCK).exists():
        return str(root / name)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
    try:
        await _make(new, [*lacks], there, variables, heard)
        _put_in_place(new, root / name)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return str(root / name)


def packages_in(folder: str) -> list[str]:
    """The packages of such a folder, each at its version."""
    return (Path(folder) / _LOCK).read_text().splitlines() if folder else []


def _put_in_place(new: Path, final: Path) -> None:
    (new / _CONSTRAINTS).unlink()
    # Another process may have been first, with the same.
    if not final.exists():
        new.replace(final)


async def _make(
    new: Path,
    lacks: Sequence[str],
    there: Sequence[str],
    variables: Mapping[str, str],
    heard: Callable[[str], None],
) -> None:
    """Install into the folder `new` what these requirements need beside what is there."""
    constraints = new / _CONSTRAINTS
    constraints.write_text("\n".join(there))
    backend = f"--torch-backend={variables.get('UV_TORCH_BACKEND', 'auto')}"
    install = ["pip", "install", "--python", sys.executable, backend]
    asked = [*install, "--dry-run", "--constraint", str(constraints), "--requirements", "-"]
    heard(f"uv looks for {', '.join(map(masked_address, lacks))}")
    code, _, said = await _uv(asked, variables, "\n".join(lacks))
    if code or _TO_REMOVE.search(said):
        raise _refused(lacks, said)
    found = _TO_INSTALL.findall(said)
    packages = [
        f"{name} @ {address}" if address else f"{name}=={version}"
        for name, version, address in found
    ]
    heard(f"installing {', '.join(map(masked_address, packages))}")
    into = [*install, "--no-deps", "--target", str(new), "--requirements", "-"]
    code, _, said = await _uv(into, variables, "\n".join(packages))
    if code:
        raise _refused(lacks, said)
    (new / _LOCK).write_text("\n".join(f"{name}=={version}" for name, version, _ in found))


def _refused(lacks: Sequence[str], said: str) -> MissingDependency:
    shown = [masked_address(text) for text in lacks]
    here = ", ".join(dict.fromkeys(lacking(lacks).values()))
    error = MissingDependency(
        ", ".join(shown),
        "pip=",
        f"pip install {shlex.join(shown)}",
        f"this Python has {here}, and uv could not install it for ranks beside what is there",
    )
    error.add_note(last_words(said))
    return error


async def _uv(
    words: Sequence[str], variables: Mapping[str, str], given: str = ""
) -> tuple[int, str, str]:
    """The exit code of uv, its output and its messages."""
    from uv import find_uv_bin

    quiet = {"UV_NO_PROGRESS": "1", "UV_HTTP_RETRIES": "2", "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        find_uv_bin(),
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **quiet, **variables},
        cwd="/",
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(given.encode()), _LIMIT)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, out.decode(), err.decode(errors="replace")


def _root() -> Path:
    return version_locks.cache_root() / "beside"
