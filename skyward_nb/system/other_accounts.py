"""Which other people may log in to this machine, as far as can be seen. The rule is in `docs/security.md`."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

_PEOPLE = range(1000, 65_534)
_NO_SHELLS = "nologin", "false", "sync", "halt", "shutdown"
_SHADOW = Path("/etc/shadow")
_HOMES = Path("/home")
_KEYS = ".ssh/authorized_keys"


def other_people() -> list[str]:
    """Names of accounts beside this process's and root's that have a shell, a home, and a way in."""
    passwords = _passwords()
    return sorted(
        {
            each.pw_name
            for each in (*pwd.getpwall(), *_owners_of_homes())
            if each.pw_uid in _PEOPLE
            and each.pw_uid != os.geteuid()
            and Path(each.pw_shell).name not in _NO_SHELLS
            and _is_there(Path(each.pw_dir))
            and (_has_way_in(each, passwords) if passwords is not None else True)
        }
    )


def why_not_trusted(why: str) -> str:
    """The sentence for what is not started since other people may log in here, and `why`; "" if nobody may."""
    people = other_people()
    if not people:
        return ""
    named = ", ".join(people[:3]) + ", ..." * (len(people) > 3)
    return (
        f"other people may log in to this machine ({named}), and {why}. If you trust them, add "
        "trust_local_users (for all pools of a notebook: %sky config trust_local_users=yes)"
    )


def _owners_of_homes() -> list[pwd.struct_passwd]:
    """Accounts of a directory such as LDAP, which are not listed, but have been here."""
    found: list[pwd.struct_passwd] = []
    with contextlib.suppress(OSError):
        for home in _HOMES.iterdir():
            with contextlib.suppress(OSError, KeyError):
                found.append(pwd.getpwuid(home.stat().st_uid))
    return found


def _passwords() -> dict[str, str] | None:
    """The stored passwords by account; None for who may not read them."""
    try:
        lines = _SHADOW.read_text().splitlines()
    except OSError:
        return None
    return {name: rest.split(":")[0] for name, _, rest in (line.partition(":") for line in lines)}


def _has_way_in(each: pwd.struct_passwd, passwords: dict[str, str]) -> bool:
    """Whether it has a password or keys; accounts outside this machine's file may have them."""
    password = passwords.get(each.pw_name)
    is_locked = password is not None and password.startswith(("!", "*"))
    return not is_locked or _is_there(Path(each.pw_dir, _KEYS))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # behind a folder of its own
