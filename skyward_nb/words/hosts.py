"""Hosts as people write them: `gpu1`, `me@gpu1:2222`, `[2001:db8::1]:22`, `ssh://…`, a hostfile. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from skyward_nb.words.errors import OptionError

Trust = Literal["known", "first"]
TRUST = ("known", "first", "values")
"""Words of `trust=`; the last is about what comes from ranks, and no host key."""

_FORM = "a host is written gpu1, me@gpu1, gpu1:2222 or [2001:db8::1]:22"
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.\-]*[A-Za-z0-9_.])?")
_ADDRESS = re.compile(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9_.\-]+)?")
_USER = re.compile(r"[^\s@:/\-][^\s@:/]*")
_MOST_PORTS = 65535


class Host(msgspec.Struct, frozen=True):
    """A machine to log in to: OpenSSH's config has the values for None; `slots` is its number of ranks."""

    name: str
    user: str | None = None
    port: int | None = None
    slots: int | None = None

    @property
    def address(self) -> str:
        """The host as in `ssh://`, without slots; hosts with the same address are one."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        user = f"{self.user}@" if self.user else ""
        return f"{user}{name}:{self.port}" if self.port else f"{user}{name}"

    def __str__(self) -> str:
        return self.name if self.port is None and self.user is None else self.address


class SSHAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts to log in to, and settings for all of them beside OpenSSH's config.

    `user` and `port` are for hosts that name none; `key` is the file of a private key, and `config` is read
    instead of `~/.ssh/config`, like those of `ssh -i` and `ssh -F`. `trust` accepts `known` host keys, or also
    the `first` one of a host, which is pinned. The first hosts of an existing pool are its nodes.
    """

    hosts: tuple[Host, ...]
    user: str | None = None
    port: int | None = None
    key: str | None = None
    config: str | None = None
    trust: Trust = "known"

    def living_on(self, names: Sequence[str]) -> SSHAccess:
        """The same with the hosts of these names first, in that order: they are the nodes."""
        order = {name: at for at, name in enumerate(names)}
        first = sorted(self.hosts, key=lambda host: order.get(str(host), len(order)))
        return replace(self, hosts=tuple(first))


def parse_host(text: str) -> Host:
    """Read a host; raises `OptionError` for other texts."""
    rest = text.strip().removeprefix("ssh://").removesuffix("/")
    user, at, place = rest.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise OptionError("hosts", f"hosts={text}: {user!r} is not a user name; {_FORM}")
    name, port = _name_and_port(text, place)
    if not (_NAME.fullmatch(name) or _ADDRESS.fullmatch(name)):
        raise OptionError("hosts", f"hosts={text}: {name!r} is not a host name; {_FORM}")
    return Host(name, user or None, port)


def _name_and_port(text: str, place: str) -> tuple[str, int | None]:
    if place.startswith("["):
        name, closed, after = place[1:].partition("]")
        if not closed or (after and not after.startswith(":")) or ":" not in name:
            raise OptionError("hosts", f"hosts={text}: {_FORM}")
        port, given = after[1:], bool(after)
    elif place.count(":") > 1:
        name, port, given = place, "", False  # an IPv6 address without a port
    else:
        name, colon, port = place.partition(":")
        given = bool(colon)
    return name, read_port("hosts", port, text) if given else None


def read_port(option: str, port: str, text: str = "") -> int:
    """Read a port; raises `OptionError`, which shows the whole `text`."""
    if not port.isdecimal() or not 0 < int(port) <= _MOST_PORTS:
        shown = text or port
        raise OptionError(
            option, f"{option}={shown}: {port!r} is not a port: give a number of 1 to {_MOST_PORTS}"
        )
    return int(port)


def parse_hosts(texts: Iterable[str]) -> tuple[Host, ...]:
    """Read hosts; raises `OptionError` for other texts, and for a host that is listed twice."""
    hosts = tuple(parse_host(text) for text in texts)
    for index, host in enumerate(hosts):
        if host.address in {other.address for other in hosts[:index]}:
            raise OptionError(
                "hosts",
                f"hosts=: {host} is listed twice; several ranks on one are ranks_per_node=N",
            )
    return hosts


def parse_hostfile(text: str, path: str) -> tuple[Host, ...]:
    """Read a hostfile as mpirun takes it: a host on each line, `slots=8` behind it, `#` comments.

    Raises `OptionError` with the file and the line of the mistake.
    """
    found: dict[str, tuple[Host, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}, line {number}"
        host = _of_line(words, where)
        if (before := found.get(host.address)) is not None:
            raise OptionError(
                "hosts", f"{where}: {host} is listed twice; it is on line {before[1]}, too"
            )
        found[host.address] = host, number
    if not found:
        raise OptionError("hosts", f"{path} names no host: write one on each line")
    return tuple(host for host, _ in found.values())


def _of_line(words: list[str], where: str) -> Host:
    try:
        host = parse_host(words[0])
    except OptionError as error:
        said = error.message.removeprefix("hosts=")
        raise OptionError("hosts", f"{where}: {said}") from None
    slots: int | None = None
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key in ("max_slots", "max-slots"):
            continue  # mpirun's limit of oversubscription, which does not exist here
        if key != "slots" or not value.isdecimal() or int(value) < 1:
            raise OptionError(
                "hosts", f"{where}: {word!r} is unknown; only slots=8 may follow a host"
            )
        slots = int(value)
    return replace(host, slots=slots)


def same_slots(hosts: Iterable[Host]) -> int | None:
    """The number of ranks of each host, if stated; raises `OptionError` if hosts differ."""
    said = {host.slots: host for host in hosts}
    if len(said) > 1:
        shown = ", ".join(f"{host} {slots or 'none'}" for slots, host in said.items())
        raise OptionError(
            "hosts",
            f"hosts=: their slots differ ({shown}), and each node of a pool has as many ranks as "
            "the others: set the number with ranks_per_node=N",
        )
    return next(iter(said), None)
