"""The installer `uv` on a machine: its own, a copy of this machine's, or a release that it fetches."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from skyward_nb.bootstrap.folder_scripts import LOCK
from skyward_nb.bootstrap.machine_facts import MachineFacts
from skyward_nb.bootstrap.remote_shell import ScriptResult, Shell
from skyward_nb.bootstrap.setup_errors import failure, is_untrusted
from skyward_nb.words.errors import HostNotReady, spell_size
from skyward_nb.words.masking import masked_address

_PART = 1 << 20
_LIMIT = 900.0
_LIBC = {"glibc": "gnu", "musl": "musl"}

# Settings of this machine that name sources of packages; its other settings do not travel.
_OURS = (
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_STRATEGY",
    "UV_INDEX_URL",
    "UV_PYTHON_INSTALL_MIRROR",
    "UV_TORCH_BACKEND",
)
_ORIGINS = _OURS[:6]
_ASKED = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_DIR", "SSL_CERT_FILE")

_FETCH = r"""
if [ -x "$final/uv" ]; then exit 0; fi
mkdir "$new" || exit 3
for python in $pythons; do
  "$python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps --only-binary :all: \
    --target "$new/wheel" "uv==$version" >&2 && mv "$new/wheel/bin/uv" "$new/uv" && break
done
if [ ! -x "$new/uv" ]; then
  if command -v curl >/dev/null 2>&1; then curl -fsSL --connect-timeout 20 -o "$new/uv.tar.gz" "$address" >&2
  elif command -v wget >/dev/null 2>&1; then
    # It reads no variable that names certificates, and that of BusyBox does not know the option either.
    fetch() { wget -nv -t 2 -T 20 "$@" -O "$new/uv.tar.gz" "$address" 2>"$new/said"; }
    fetch ${SSL_CERT_FILE:+--ca-certificate="$SSL_CERT_FILE"} \
      || { grep -q "unrecognized option" "$new/said" && fetch; } || { cat "$new/said" >&2; false; }
  else echo "there is neither pip, curl nor wget" >&2; exit 4
  fi || { echo "for url ($address): error sending request" >&2; exit 4; }
  tar -xzf "$new/uv.tar.gz" -C "$new" && mv "$new"/uv-*/uv "$new/uv" || exit 3
fi
"$new/uv" --version >/dev/null || exit 5
rm -rf "$new/wheel" "$new"/uv-* "$new/uv.tar.gz" "$new/said"
[ -x "$final/uv" ] || rm -rf "$final"
in_place || exit 3
"""


def version() -> str:
    """The version of uv that comes with this package."""
    return metadata.version("uv")


def there(facts: MachineFacts) -> str | None:
    """The path of a uv on the machine with the minor version of this package's uv; None without one."""
    ours = _series(version())
    return next((tool.path for tool in facts.uvs if _series(tool.version) == ours), None)


def settings(asked: Mapping[str, str]) -> dict[str, str]:
    """Variables for uv: the sources of packages here, overridden by those of an image."""
    ours = {name: value for name in _OURS if (value := os.environ.get(name))}
    ours |= {
        name: value
        for name, value in os.environ.items()
        if name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD"))
    }
    return ours | {
        name: value
        for name, value in asked.items()
        if name.startswith("UV_") or name.upper() in _ASKED
    }


def own_folders(facts: MachineFacts) -> dict[str, str]:
    """Variables by which uv keeps all that it keeps in a folder that was asked for, and nothing in the home."""
    if not facts.is_apart:
        return {}
    folders = {"UV_CACHE_DIR": "uv/cache", "UV_PYTHON_INSTALL_DIR": "uv/python"}
    return {name: f"{facts.cache}/{folder}" for name, folder in folders.items()}


def origins(variables: Mapping[str, str]) -> list[str]:
    """The sources of packages in these variables, without passwords."""
    return [
        f"{name}={masked_address(value)}"
        for name, value in sorted(variables.items())
        if name in _ORIGINS
    ]


async def provide(
    shell: Shell, facts: MachineFacts, variables: Mapping[str, str], tell: Callable[[str], None]
) -> str:
    """The path of a uv on the machine, which is sent there if there is none.

    Raises `HostNotReady` if it can neither be sent nor fetched.
    """
    if found := there(facts):
        return found
    final = f"{facts.cache}/uv/{version()}"
    if runs_there(facts):
        await _send(shell, facts, final, tell)
    else:
        await _fetch(shell, facts, final, variables, tell)
    return f"{final}/uv"


def runs_there(facts: MachineFacts) -> bool:
    """Whether this machine's uv runs on that one: the same system, processor, and C library."""
    family, here = platform.libc_ver()
    name, _, number = facts.libc.partition(" ")
    same = (facts.system, facts.machine) == (platform.system(), platform.machine())
    # The binary itself needs 2.17, of 2012.
    return same and name == family == "glibc" and bool(here) and _numbers(number) >= (2, 17)


def release(facts: MachineFacts) -> str:
    """The address of the release of uv that runs on such a machine."""
    libc = _LIBC.get(facts.libc.partition(" ")[0], "musl")
    releases = "https://github.com/astral-sh/uv/releases/download"
    return f"{releases}/{version()}/uv-{facts.machine}-unknown-linux-{libc}.tar.gz"


async def _send(shell: Shell, facts: MachineFacts, final: str, tell: Callable[[str], None]) -> None:
    binary, size = _binary()
    shown = -1

    def told(sent: int) -> None:
        nonlocal shown
        if sent * 10 // size > shown:
            shown = sent * 10 // size
            tell(f"sending uv: {spell_size(sent)} of {spell_size(size)}")

    what = "uv, which makes its environment, could not be copied there"
    ran = await shell.run(f"mkdir -p {shlex.quote(final)}")
    if ran.code:
        raise await failure(shell, facts, ran, what)
    try:
        await shell.send(f"{final}/uv", _parts(binary), mode=0o700, told=told)
    except OSError as error:
        said = f"{error.strerror or error} (os error {error.errno})"
        raise await failure(shell, facts, ScriptResult(1, b"", said), what) from error


async def _fetch(
    shell: Shell,
    facts: MachineFacts,
    final: str,
    variables: Mapping[str, str],
    tell: Callable[[str], None],
) -> None:
    name = version()
    what = (
        f"uv {name}, which makes its environment, could not be fetched there, and this machine's "
        f"own does not run on {facts.system} {facts.machine} {facts.libc}. Install uv {name} on it "
        '(https://docs.astral.sh/uv), or name an environment: Image(interpreter="/path/to/python")'
    )
    tell(f"fetching uv {name}")
    pythons = " ".join(tool.path for tool in facts.pythons if " " not in tool.path)
    words = {"final": final, "version": name, "address": release(facts), "pythons": pythons}
    given = "".join(f"{key}={shlex.quote(value)}\n" for key, value in words.items())
    script = f"{exported(variables)}{given}{LOCK}{_FETCH}"
    ran = await shell.run(script, limit=_LIMIT, heard=tell)
    if ran.code:
        fault = await failure(shell, facts, ran, f"uv {name} could not be fetched there")
        raise fault if is_untrusted(ran.err) else HostNotReady(shell.name, what, fault.detail)


def _binary() -> tuple[Path, int]:
    from uv import find_uv_bin

    path = Path(find_uv_bin())
    return path, path.stat().st_size


def exported(variables: Mapping[str, str]) -> str:
    """Lines of a script that set variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(_PART):
            yield part


def _series(text: str) -> tuple[int, ...]:
    return _numbers(text)[:2]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
