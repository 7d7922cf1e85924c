"""Debian packages on a machine: an image's packages are installed, if the user may do that."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.words.errors import HostNotReady

FORMAT = "${Package}\t${Architecture}\t${Version}\t${db:Status-Status}\t${Provides}\n"
"""The argument of `dpkg-query --show --showformat=`."""

_LIMIT = 2700.0

LIST = f"""
if command -v dpkg-query >/dev/null 2>&1; then
  echo sky=packages
  dpkg-query --show --showformat='{FORMAT.encode("unicode_escape").decode()}'
  echo sky=over
fi
"""

_PATIENCE, _PAUSE = 900, 5
"""Seconds for which another apt-get is waited for, and between two looks."""
_HELD, _NO_SUDO = 42, 44
"""Exit codes of `_INSTALL` where another apt-get goes on for longer, and where only root may install."""

_INSTALL = r"""
as=
[ "$(id -u)" = 0 ] || as="sudo -n"
said=$(mktemp) || exit 43
trap 'rm -f "$said"' EXIT
waited=0
# apt would wait for some of its locks by itself, each time anew; here all waits count as one.
get() {
  while :; do
    { $as env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -o DPkg::Lock::Timeout=0 -y -q "$@" >&3; } 3>&2 2>"$said"
    code=$?
    [ "$code" = 0 ] || grep -q -e 'Could not get lock' -e 'Unable to lock' -e 'Unable to acquire' "$said" || break
    [ "$code" = 0 ] && break
    holder=$(sed -n 's/.*held by process \([0-9]* ([^)]*)\).*/\1/p' "$said" | head -n 1)
    [ "$waited" -lt "$patience" ] || { cat "$said" >&2; exit 42; }
    echo "another apt-get works there (${holder:-first updates of a new machine, say}): waiting for it, $waited s so far" >&2
    sleep "$pause"
    waited=$((waited + pause))
  done
  cat "$said" >&2
  return "$code"
}
[ -z "$as" ] || command -v sudo >/dev/null 2>&1 || exit 44
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
    given = f"patience={_PATIENCE} pause={_PAUSE}\nset -- {words}\n"
    ran = await shell.run(f"{given}{_INSTALL}", limit=_LIMIT, heard=tell)
    if ran.code:
        held = f"and another apt-get has held its locks for {_PATIENCE} s"
        ways = {
            40: "and sudo asks for a password",
            _NO_SUDO: "its user is not root, and it has no sudo",
            _HELD: held,
        }
        why = ways.get(ran.code, "and installing it failed")
        there, sudo = ("There, as root", "") if ran.code == _NO_SUDO else ("There", "sudo ")
        raise HostNotReady(
            shell.name,
            f"apt={','.join(asked)}: it lacks {', '.join(lacking)}, {why}. {there}:\n"
            f"  {sudo}apt-get install {words}",
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
