"""Debian's packages on a machine: those an image names are looked for, and installed where that is allowed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from skyward_nb.bootstrap.debian import FORMAT, installed
from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.words.errors import HostNotReady

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
    """Install what is lacking, where this user may; `seen` is what `LIST` said.

    Raises `HostNotReady` that names the line to type there.
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
