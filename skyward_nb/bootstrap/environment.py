"""A machine's environment for an image: an existing one, or one that uv makes once.

Its folder is named by the digest of all that it depends on, and is complete or does not exist.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from skyward_nb.bootstrap import interpreter, package, uv, version_locks
from skyward_nb.bootstrap.apt import LIST, install_packages
from skyward_nb.bootstrap.egress import EgressTunnel
from skyward_nb.bootstrap.folder_scripts import LOCK
from skyward_nb.bootstrap.machine_facts import MachineFacts
from skyward_nb.bootstrap.remote_shell import ScriptResult, Shell
from skyward_nb.bootstrap.requirements import (
    RUNNING,
    check_minor,
    minor,
    package_name,
    requirements,
)
from skyward_nb.bootstrap.setup_errors import (
    check_room,
    failure,
    host_of,
    is_full,
    is_unsolved,
    is_untrusted,
    unreached_address,
)
from skyward_nb.words.errors import HostNotReady, spell_size
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address

_LIMIT = 60.0
_BUILD_LIMIT = 3600.0
_NO_PYTHON, _NO_USE = 41, 43
"""Exit codes of `_BUILD` without a Python, and if installed packages cannot be imported."""

_FORM = 1
"""The version of the way in which environments are made."""

_WORKS = r"""
cd /
unset PYTHONPATH
works() {
  [ -x "$1/bin/python" ] && "$1/bin/python" -c '
import cloudpickle, dill, msgspec, psutil, xxhash
from importlib.util import find_spec
assert find_spec("IPython") and find_spec("threadpoolctl")' >/dev/null 2>&1 </dev/null
}
"""
"""Tests whether an environment is complete: some machines remove files. Started in `/`, Python has no modules of a folder."""

_SEE = f"""{_WORKS}
echo
if {package.IS_WHOLE}; then {package.USED}; echo sky=code; fi
if [ -n "$env" ] && works "$env"; then echo sky=env; fi
"""

_REACHES = '"$uv" pip compile --quiet --no-cache --no-deps --python "$python" - >/dev/null\n'
"""Tests whether uv reaches the index of packages, by the requirement on stdin."""

_SYSTEM_CERTS = "UV_SYSTEM_CERTS"
_SOON = {"UV_HTTP_CONNECT_TIMEOUT": "2", "UV_HTTP_TIMEOUT": "4", "UV_HTTP_RETRIES": "0"}

_BUILD = r"""
if works "$final"; then exit 0; fi
rm -rf "$final"
if [ -n "$python" ]; then set -- --python "$python"; else set -- --python "$minor" --managed-python; fi
"$uv" venv --quiet --no-project --relocatable "$@" "$new" </dev/null || exit 41
backend=${backend-"--torch-backend=${UV_TORCH_BACKEND:-auto}"}
"$uv" pip install --python "$new/bin/python" $backend --requirements - || exit 42
"$new/bin/python" -c 'import msgspec, xxhash, psutil, IPython' </dev/null || exit 43
echo sky=packages
"$uv" pip freeze --quiet --python "$new/bin/python" </dev/null || exit 43
in_place || exit 44
"""


Heard = Callable[[str], None]
PhaseReporter = Callable[[str, str, bool], None]
"""Gets (phase, detail, whether the phase is over): of `packages`, `environment` and `package`."""


@dataclass(frozen=True)
class Environment:
    """The Python of ranks on a machine, and the folder of this `package` for its `sys.path`.

    `digest` is equal for environments of equal parts; "" for one that uv did not make. The agent and its ranks are
    started with these `variables`.
    """

    python: str
    package: str
    digest: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


async def ready(
    shell: Shell,
    facts: MachineFacts,
    image: Image,
    tell: PhaseReporter,
    *,
    ours: package.Package | None = None,
    before: str = "",
) -> Environment:
    """Make sure that a machine has the package and an environment for this image.

    Takes one round trip if nothing has changed. `ours` is the package, if it is packed already. Packages that
    the environment of the digest `before` has keep their versions, where that is possible. Raises
    `OptionError` for an image that no machine can have, `HostNotReady` if this machine lacks a part and
    cannot get it, and `ShellGone`.
    """
    check_minor(image)
    check_machine(shell.name, facts, makes=image.interpreter is None)
    try:
        ours = ours or package.Package()
        wanted = None if image.interpreter else _Wanted(facts, image, before)
        try:
            return await _ready(shell, facts, image, wanted, tell, ours)
        except _NoHeaders as fault:
            tell("environment", f"{fault}: torch.compile and Triton will lack it", False)
            plain = _Wanted(replace(facts, gpus=()), image, before)
            return await _ready(shell, facts, image, plain, tell, ours)
    except TimeoutError:
        raise HostNotReady(
            shell.name,
            "it took too long to make its environment. The next attempt removes the unfinished one; "
            f"check that the disk of {facts.cache} answers.",
        ) from None


class _NoHeaders(Exception):
    """A Python with headers is preferred, and uv cannot bring it."""


_DIGEST = re.compile(r"[0-9a-f]{16}")


def digest_of(python: str) -> str:
    """The digest of the environment of a Python, by its path; "" for one that uv did not make."""
    match PurePosixPath(python).parts:
        case (*_, "envs", digest, "bin", "python") if _DIGEST.fullmatch(digest):
            return digest
        case _:
            return ""


def _folder(facts: MachineFacts, digest: str) -> str:
    return f"{facts.cache}/envs/{digest}"


async def _ready(
    shell: Shell,
    facts: MachineFacts,
    image: Image,
    wanted: _Wanted | None,
    tell: PhaseReporter,
    ours: package.Package,
) -> Environment:
    asked = image.interpreter or ""
    if asked.startswith("~/"):
        asked = facts.home + asked[1:]
    code = package.place(facts, ours.digest)
    script = f"files={ours.count}\nfinal={shlex.quote(code)}\nenv={shlex.quote(wanted.final if wanted else '')}\n{_SEE}"
    script += LIST if image.apt else ""
    data = b""
    if image.interpreter:
        script += f"exec {shlex.quote(asked)} -"
        data = interpreter.question(image)
    seen = await shell.run(script, data=data, limit=_LIMIT)
    if image.apt:
        await install_packages(
            shell, image.apt, seen.out, lambda text: tell("packages", masked_address(text), False)
        )
        tell("packages", "", True)
    if wanted is None:
        interpreter.check(shell.name, asked, seen)
        tell("environment", asked, True)
    else:
        await _environment(shell, facts, wanted, tell, found=_says(seen, b"env"))
    if not _says(seen, b"code"):
        tell("package", "", False)
        await package.ship(shell, facts, ours)
    tell("package", "", True)
    if wanted is None:
        return Environment(asked, code, "")
    return Environment(f"{wanted.final}/bin/python", code, wanted.digest)


def check_machine(host: str, facts: MachineFacts, *, makes: bool = True) -> None:
    """Raise `HostNotReady` for a machine that cannot be a node, or where an environment cannot be made if one `makes` it."""
    if facts.system != "Linux":
        raise HostNotReady(host, f"it runs {facts.system or 'an unknown system'}; nodes need Linux")
    if "cache" in facts.lacks:
        raise HostNotReady(
            host,
            f"{facts.user} cannot make or write {facts.cache}, and must own it. Make it, "
            "or name another folder there: cache=/scratch/$USER, say.",
        )
    if "privacy" in facts.lacks:
        raise HostNotReady(
            host,
            f"others may write to {facts.cache} there, and could put programs in it that run as {facts.user}. Type "
            f"`chmod go-w {shlex.quote(facts.cache)}` there, or chmod +t if they have to write, and name a new folder "
            f"in it, which is made for {facts.user} alone: cache={facts.cache}/skyward_nb",
        )
    if "exec" in facts.lacks and makes:
        raise HostNotReady(
            host,
            f"programs in {facts.cache} cannot be run (is it mounted noexec?). Name a folder there in which "
            "they can: cache=/scratch/$USER, say.",
        )
    if lacks := [each for each in facts.lacks if each != "exec"]:
        raise HostNotReady(
            host, f"it lacks {', '.join(lacks)}: install the packages that have them"
        )


class _Wanted:
    """The environment to make: its Python, its packages, and their digest."""

    def __init__(self, facts: MachineFacts, image: Image, before: str = "") -> None:
        self.requirements = requirements(image)
        self._image = image
        self._before = before
        # Those that uv has brought it finds again: an environment of one has the name that it had before it was there.
        brought = f"{facts.cache if facts.is_apart else f'{facts.home}/.local/share'}/uv/python/"
        fitting = [
            tool
            for tool in facts.pythons
            if tool.version.startswith(f"{minor()}.") and not tool.path.startswith(brought)
        ]
        is_compiled = facts.gpus and any(
            package_name(text) == "torch" for text in self.requirements
        )
        self.needs_headers: bool = bool(fitting and is_compiled)
        if self.needs_headers:
            # Triton compiles launchers with Python.h, which Debian's own Python lacks; uv's has it.
            fitting = [tool for tool in fitting if tool.path in facts.headers]
        self.python = fitting[0] if fitting else None
        """None: uv has to bring one."""
        self.variables = uv.settings(image.env)
        # Passwords are left out: a new password needs no new environment.
        parts = [
            _FORM,
            f"{self.python.version} {self.python.path}" if self.python else minor(),
            facts.system,
            facts.machine,
            facts.libc,
            ".".join(uv.version().split(".")[:2]),
            self.variables.get("UV_TORCH_BACKEND", "auto"),
            facts.driver.partition(".")[0],
            uv.origins(self.variables),
            [masked_address(text) for text in self.requirements],
        ]
        self.digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        self.final = _folder(facts, self.digest)

    def choices(self) -> list[Sequence[str]]:
        """Packages to install: those of the first time, else with the versions of before or here, else any that fit."""
        looser = requirements(self._image, exactly=False)
        kept = version_locks.known(self._before) if self._before else []
        with_kept = [*kept, *self.requirements] if kept else []
        ways = (version_locks.known(self.digest), with_kept, self.requirements, looser)
        return [each for each in ways if each]


def _says(seen: ScriptResult, word: bytes) -> bool:
    return b"sky=" + word in seen.out.splitlines()


async def _environment(
    shell: Shell, facts: MachineFacts, wanted: _Wanted, tell: PhaseReporter, *, found: bool
) -> None:
    if found:
        tell("environment", "as before", True)
        return
    check_room(shell.name, facts)
    tell("environment", f"Python {minor()}, {len(wanted.requirements)} packages", False)

    def heard(text: str) -> None:
        tell("environment", masked_address(text), False)

    async with contextlib.AsyncExitStack() as opened:
        way = EgressTunnel(shell, opened, wanted.variables, wanted.requirements, heard)
        ran = await _made(shell, facts, wanted, tell, heard, way)
    version_locks.keep(wanted.digest, ran.out)
    came = f"{spell_size(way.moved)} came over this line" if way.moved else ""
    tell("environment", came, True)


async def _made(
    shell: Shell,
    facts: MachineFacts,
    wanted: _Wanted,
    tell: PhaseReporter,
    heard: Heard,
    way: EgressTunnel,
) -> ScriptResult:
    """Make an environment from indexes that the machine reaches, else over this line, else from its cache."""
    tool = await _tool(shell, facts, wanted, heard, way)
    python = wanted.python.path if wanted.python else ""
    words = {"final": wanted.final, "uv": tool, "python": python, "minor": minor()}
    given = "".join(f"{key}={shlex.quote(value)}\n" for key, value in words.items())
    quiet = {"UV_NO_PROGRESS": "1", "UV_HTTP_RETRIES": "2", "NO_COLOR": "1"}
    quiet |= {**uv.own_folders(facts), **wanted.variables}
    rest = f"{given}{_WORKS}{LOCK}{_BUILD}"

    if python:
        quiet |= await _by_first_answer(shell, f"{uv.exported({**quiet, **_SOON})}{given}", way)
        quiet |= wanted.variables

    async def make(packages: Sequence[str], **other: str) -> ScriptResult:
        script = uv.exported({**quiet, **other, **way.variables}) + rest
        data = "\n".join(packages).encode()
        return await shell.run(script, data=data, limit=_BUILD_LIMIT, heard=heard)

    choices = wanted.choices()
    other: dict[str, str] = {}
    blamed = None
    while (ran := await make(choices[0], **other)).code:
        address = unreached_address(ran.err)
        if is_untrusted(ran.err) and not {_SYSTEM_CERTS} & {*quiet, *other}:
            other[_SYSTEM_CERTS] = "1"
            continue
        if address and await way.open(address):
            continue
        if address and "download.pytorch.org" in address and "backend" not in other:
            # The index that is reached may have builds of torch, too.
            other["backend"] = ""
        elif address and "UV_OFFLINE" not in other:
            other["UV_OFFLINE"] = "1"
            blamed = ran
        elif (is_unsolved(ran.err) or ran.code == _NO_USE) and len(choices) > 1 and not blamed:
            del choices[0]
            tell("environment", "these versions are not available: trying others", False)
            continue
        elif ran.code == _NO_PYTHON and wanted.needs_headers and wanted.python is None:
            raise _NoHeaders("no Python there has Python.h, and uv could not bring one")
        else:
            raise await _unmade(shell, facts, wanted, blamed or ran, way.why)
        tell("environment", f"{host_of(address)} cannot be reached: trying without it", False)
    return ran


async def _by_first_answer(shell: Shell, settings: str, way: EgressTunnel) -> dict[str, str]:
    """What else to set for uv, by whether it reaches the index of packages; opens the way over this line if not."""
    asked = await shell.run(f"{settings}{_REACHES}", data=f"{RUNNING[0]}\n".encode(), limit=_LIMIT)
    address = unreached_address(asked.err)
    if is_untrusted(asked.err):
        # A proxy that reads TLS has its authority among the system's, which uv does not ask by itself.
        return {_SYSTEM_CERTS: "1"}
    if address and not await way.open(address):
        # It was tried just now, and a retry may take long.
        return {"UV_HTTP_RETRIES": "0"}
    return {}


async def _tool(
    shell: Shell, facts: MachineFacts, wanted: _Wanted, heard: Heard, way: EgressTunnel
) -> str:
    """The path of uv there; if need be, it is fetched over this line."""
    try:
        return await uv.provide(shell, facts, wanted.variables, heard)
    except HostNotReady:
        if uv.runs_there(facts) or not await way.open(uv.release(facts)):
            raise
        return await uv.provide(shell, facts, {**wanted.variables, **way.variables}, heard)


async def _unmade(
    shell: Shell, facts: MachineFacts, wanted: _Wanted, ran: ScriptResult, no_way: str
) -> HostNotReady:
    """The error that no environment could be made; if a Python is missing, with how to get one."""
    if ran.code == _NO_PYTHON and wanted.python is None and not is_full(ran.err):
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
            no_way,
        )
    what = f"its environment could not be made ({wanted.final})"
    return await failure(shell, facts, ran, what, no_way)
