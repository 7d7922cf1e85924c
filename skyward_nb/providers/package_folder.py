"""Packages that ranks of this machine have and this Python lacks: a folder beside its own, made once by uv.

No package that this Python has is changed or installed again: so values mean the same to the notebook and to ranks.
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

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from skyward_nb.bootstrap import uv, version_locks
from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.providers.installed import lacking
from skyward_nb.system.package_path import PACKAGES
from skyward_nb.words.errors import MissingDependency, OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address

_LIMIT = 3600.0
_TO_INSTALL = re.compile(r"^ \+ (\S+?==\S+)$", re.MULTILINE)
_AT_ADDRESS = re.compile(r"^ \+ (\S+?)(?: @ |==\S+ \(from )", re.MULTILINE)
"""What uv says that it would install: of an address in one way, and in another one where that is in its cache."""
_TO_REMOVE = re.compile(r"^ - \S", re.MULTILINE)
_CONSTRAINTS = "constraints.txt"
_OF_PYTHON = sys.stdlib_module_names | {"test"}


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
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_ours(root)
    if (root / name / PACKAGES).exists():
        return str(root / name)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
    try:
        await _make(new, [*lacks], there, variables, heard)
        _put_in_place(new, root / name)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return str(root / name)


def packages_in(folder: str) -> list[str]:
    """The packages of such a folder, each at its version."""
    return (Path(folder) / PACKAGES).read_text().splitlines() if folder else []


def _check_ours(root: Path) -> None:
    """Ranks import from there before anything else: nobody else may write it."""
    found = root.lstat()
    if not root.is_symlink() and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return
    raise OptionError(
        "pip",
        f"pip=: packages of ranks are kept in {root}, which is not yours alone to write: set SKYWARD_CACHE_DIR to a "
        "folder of yours",
    )


def _put_in_place(new: Path, final: Path) -> None:
    (new / _CONSTRAINTS).unlink()
    try:
        new.replace(final)
    except OSError:
        if (final / PACKAGES).exists():
            return  # another process was first, with the same
        # What a cleaner of caches has left: out of the way, as nobody else's is removed.
        old = Path(tempfile.mkdtemp(prefix=".old-", dir=final.parent))
        final.replace(old)
        shutil.rmtree(old, ignore_errors=True)
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
    # It writes nothing, so that it may look at a Python whose packages the system manages.
    look = ["--dry-run", "--break-system-packages", "--constraint", str(constraints)]
    asked = [*install, *look, "--requirements", "-"]
    heard(f"uv looks for {', '.join(map(masked_address, lacks))}")
    code, _, said = await _uv(asked, variables, "\n".join(lacks))
    if code or _TO_REMOVE.search(said):
        raise _refused(lacks, said)
    found = _TO_INSTALL.findall(said)
    by_name = {canonicalize_name(Requirement(text).name): text for text in lacks}
    addressed = [canonicalize_name(each) for each in _AT_ADDRESS.findall(said)]
    if unknown := [each for each in addressed if each not in by_name]:
        raise _refused(
            lacks, f"{unknown[0]} comes from an address: name it in pip=, with that address"
        )
    # As they were typed: uv masks passwords in what it says.
    packages = [*found, *(by_name[each] for each in addressed)]
    if not packages:
        raise _refused(lacks, said)
    heard(f"installing {', '.join(map(masked_address, packages))}")
    into = [*install, "--no-deps", "--target", str(new), "--requirements", "-"]
    code, _, said = await _uv(into, variables, "\n".join(packages))
    if code:
        raise _refused(lacks, said)
    _leave_out_shadows(new)
    (new / PACKAGES).write_text("\n".join(map(masked_address, packages)))


def _leave_out_shadows(folder: Path) -> None:
    """Remove modules named like those of Python itself, which come first wherever a package is installed.

    This folder is on PYTHONPATH, which comes before them.
    """
    for path in folder.iterdir():
        if path.name.partition(".")[0] not in _OF_PYTHON:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


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
