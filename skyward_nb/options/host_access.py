"""Options that say which hosts a pool lives on and how they are reached, made one value.

Hostfiles and keys are looked for here, so that a pool can be found again from another folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skyward_nb.words.errors import OptionError
from skyward_nb.words.hosts import Host, parse_hostfile, parse_hosts, same_slots
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.ssh_access import SSHAccess

OF_ACCESS = ("hosts", "user", "port", "key", "config", "trust")
"""Options that are fields of `SSHAccess`."""


def implied(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked for, with the provider that `hosts=` means.

    Raises `OptionError` where another one is named beside hosts.
    """
    if "hosts" not in asked:
        return dict(asked)
    provider = asked.get("provider", "ssh")
    if provider != "ssh":
        raise OptionError(
            "provider",
            f"provider={provider} knows no hosts=: that is provider=ssh, or leave it out",
        )
    return {**asked, "provider": provider}


def access_fields(base: PoolSpec, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a spec that follow from hosts: how they are reached, and how many nodes there are.

    Raises `OptionError` for files that are not there, and for options that lack hosts.
    """
    given = [option for option in OF_ACCESS if option in asked]
    if (provider := asked.get("provider", base.provider)) != "ssh":
        if given and "provider" not in asked and provider != "aws":
            raise OptionError(
                given[0], f"{given[0]}= is about hosts to log in to: name them, hosts=gpu1,gpu2"
            )
        return {"ssh": None}
    access = access_of(base.ssh, asked)
    if access is None:
        raise OptionError(
            "hosts", "provider=ssh needs hosts=gpu1,gpu2, or hosts=@hostfile with one on each line"
        )
    fields: dict[str, Any] = {"ssh": access}
    if "hosts" in asked:
        fields["nodes"] = asked.get("nodes", len(access.hosts))
        if "ranks_per_node" not in asked and (slots := same_slots(access.hosts)):
            fields["ranks_per_node"] = slots
    nodes = fields.get("nodes", asked.get("nodes", base.nodes))
    if nodes > len(access.hosts):
        raise OptionError(
            "nodes",
            f"nodes={nodes}, and hosts= has {len(access.hosts)}: a node is one of them; several "
            "ranks on each are ranks_per_node=N",
        )
    return fields


def access_of(base: SSHAccess | None, asked: Mapping[str, Any]) -> SSHAccess | None:
    """How hosts are reached, as is asked for or else as in `base`; None where no host is named."""
    changes = {option: asked[option] for option in OF_ACCESS if option in asked}
    for option in ("key", "config"):
        if option in changes:
            changes[option] = _file(option, changes[option])
    if "hosts" in changes:
        changes["hosts"] = _hosts(changes["hosts"])
    if base is not None:
        return base.having(**changes)
    return SSHAccess(**changes) if "hosts" in changes else None


def _file(option: str, text: str) -> str:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise OptionError(option, f"{option}={text}: there is no such file")
    return str(path)


def _hosts(names: tuple[str, ...]) -> tuple[Host, ...]:
    """Hosts by their names, or those of a hostfile: `@file`, or a path with a slash in it."""
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
        text = path.read_text(encoding="utf-8-sig")  # some editors begin files with a mark
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise OptionError("hosts", f"hosts=@{name} cannot be read: {why}") from None
    return parse_hostfile(text, name)
