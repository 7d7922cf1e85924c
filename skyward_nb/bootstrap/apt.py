"""Debian packages on a machine: an image's packages are installed, if the user may do that."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.words.errors import HostNotReady

FORMAT = "${Package}\t${Architecture}\t${Version}\t${db:Status-Status}\t${Provides}\n"
"""The argument of `dpkg-query --show --showformat=`."""

_LIMIT = 1800.0

LIST = f"""
if command -v dpkg-query >/dev/null 2>&1; then
  echo sky=packages
  dpkg-query --show --showformat='{FORMAT.encode("unicode_escape").decode()}'
  echo sky=over
fi
"""

_INSTALL = """
as=
[ "$(id -u)" = 0 ] || as="sudo -n"
export DEBIAN_FRONTEND=noninteractive
get() { $as env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -y -q "$@" >&2; }
$as true || exit 40
get install --no-install-recommends "$@" || { get update && get install --no-install-recommends "$@"; } || exit 41
"""


async def install_packages(
    shell: Shell, asked: Sequence[str], seen: bytes, tell: Callable[[str], None]
) -> None:
    """Install missing packages, if this user may; `seen` is the output of `LIST`.

    Raises `HostNotReady` with the command to type there.
    """
    _, mark, rest = seen.decode(errors="replace").partition("sky=packages\n")
    listed, end, _ = rest.partition("sky=over\n")
    if not (mark and end):
        raise HostNotReady(
            shell.name,
            f"apt={','.join(asked)}: it has no dpkg-query, so it cannot install Debian packages. "
            "Install the same things there in another way, and leave apt= out.",
        )
    there = installed(listed)
    lacking = [name for name in asked if name not in there]
    if not lacking:
        return
    words = shlex.join(lacking)
    tell(f"installing {words}")
    ran = await shell.run(f"set -- {words}\n{_INSTALL}", limit=_LIMIT, heard=tell)
    if ran.code:
        why = "and sudo asks for a password" if ran.code == 40 else "and installing it failed"
        raise HostNotReady(
            shell.name,
            f"apt={','.join(asked)}: it lacks {', '.join(lacking)}, {why}. There:\n"
            f"  sudo apt-get install {words}",
            last_words(ran.err),
        )


def installed(listed: str) -> set[str]:
    """All names of the installed packages: with architecture, version or both, and what they provide."""
    names: set[str] = set()
    for line in listed.splitlines():
        name, machine, version, status, provided = line.split("\t")
        if status != "installed":
            continue
        for each in (name, f"{name}:{machine}"):
            names |= {each, f"{each}={version}"}
        names |= {part.partition("(")[0].strip() for part in provided.split(",")}
    return names
