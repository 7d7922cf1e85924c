"""A machine's environment for an image: one that is there, or made by uv once and found again.

It has a folder named by the digest of all that it depends on, and is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass
from typing import Protocol

from skyward_nb.bootstrap import interpreter, package, uv
from skyward_nb.bootstrap.apt import LIST, install_packages
from skyward_nb.bootstrap.facts import Facts, Tool
from skyward_nb.bootstrap.failures import failure
from skyward_nb.bootstrap.needs import check_minor, minor, requirements
from skyward_nb.bootstrap.scripts import LOCK, settled
from skyward_nb.bootstrap.shell import Ran, Shell
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address

_LIMIT = 60.0
_BUILD_LIMIT = 3600.0
_FORM = 1
"""Raised when environments are made otherwise than before."""

_SEE = """
if [ -d "$code" ]; then touch "$code" 2>/dev/null; echo sky=code; fi
if [ -x "$env/bin/python" ]; then touch "$env" 2>/dev/null; echo sky=env; fi
"""

_BUILD = r"""
if [ -x "$final/bin/python" ]; then exit 0; fi
rm -rf "$final"
"$uv" venv --quiet --no-project --relocatable $python "$new" </dev/null || exit 41
"$uv" pip install --python "$new/bin/python" --torch-backend="${UV_TORCH_BACKEND:-auto}" --requirements - ||
  exit 42
"$new/bin/python" -c 'import msgspec, xxhash, psutil, IPython' </dev/null || exit 43
"$uv" pip freeze --quiet --python "$new/bin/python" >"$new/packages.txt" </dev/null
mv "$new" "$final" || exit 44
"""


class Tell(Protocol):
    """Hears of the phases of readying: what is done in one, and when it is over."""

    def __call__(self, phase: str, detail: str, done: bool) -> None:
        """`phase` is `package` or `environment`; the last word of a phase is `done`."""
        ...


@dataclass(frozen=True)
class Environment:
    """Where ranks run on a machine: its Python, the folder for its `sys.path` that has our package.

    `digest` is the same for environments made of the same; "" for one that was there.
    """

    python: str
    package: str
    digest: str


async def ready(shell: Shell, facts: Facts, image: Image, tell: Tell) -> Environment:
    """Make sure that a machine has the package and an environment for this image.

    Takes one round trip when nothing has changed. Raises `OptionError` for an image that no machine
    could have, `HostNotReady` for what this one has not and cannot get.
    """
    check_minor(image)
    check_machine(shell.name, facts)
    ours = package.Package()
    wanted = None if image.interpreter else _Wanted(shell.name, facts, image)
    asked = interpreter.path_of(image.interpreter or "", facts.home)
    code = package.place(facts, ours.digest)
    script = f"code={shlex.quote(code)}\nenv={shlex.quote(wanted.final if wanted else '')}\n{_SEE}"
    script += LIST if image.apt else ""
    data = b""
    if image.interpreter:
        script += f"exec {shlex.quote(asked)} -"
        data = interpreter.question(image)
    seen = await shell.run(script, data=data, limit=_LIMIT)
    if image.apt:
        await install_packages(
            shell, image.apt, seen.out, lambda text: tell("packages", text, False)
        )
        tell("packages", "", True)
    if wanted is None:
        interpreter.check(shell.name, asked, seen)
        tell("environment", asked, True)
    else:
        await _environment(shell, facts, wanted, image, tell, found=_says(seen, b"env"))
    if not _says(seen, b"code"):
        tell("package", "", False)
        await package.ship(shell, facts, ours)
    tell("package", "", True)
    if wanted is None:
        return Environment(asked, code, "")
    return Environment(f"{wanted.final}/bin/python", code, wanted.digest)


def check_machine(host: str, facts: Facts) -> None:
    """Raise `HostNotReady` for a machine on which nothing could be readied."""
    if facts.system != "Linux":
        raise HostNotReady(host, f"it runs {facts.system or 'an unknown system'}; nodes are Linux")
    if "cache" in facts.lacks:
        raise HostNotReady(
            host,
            f"{facts.cache} cannot be made or written by {facts.user}, who has to own it. Make it, "
            "or name another folder there by the variable SKYWARD_CACHE_DIR.",
        )
    if facts.lacks:
        raise HostNotReady(host, f"it lacks {', '.join(facts.lacks)}: install what brings them")


class _Wanted:
    """An environment to be: which Python, which packages, and the digest that these make."""

    def __init__(self, host: str, facts: Facts, image: Image) -> None:
        self.requirements = requirements(image)
        self.python = _python(facts)
        self.variables = uv.settings(image.env)
        parts = [
            _FORM,
            f"{self.python.version} {self.python.path}" if self.python else minor(),
            facts.system,
            facts.machine,
            facts.libc,
            ".".join(uv.version().split(".")[:2]),
            self.variables.get("UV_TORCH_BACKEND", "auto"),
            facts.driver.partition(".")[0],
            self.requirements,
        ]
        self.digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        self.final = f"{facts.cache}/envs/{self.digest}"
        self.host = host


def _python(facts: Facts) -> Tool | None:
    """A Python of ours' minor version on the machine; None: uv has to bring one."""
    fits = (tool for tool in facts.pythons if tool.version.startswith(f"{minor()}."))
    return next(fits, None)


def _says(seen: Ran, word: bytes) -> bool:
    return b"sky=" + word in seen.out.splitlines()


async def _environment(
    shell: Shell, facts: Facts, wanted: _Wanted, image: Image, tell: Tell, *, found: bool
) -> None:
    if found:
        tell("environment", "as before", True)
        return
    tell("environment", f"Python {minor()}, {len(wanted.requirements)} packages", False)

    def heard(text: str) -> None:
        tell("environment", masked_address(text), False)

    tool = await uv.provide(shell, facts, wanted.variables, heard)
    python = f"--python {shlex.quote(wanted.python.path)}" if wanted.python else ""
    words = {
        "final": wanted.final,
        "uv": tool,
        "python": python or f"--python {minor()} --managed-python",
    }
    given = "".join(f"{key}={shlex.quote(value)}\n" for key, value in words.items())
    quiet = {"UV_NO_PROGRESS": "1", "UV_HTTP_RETRIES": "2", "NO_COLOR": "1", **wanted.variables}
    script = f"{uv.exported(quiet)}{given}{LOCK}{settled(_BUILD)}"
    data = "\n".join(wanted.requirements).encode()
    ran = await shell.run(script, data=data, limit=_BUILD_LIMIT, heard=heard)
    if ran.code:
        raise await _unmade(shell, facts, wanted, ran)
    tell("environment", "", True)


async def _unmade(shell: Shell, facts: Facts, wanted: _Wanted, ran: Ran) -> HostNotReady:
    """Why there is no environment; where it is for want of a Python, how to come by one."""
    if ran.code == 41 and wanted.python is None:
        has = ", ".join(dict.fromkeys(tool.version for tool in facts.pythons)) or "none"
        minors = dict.fromkeys(".".join(tool.version.split(".")[:2]) for tool in facts.pythons)
        other = f", or start the notebook or script with one that it has ({', '.join(minors)})"
        return await failure(
            shell,
            facts,
            ran,
            f"there is no Python {minor()} (it has {has}), and uv could not bring one. Install "
            f"python{minor()} there{other * bool(minors)}, or name an environment: "
            'Image(interpreter="/path/to/python")',
        )
    return await failure(shell, facts, ran, f"its environment was not made ({wanted.final})")
