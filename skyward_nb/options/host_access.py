"""Turns the options about hosts and logins into a part of a pool's spec.

Paths of hostfiles and keys become absolute, so that a pool can be found from another folder.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from skyward_nb.words.errors import OptionError
from skyward_nb.words.hosts import Host, SSHAccess, Trust, parse_hostfile, parse_hosts, same_slots
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec

OF_ACCESS = ("hosts", "user", "port", "key", "config", "trust")
"""Options that are fields of `SSHAccess`."""


OF_MACHINES = ("cache", "ca")
"""Options about all machines that are not this one."""


def access_options(asked: PoolOptions) -> list[str]:
    """Which of them are stated; `trust=values` is about all pools."""
    stated = [option for option in OF_ACCESS if option in asked.stated]
    return [each for each in stated if each != "trust" or _host_keys(asked)]


def logins_alone(asked: PoolOptions) -> set[str]:
    """Which of them are stated that say nothing without hosts; `trust=` may say more."""
    return {*access_options(asked)} - {"trust"}


def takes_values_alone(asked: PoolOptions) -> bool:
    """Whether ranks are trusted with `values` alone."""
    return "values" in (asked.trust or ())


def _host_keys(asked: PoolOptions) -> Trust | None:
    """The host keys that are to be trusted, if `trust=` says it."""
    words: tuple[str, ...] = asked.trust or ()
    return "first" if "first" in words else "known" if "known" in words else None


def with_provider(asked: PoolOptions) -> PoolOptions:
    """Options with the provider that `hosts=` implies; raises `OptionError` if they name another one."""
    if asked.hosts is UNSET:
        return asked
    provider = asked.provider or "ssh"
    if provider != "ssh":
        raise OptionError(
            "provider",
            f"provider={provider} knows no hosts=: that is provider=ssh, or leave it out",
        )
    return asked.changed(provider=provider)


def _instead(asked: PoolOptions) -> str:
    if asked.provider is UNSET:
        return "name them, hosts=gpu1,gpu2"
    login = ", whose login node is login=USER@HOST" if asked.provider == "slurm" else ""
    return f"it goes with hosts=gpu1,gpu2, and not with provider={asked.provider}{login}"


def with_hosts(spec: PoolSpec, asked: PoolOptions) -> PoolSpec:
    """A spec with the requested hosts, and the numbers of nodes and ranks that they imply.

    Raises `OptionError` for missing files, and for options that need hosts.
    """
    check_elsewhere(spec, asked)
    if spec.provider != "ssh":
        given = access_options(asked) if asked.provider is UNSET else sorted(logins_alone(asked))
        if given and spec.provider != "aws":
            raise OptionError(
                given[0], f"{given[0]}= is about hosts to log in to: {_instead(asked)}"
            )
        return replace(spec, ssh=None)
    access = access_of(spec.ssh, asked)
    if access is None:
        raise OptionError(
            "hosts", "provider=ssh needs hosts=gpu1,gpu2, or hosts=@hostfile with one on each line"
        )
    spec = replace(spec, ssh=access)
    if asked.hosts is not UNSET:
        spec = replace(spec, nodes=asked.nodes or len(access.hosts))
        if asked.ranks_per_node is UNSET and (slots := same_slots(access.hosts)):
            spec = replace(spec, ranks_per_node=slots)
    if spec.nodes > len(access.hosts):
        raise OptionError(
            "nodes",
            f"nodes={spec.nodes}, and hosts= has {len(access.hosts)}: a node is one of them; several "
            "ranks on each are ranks_per_node=N",
        )
    return spec


def access_of(base: SSHAccess | None, asked: PoolOptions) -> SSHAccess | None:
    """The requested access to hosts, completed by `base`; None without hosts."""
    hosts = base.hosts if base is not None else ()
    key = _file("key", asked.key) if asked.key is not UNSET else None
    config = _file("config", asked.config) if asked.config is not UNSET else None
    if asked.hosts is not UNSET:
        hosts = _hosts(asked.hosts)
    elif base is None:
        return None
    access = base or SSHAccess(hosts=hosts)
    return SSHAccess(
        hosts=hosts,
        user=asked.user or access.user,
        port=asked.port or access.port,
        key=key or access.key,
        config=config or access.config,
        trust=_host_keys(asked) or access.trust,
    )


def certificates(option: str, text: str) -> str:
    """The whole path of a file of certificates here, in the form that `openssl` calls PEM."""
    path = _file(option, text)
    try:
        begins = b"-----BEGIN CERTIFICATE-----" in Path(path).read_bytes()
    except OSError as error:
        raise OptionError(option, f"{option}={text} cannot be read: {error.strerror}") from None
    if not begins:
        raise OptionError(
            option,
            f"{option}={text} has no certificate in text form (-----BEGIN CERTIFICATE-----): `openssl x509 "
            f"-inform der -in {text} -out ca.pem` makes that of one in binary form",
        )
    return path


def elsewhere_alone(options: PoolOptions) -> set[str]:
    """The options that are of no use to these, as ranks are on this machine."""
    is_here = options.provider in (UNSET, "local") and options.hosts is UNSET
    return {*OF_MACHINES} if is_here else set()


def check_elsewhere(spec: PoolSpec, asked: PoolOptions) -> None:
    """Raise `OptionError` for options of machines elsewhere where ranks are on this one."""
    given = [option for option in OF_MACHINES if option in asked.stated]
    if given and not spec.is_elsewhere:
        raise OptionError(
            given[0],
            f"{given[0]}= is about machines elsewhere: name hosts, hosts=gpu1,gpu2, or leave it out. What ranks "
            "here have is what the notebook or script has; SKYWARD_CACHE_DIR and SSL_CERT_FILE in its environment hold",
        )


def _file(option: str, text: str) -> str:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise OptionError(option, f"{option}={text}: there is no such file")
    return str(path)


def _hosts(names: tuple[str, ...]) -> tuple[Host, ...]:
    """The hosts of names, or of a hostfile: `@file`, or a path with a slash."""
    (first,) = names if len(names) == 1 else [""]
    if first.startswith("@"):
        return _of_file(first[1:])
    if "/" in first and not first.startswith("ssh://"):
        return _of_file(first)
    if first and Path(first).is_file():
        raise OptionError("hosts", f"hosts={first} is a file here: write hosts=@{first}")
    return parse_hosts(names)


def _of_file(name: str) -> tuple[Host, ...]:
    path = Path(name).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise OptionError("hosts", f"hosts=@{name} cannot be read: {why}") from None
    return parse_hostfile(text, name)
