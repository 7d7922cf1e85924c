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


def forget(digest: str) -> None:
    """Forget the packages: the next environment is resolved anew."""
    with suppress(OSError):
        (_folder() / digest).unlink()


def _folder() -> Path:
    base = os.environ.get("SKYWARD_CACHE_DIR") or platformdirs.user_cache_dir("skyward_nb")
    return Path(base) / "locks"
