"""The packages that an environment got when it was first made, so that later hosts get the same.

Resolved versions are kept on this machine, under the digest of what was asked for.
"""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

import platformdirs

from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.words.masking import masked_address

_BEGIN = b"sky=packages\n"
_LIMIT = 60.0
_LIST = rb"""
import json, re
from importlib.metadata import distributions
lines = set()
for each in distributions():
    name = re.sub("[-_.]+", "-", each.name).lower()
    origin = json.loads(each.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {})
    part = "#subdirectory=" + origin["subdirectory"] if "subdirectory" in origin else ""
    if commit:
        lines.add(name + " @ " + commit["vcs"] + "+" + origin["url"] + "@" + commit["commit_id"] + part)
    else:
        lines.add(name + " @ " + origin["url"] + part if origin else name + "==" + each.version)
print("sky=packages", *sorted(lines), sep="\n")
"""
_COMMIT = re.compile(r".*@([0-9a-f]{8})[0-9a-f]{32}$")


def known(digest: str) -> list[str]:
    """The packages of an environment of this digest, each at its version; none where it is new."""
    try:
        return (_folder() / digest).read_text().splitlines()
    except OSError:
        return []


def keep(digest: str, out: bytes) -> None:
    """Note the installed packages, from the output of the script that made the environment."""
    _, begin, listed = out.partition(_BEGIN)
    # Without the note, the next host may only get other versions.
    with suppress(OSError):
        if begin and listed:
            _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            new = _folder() / f".{digest}.{os.getpid()}"
            new.touch(mode=0o600)
            new.write_bytes(listed)
            new.replace(_folder() / digest)


async def learn(shell: Shell, python: str, digest: str) -> None:
    """Note the packages of an environment that was made from elsewhere, in the words of `uv pip freeze`."""
    if not known(digest):
        ran = await shell.run(f"exec {shlex.quote(python)} -I -", data=_LIST, limit=_LIMIT)
        keep(digest, ran.out if not ran.code else b"")


def news(before: list[str], now: list[str]) -> tuple[str, ...]:
    """What is new among packages, each at its version: `einops 0.8.2`, `numpy 2.1 → 2.2`, `mine 1a2b3c4d`. Pure."""
    had, have = (dict(filter(None, map(_read, lines))) for lines in (before, now))
    return tuple(
        f"{name} {had[name]} → {version}" if name in had else f"{name} {version}".rstrip()
        for name, version in have.items()
        if had.get(name) != version
    )


def _read(line: str) -> tuple[str, str] | None:
    """The name and the version of a line of `uv pip freeze`; from an address, its commit or its file stands for that."""
    name, _, address = line.partition(" @ ")
    last = masked_address(address).strip().partition("#")[0].rstrip("/").rpartition("/")[2]
    version = _COMMIT.sub(r"\1", last)
    if not address:
        name, _, version = line.partition("==")
    name = name.strip()
    return (name, version.strip()) if name and not line.startswith(("-", "#")) else None


def forget(digest: str) -> None:
    """Forget the packages: the next environment is resolved anew."""
    with suppress(OSError):
        (_folder() / digest).unlink()


def cache_root() -> Path:
    """The folder of this machine for what can be made again."""
    return Path(os.environ.get("SKYWARD_CACHE_DIR") or platformdirs.user_cache_dir("skyward_nb"))


def _folder() -> Path:
    return cache_root() / "locks"
