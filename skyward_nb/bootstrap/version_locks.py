"""Which packages an environment got when it was first made: so many hosts get the same, also later.

What was resolved is kept on this machine, under the digest of what was asked for.
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
    """Note what was installed, from what making it said."""
    _, begin, listed = out.partition(_BEGIN)
    # A note that cannot be kept is only missed.
    with suppress(OSError):
        if begin and listed:
            _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            new = _folder() / f".{digest}.{os.getpid()}"
            new.touch(mode=0o600)
            new.write_bytes(listed)
            new.replace(_folder() / digest)


def forget(digest: str) -> None:
    """Resolve anew next time."""
    with suppress(OSError):
        (_folder() / digest).unlink()


def _folder() -> Path:
    base = os.environ.get("SKYWARD_CACHE_DIR") or platformdirs.user_cache_dir("skyward_nb")
    return Path(base) / "locks"
