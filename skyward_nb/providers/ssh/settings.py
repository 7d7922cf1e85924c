"""The settings of a login: OpenSSH's config for a host, and a pool's spec for all hosts."""

from __future__ import annotations

import getpass
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from asyncssh import ConfigParseError

from skyward_nb.compat.asyncssh_private import Config, login_options, read_config
from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.ssh.host_keys import HostKeyAddress, known_files
from skyward_nb.words.errors import OptionError
from skyward_nb.words.hosts import Host, SSHAccess, parse_host

_USER_CONFIG = "~/.ssh/config"
_GLOBAL_CONFIG = "/etc/ssh/ssh_config"
_STANDARD_PORT = 22


@dataclass(frozen=True)
class HostSettings:
    """The settings of a login to one host; `jumps` are the hosts on the way, the first one first.

    `identities` are the named private keys; `agent` is the socket of ssh-agent,
    if any, `proxy` the command that opens the connection.
    """

    host: Host
    place: HostKeyAddress
    user: str
    jumps: tuple[Host, ...] = ()
    known: tuple[Path, ...] = ()
    identities: tuple[str, ...] = ()
    agent: str = ""
    proxy: str = ""
    is_named_only: bool = False
    """Whether only `identities` are tried (IdentitiesOnly)."""
    named: dict[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of asyncssh: config, and what the spec and the host as written say."""
    says: frozenset[str] = frozenset()
    """Words of config that have a value."""


def settings_for(access: SSHAccess, host: Host, *, is_jump: bool = False) -> HostSettings:
    """The settings of a host; raises `Unreachable` for config that cannot be read.

    The spec's settings hold for its hosts, and not for jump hosts.
    """
    user = host.user or (None if is_jump else access.user)
    port = host.port or (None if is_jump else access.port)
    key = None if is_jump else access.key
    files = (access.config,) if access.config else _files()
    own = _own_name(host)
    try:
        config = read_config(files, own, user, host.name, port)
        named = login_options(files, own, user, host.name, port)
        jumps = _jumps(config, host)
    except (ConfigParseError, OSError, UnicodeError) as error:
        raise Unreachable(str(host), f"OpenSSH's config cannot be read: {error}") from error
    if user:
        named["username"] = user
    if port:
        named["port"] = port
    identities = [key] if key else cast(list[str], config.get("IdentityFile", []))
    paths = [str(Path(name).expanduser()) for name in identities]
    if paths:
        # asyncssh would give up at the first one that is not there; ssh goes on.
        named["client_keys"] = [path for path in paths if Path(path).is_file()]
    return HostSettings(
        host=host,
        place=_place(access, config, host, user, port, key),
        user=str(config.get("User", own)),
        jumps=jumps,
        known=tuple(
            known_files(config.get("UserKnownHostsFile"), config.get("GlobalKnownHostsFile"))
        ),
        identities=tuple(paths),
        agent=str(config.get("IdentityAgent", os.environ.get("SSH_AUTH_SOCK")) or ""),
        proxy=str(config.get("ProxyCommand") or ""),
        is_named_only=bool(config.get("IdentitiesOnly")),
        named=named,
        says=frozenset(word for word in ("Ciphers", "ConnectTimeout") if config.get(word)),
    )


def _own_name(host: Host) -> str:
    """The local user's name, for OpenSSH's config."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        why = (
            f"user {os.getuid()} has no name on this machine, which OpenSSH's config needs: set USER "
            "in the environment of the notebook or script"
        )
        raise Unreachable(str(host), why) from error


def _files() -> tuple[str, ...]:
    paths = [Path(name).expanduser() for name in (_USER_CONFIG, _GLOBAL_CONFIG)]
    return tuple(str(path) for path in paths if path.is_file())


def _place(
    access: SSHAccess,
    config: Config,
    host: Host,
    user: str | None,
    port: int | None,
    key: str | None,
) -> HostKeyAddress:
    words = ["ssh"]
    words += ["-F", access.config] if access.config else []
    words += ["-i", key] if key else []
    words += ["-p", str(port)] if port else []
    words += [f"{user}@{host.name}" if user else host.name]
    return HostKeyAddress(
        host=str(host),
        name=str(config.get("HostKeyAlias") or config.get("Hostname", host.name)),
        port=int(cast(int, config.get("Port", _STANDARD_PORT))),
        login=shlex.join(words),
    )


def _jumps(config: Config, host: Host) -> tuple[Host, ...]:
    """The hosts on the way; none for the first of them itself, if `Host *` has a ProxyJump."""
    jump = str(config.get("ProxyJump") or "")
    try:
        jumps = tuple(parse_host(text) for text in jump.split(",")) if jump else ()
    except OptionError as error:
        why = f"`ProxyJump {jump}` in OpenSSH's config names no hosts: write [user@]host[:port]"
        raise Unreachable(str(host), why) from error
    port = config.get("Port", _STANDARD_PORT)
    own = [(host.name, port), (config.get("Hostname"), port)]
    is_first = bool(jumps) and (jumps[0].name, jumps[0].port or _STANDARD_PORT) in own
    return () if is_first else jumps
