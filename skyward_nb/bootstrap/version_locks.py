"""The packages that an environment got when it was first made, so that later hosts get the same.

Resolved versions are kept on this machine, under the digest of what was asked for.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import platformdirs

_BEGIN = b"sky=packages\n"


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


def news(before: list[str], now: list[str]) -> tuple[str, ...]:
    """What is new among packages, each at its version: `einops 0.8.2`, `numpy 2.1 → 2.2`. Pure."""
    had, have = (dict(filter(None, map(_read, lines))) for lines in (before, now))
    return tuple(
        f"{name} {had[name]} → {version}" if name in had else f"{name} {version}".rstrip()
        for name, version in have.items()
        if had.get(name) != version
    )


def _read(line: str) -> tuple[str, str] | None:
    """The name and the version of a line of `uv pip freeze`; one from an address has no version."""
    name, _, version = line.partition("==")
    name = name.partition(" @ ")[0].strip()
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
