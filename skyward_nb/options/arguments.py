"""The arguments of `sky.Compute`, read like options of a line."""

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
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.options.option_table import BY_NAME
from skyward_nb.options.plugin_options import options_of
from skyward_nb.options.specs import spec_of
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.words.aws_access import AWSAccess
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import Options, PoolOptions
from skyward_nb.words.spec import PoolSpec

AcceleratorLike = str | AcceleratorChoice
MeshLike = str | Mapping[str, int] | Sequence[Sequence[Any]]
TimeLike = float | str | timedelta


class Local(msgspec.Struct, frozen=True):
    """This machine: nodes are groups of its processes, and only its loopback is used."""

    name = "local"


class SSH(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts to log in to. They are the nodes; with a smaller `nodes=`, the first healthy ones are.

    A host is written `gpu1`, `me@gpu1:2222` or `[2001:db8::1]:22`; `hosts="@file"` reads a hostfile.
    OpenSSH's config has the defaults, as for `ssh`. Host keys are always checked: `trust="first"` pins the
    first key that a host shows.
    """

    hosts: Sequence[str] | str
    user: str | None = None
    port: int | None = None
    key: str | Path | None = None
    config: str | Path | None = None
    trust: Literal["known", "first"] | None = None

    name = "ssh"


class AWS(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of EC2, rented with the credentials that boto3 finds, which stay on this machine.

    `regions` are alternatives to `region`, `zones` the only zones to use, and `user` logs in to the image
    `ami`. Without a `region`, AWS's configuration names it; without an `instance_type`, the cheapest that
    fits is rented. `placement="no"` does not put nodes side by side; `disk` is in GB; `endpoint` is the URL
    of another EC2 server.
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
    default_name: str,
    plugins: Iterable[PluginChoice | Callable[[], PluginChoice]] = (),
    /,
    **arguments: Any,
) -> PoolSpec:
    """The spec of the arguments of `sky.Compute`, completed by defaults; raises `OptionError`.

    An argument that is None is not given. Defaults are those of files and of `SKYWARD_*`.
    """
    asked = options_of(plugins, arguments.pop("accelerator", None))
    for argument, value in arguments.items():
        asked = asked if value is None else _with_argument(asked, argument, value)
    known = [each for each in defaults(Path.cwd(), os.environ, {}) if each.option != "pool"]
    whole = with_defaults(ParsedOptions(pool=asked), known).pool
    if whole.chooses_frameworks:  # functions bring those that they use
        whole = whole.with_chosen(())
    return spec_of(PoolSpec(), whole.changed(pool=whole.pool or default_name))


def _with_argument(asked: PoolOptions, argument: str, value: Any) -> PoolOptions:
    """Options with the value of an argument."""
    option = "pool" if argument == "name" else argument
    match argument, value:
        case "provider", SSH():
            return _with_ssh(asked, value)
        case "provider", AWS():
            return asked.changed(provider="aws", aws=_access(value))
        case "env", _:
            return asked.changed(env={**(asked.env or {}), **_env(value)})
        case "options", Options():
            return asked.changed(cluster=value.cluster)
        case "options", _:
            kind = type(value).__name__
            raise OptionError(option, f"options= takes sky.Options(...), not {kind}")
        case "image", Image():
            pass
        case (("pip" | "apt"), _):
            value = _packages(argument, value)
        case "trust", _:  # the provider may have said which host keys
            value = (*(asked.trust or ()), *_of_text(argument, option, _as_text(argument, value)))
        case _, timedelta():
            value = value.total_seconds()
        case _:
            value = _of_text(argument, option, _as_text(argument, value))
    return asked.changed(**{option: value})


def _with_ssh(asked: PoolOptions, ssh: SSH) -> PoolOptions:
    """Options with those of `sky.SSH(...)`."""
    asked = asked.changed(provider="ssh")
    for option in OF_ACCESS:
        value: Any = getattr(ssh, option)
        if value is None:
            continue
        if option == "hosts" and isinstance(value, list | tuple):
            value = ",".join(map(_host, value))
        elif isinstance(value, Path) or (
            option == "port" and isinstance(value, int) and not isinstance(value, bool)
        ):
            value = str(value)
        asked = asked.changed(**{option: _of_text(option, option, _as_text(option, value))})
    if not asked.hosts:
        raise OptionError("hosts", 'sky.SSH(hosts=[...]): name hosts, such as hosts=["gpu1"]')
    return asked


def _host(value: Any) -> str:
    if not isinstance(value, str) or "," in value:
        raise OptionError(
            "hosts", f"sky.SSH(hosts=[...]) takes texts such as 'gpu1', not {value!r}"
        )
    return value


def _access(aws: AWS) -> AWSAccess:
    """`sky.AWS(...)` with its parts read as options."""
    fields: dict[str, Any] = {}
    for name in AWS.__struct_fields__:
        value: Any = getattr(aws, name)
        if value is None or value == ():
            continue
        if name in ("regions", "zones") and isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        fields[name] = _part(name, value)
    others = fields.get("regions", ())
    fields["regions"] = tuple(each for each in others if each != fields.get("region"))
    return AWSAccess(**fields)


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
    """The text of an argument on an option line."""
    match option, value:
        case "provider", Local():
            return "local"
        case "mesh", Mapping():
            return ",".join(f"{name}:{size}" for name, size in value.items())
        case "mesh", list() | tuple():
            return msgspec.json.encode(value).decode()
        case (("simulate" | "spot" | "trust_local_users" | "yes"), bool()):
            return "yes" if value else "no"
        case option, int() | float() if option in _NUMBERS and not isinstance(value, bool):
            return str(value)
        case _, str():
            return value
        case _:
            raise OptionError(option, f"{option}= cannot be {value!r}")


_NUMBERS = {
    "nodes", "ranks_per_node", "ttl", "idle", "grace", "cpus", "memory", "max_cost", "confirm_above",
}  # fmt: skip
"""Arguments that are numbers, or their texts."""


def _of_text(option: str, name: str, text: str) -> Any:
    try:
        return BY_NAME[name].value(text)
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
