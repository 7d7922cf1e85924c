"""The host keys that are accepted: those of OpenSSH's known_hosts, or a host's first one, which is pinned.

The user's files are read and never written. Pins lie in a file of this package, in the same form, and count
only with `trust=first`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import platformdirs

from skyward_nb.compat.asyncssh_private import certificate_algorithms, key_algorithms
from skyward_nb.providers.far.login_errors import ChangedKey, UnknownKey, Unreachable
from skyward_nb.words.hosts import Trust

_GLOBAL = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_USER = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_STANDARD_PORT = 22


def pin_file() -> Path:
    """The file of pinned host keys."""
    return platformdirs.user_config_path("skyward_nb") / "known_hosts"


def known_files(user: object, everybody: object) -> list[Path]:
    """The files of known hosts that OpenSSH's config names, or else its defaults.

    With `UserKnownHostsFile none` no key is known; keys are checked nevertheless.
    """
    files: list[Path] = []
    for asked, plain in ((user, _USER), (everybody, _GLOBAL)):
        names = plain if asked is None else asked
        assert isinstance(names, list | tuple)
        files += [Path(str(name)).expanduser() for name in names]
    return files


class NamedKeys(asyncssh.SSHKnownHosts):
    """Entries of known hosts, which are found by name and never by address."""

    def match(self, host: str, addr: str, port: int | None) -> Any:
        """The keys of a host, those of certifiers, and revoked ones."""
        del addr
        return super().match(host, "", port)


def read_known(files: Iterable[Path]) -> NamedKeys:
    """The entries of these files; like OpenSSH, it skips broken lines."""
    texts: list[str] = []
    for path in files:
        with contextlib.suppress(OSError):
            texts.append(path.read_text(errors="replace"))
    return _entries("\n".join(texts))


def _entries(text: str) -> NamedKeys:
    known = NamedKeys()
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            known.load(line)
    return known


@dataclass(frozen=True)
class HostKeyAddress:
    """The `name` (or its alias) and `port` that a host key belongs to.

    `host` is what the user wrote, `login` the `ssh` command that logs in there.
    """

    host: str
    name: str
    port: int
    login: str

    @property
    def entry(self) -> str:
        """The name in a known_hosts file."""
        return self.name if self.port == _STANDARD_PORT else f"[{self.name}]:{self.port}"


class HostKeys(asyncssh.SSHClient):
    """Judges the key that a host shows on one connection; `fault` is the error to raise, if any.

    asyncssh accepts `known` keys by itself, and asks here about others.
    """

    def __init__(self, place: HostKeyAddress, known: asyncssh.SSHKnownHosts, trust: Trust) -> None:
        self.fault: Unreachable | None = None
        self._place = place
        self._known = known
        self._trust = trust

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Whether to accept an unknown key: with `trust=first`, the first one of a host."""
        del host, addr, port
        place, fingerprint = self._place, key.get_fingerprint()
        known = keys_of(self._known, place)
        if not known and self._trust == "first":
            known = pin(place, key)
            if not known:
                return True
        if known:
            self.fault = ChangedKey(place.host, _changed(place, key, known), fingerprint)
        else:
            self.fault = UnknownKey(place.host, _unknown(place, key), fingerprint)
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Whether to accept a certificate of an unknown authority: never."""
        del host, addr, port
        place = self._place
        why = (
            f"its host key is certified by {_spell(key)}, which is not among the "
            f"@cert-authority lines of known_hosts for {place.entry}"
        )
        self.fault = UnknownKey(place.host, why, key.get_fingerprint())
        return False


def keys_of(known: asyncssh.SSHKnownHosts, place: HostKeyAddress) -> list[asyncssh.SSHKey]:
    """The known keys of exactly this name and port."""
    # Given a port, `match` falls back to keys of the name alone, which are of another sshd.
    return list(known.match(place.entry, "", None)[0])


def algorithms(known: asyncssh.SSHKnownHosts, place: HostKeyAddress) -> list[str]:
    """Names of host key algorithms to ask for, those of known keys first, like OpenSSH.

    A host whose RSA key is known must not show its unknown Ed25519 key, nor a certificate if no authority
    is known.
    """
    port = None if place.port == _STANDARD_PORT else place.port
    keys, authorities, *_ = known.match(place.name, "", port)
    names = certificate_algorithms() if authorities else []
    names += [name for key in keys for name in key.sig_algorithms]
    names += key_algorithms()
    return list(dict.fromkeys(name.decode() for name in names))


def pin(place: HostKeyAddress, key: asyncssh.SSHKey) -> list[asyncssh.SSHKey]:
    """Pin the first key of a host; returns its pinned keys if they are others."""
    path = pin_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "r+") as file:
        # Another pool may meet the same host right now.
        fcntl.flock(file, fcntl.LOCK_EX)
        pinned = keys_of(_entries(file.read()), place)
        if key in pinned:
            return []
        if not pinned:
            file.write(f"{place.entry} {key.export_public_key('openssh').decode().strip()}\n")
    return pinned


def unpin(names: Iterable[str]) -> None:
    """Remove the pins of machines that are gone, by the names under which they were pinned."""
    gone = tuple(each for name in names for each in (f"{name} ", f"[{name}]:"))
    with contextlib.suppress(FileNotFoundError), pin_file().open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.readlines()
        kept = [line for line in lines if not line.startswith(gone)]
        if kept != lines:
            file.seek(0)
            file.writelines(kept)
            file.truncate()


def _spell(key: asyncssh.SSHKey) -> str:
    kind = key.get_algorithm().removeprefix("ssh-").partition("-")[0].upper()
    return f"{kind} {key.get_fingerprint()}"


def _unknown(place: HostKeyAddress, key: asyncssh.SSHKey) -> str:
    asking = place.login.replace("ssh", "ssh -o StrictHostKeyChecking=ask", 1)
    return (
        f"its host key is not known here: {_spell(key)}. Compare it with what "
        "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` says there, or ask the host's administrator. "
        f"To accept it: `{asking} true`, which asks. Or trust=first takes the first key that a "
        "host shows, and pins it."
    )


def _changed(place: HostKeyAddress, key: asyncssh.SSHKey, known: list[asyncssh.SSHKey]) -> str:
    had = ", ".join(map(_spell, known))
    pins = pin_file()
    is_pinned = any(each in known for each in keys_of(read_known([pins]), place))
    remove = f"ssh-keygen -R '{place.entry}'" + (f" -f '{pins}'" if is_pinned else "")
    return (
        f"its host key has changed: it shows {_spell(key)}, and the known key is {had}. Either "
        "the host was made anew, or somebody else answers in its place. If its administrator says "
        f"that the key is new: `{remove}`, and try again."
    )
