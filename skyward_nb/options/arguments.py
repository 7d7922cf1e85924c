"""The arguments of `sky.Compute`, read as options of the magic line are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from skyward_nb.options.accelerator_choices import AcceleratorChoice
from skyward_nb.options.defaults import defaults, with_defaults
from skyward_nb.options.host_access import OF_ACCESS
from skyward_nb.options.option_table import BY_NAME, ParsedOptions, read_option
from skyward_nb.options.plugin_fields import fields_of
from skyward_nb.options.specs import spec_of
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.words.aws_access import AWSAccess
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import Options
from skyward_nb.words.spec import PoolSpec

AcceleratorLike = str | AcceleratorChoice
MeshLike = str | Mapping[str, int] | Sequence[Sequence[Any]]
TimeLike = float | str | timedelta


class Local(msgspec.Struct, frozen=True):
    """This machine: nodes are groups of its processes. No account, no root, nothing beyond loopback."""

    name = "local"


class SSH(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts to log in to: the nodes are those, or the first healthy ones where `nodes=` asks for fewer.

    Each is written `gpu1`, `me@gpu1:2222` or `[2001:db8::1]:22`; `hosts="@file"` reads a hostfile.
    What is left out, OpenSSH's config says, as for `ssh`. Host keys are always checked: with
    `trust="first"` the first one that a host shows is pinned.
    """

    hosts: Sequence[str] | str
    user: str | None = None
    port: int | None = None
    key: str | Path | None = None
    config: str | Path | None = None
    trust: Literal["known", "first"] | None = None

    name = "ssh"


class AWS(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of EC2, rented by credentials that boto3 finds, which stay on this machine.

    `regions` are others that a pool may go to, `zones` the only ones it may be in. `user` is who logs in
    to the image `ami`. What is left out, AWS's configuration says, or the cheapest that fits is taken.
    With `placement="no"` nodes are not put side by side; `disk` has GB, `endpoint` is another server.
    """

    region: str | None = None
    regions: Sequence[str] | str = ()
    zones: Sequence[str] | str = ()
    instance_type: str | None = None
    ami: str | None = None
    user: str | None = None
    subnet: str | None = None
    security_group: str | None = None
    profile: str | None = None
    placement: Literal["auto", "no"] = "auto"
    disk: int = 100
    endpoint: str | None = None

    name = "aws"


def spec_for(
    given: Mapping[str, Any],
    plugins: Iterable[PluginChoice | Callable[[], PluginChoice]],
    name: str,
) -> PoolSpec:
    """The pool that these arguments ask for, completed by defaults; raises `OptionError`.

    Without a name it has this one. Defaults are those of options: of files and of `SKYWARD_*`.
    """
    asked = fields_of(plugins, given.get("accelerator"))
    for option, value in given.items():
        if option != "accelerator":
            asked |= _read(option, value, asked)
    known = defaults(Path.cwd(), os.environ, {})
    whole = with_defaults(
        ParsedOptions(pool=asked), [each for each in known if each.option != "pool"]
    ).pool
    if whole.get("framework") == "auto":
        whole.pop("framework")  # plugins and integrations say it
    return spec_of(PoolSpec(), {"pool": name, **whole})


def _read(option: str, value: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """An argument as options of `spec_of`."""
    if isinstance(value, SSH):
        return _access(value)
    if isinstance(value, AWS):
        return {"provider": "aws", "aws": _rented(value)}
    if option == "env":
        return {option: {**asked.get(option, {}), **_env(value)}}
    if option == "options":
        if not isinstance(value, Options):
            kind = type(value).__name__
            raise OptionError(option, f"options= takes sky.Options(...), not {kind}")
        return {"cluster": value.cluster}
    name = "pool" if option == "name" else option
    if isinstance(value, Image):
        return {name: value}
    if option in ("pip", "apt"):
        return {name: _packages(option, value)}
    if isinstance(value, timedelta):
        return {name: value.total_seconds()}
    return {name: _of_text(option, name, _as_text(option, value))}


def _access(ssh: SSH) -> dict[str, Any]:
    """`sky.SSH(...)` as options."""
    found: dict[str, Any] = {"provider": "ssh"}
    for option in OF_ACCESS:
        value: Any = getattr(ssh, option)
        if value is None:
            continue
        if option == "hosts" and isinstance(value, list | tuple):
            value = ",".join(map(_host, value))
        elif (
            option == "port" and isinstance(value, int) and not isinstance(value, bool)
        ) or isinstance(value, Path):
            value = str(value)
        found[option] = _of_text(option, option, _as_text(option, value))
    if not found.get("hosts"):
        raise OptionError("hosts", 'sky.SSH(hosts=[...]): name hosts, such as hosts=["gpu1"]')
    return found


def _host(value: Any) -> str:
    if not isinstance(value, str) or "," in value:
        raise OptionError(
            "hosts", f"sky.SSH(hosts=[...]) takes texts such as 'gpu1', not {value!r}"
        )
    return value


def _rented(aws: AWS) -> AWSAccess:
    """`sky.AWS(...)` as one value of ours; each part is read as on an option line."""
    fields: dict[str, Any] = {}
    for name in AWS.__struct_fields__:
        value: Any = getattr(aws, name)
        if value is None or value == ():
            continue
        if name in ("regions", "zones") and isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        fields[name] = _part(name, value)
    regions = tuple(each for each in fields.get("regions", ()) if each != fields.get("region"))
    return AWSAccess().having(**{**fields, "regions": regions})


def _part(name: str, value: Any) -> Any:
    if name == "disk":
        if not isinstance(value, int) or isinstance(value, bool) or value < _LEAST_DISK:
            raise OptionError(name, f"sky.AWS(disk={value!r}): give GB of {_LEAST_DISK} or more")
        return value
    if not isinstance(value, str):
        raise OptionError(name, f"sky.AWS({name}={value!r}): write it as text")
    if name == "placement" and value not in ("auto", "no"):
        raise OptionError(name, f"sky.AWS(placement={value!r}): there is 'auto' and 'no'")
    if name in ("profile", "placement", "endpoint"):
        return value
    option = "region" if name == "regions" else name
    read = _of_text(name, option, value)
    if name != "region":
        return read
    if len(read) != 1:
        raise OptionError(name, f"sky.AWS(region={value!r}): name one; others are regions=[...]")
    return read[0]


_LEAST_DISK = 30


def _as_text(option: str, value: Any) -> str:
    """An argument as it would be written on an option line."""
    match option, value:
        case "provider", Local():
            return "local"
        case "mesh", Mapping():
            return ",".join(f"{name}:{size}" for name, size in value.items())
        case "mesh", list() | tuple():
            return msgspec.json.encode(value).decode()
        case (("simulate" | "spot" | "yes"), bool()):
            return "yes" if value else "no"
        case option, int() | float() if option in _NUMBERS and not isinstance(value, bool):
            return str(value)
        case _, str():
            return value
        case _:
            raise OptionError(option, f"{option}= cannot be {value!r}")


_NUMBERS = {
    "nodes",
    "ranks_per_node",
    "ttl",
    "idle",
    "grace",
    "cpus",
    "memory",
    "max_cost",
    "confirm_above",
}
"""Arguments that are numbers, or texts of them."""


def _of_text(option: str, name: str, text: str) -> Any:
    try:
        return read_option(BY_NAME[name], text)
    except OptionError as error:
        raise OptionError(option, error.message.replace(f"{name}=", f"{option}=", 1)) from None


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise OptionError("env", "env= takes a dictionary of text: env={'NAME': 'value'}")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise OptionError("env", f"env={{{name!r}: ...}}: names and values are text")
    return dict(value)


def _packages(option: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    for text in texts:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise OptionError(option, f"{option}= takes text, or a list of it, not {kind}")
    return texts
