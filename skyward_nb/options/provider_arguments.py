"""`sky.Local`, `sky.SSH`, `sky.Slurm`, `sky.Kubernetes`, `sky.Ray`, `sky.SkyPilot`, `sky.AWS`: where nodes come from, read like options of a line."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from skyward_nb.options import aws_readers, option_readers
from skyward_nb.options.argument_texts import as_text, of_text
from skyward_nb.options.host_access import OF_ACCESS
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.provider_access import (
    AUTO_ADDRESS,
    AWSAccess,
    KubernetesAccess,
    RayAccess,
    SkyPilotAccess,
    SlurmAccess,
)


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
    of another EC2 server, `instance_profile` the name or ARN of a profile whose role machines have.

    `public_ip` says whether they have public addresses, `jump` is a host on the way or "ssm", `caller` the addresses
    that log in; `tags` are on all that is made. `throughput` is that of the disk in MiB/s. With `warm`, as `"2h"`, machines are stopped
    at the pool's end, and end that much later; the next pool that needs such machines starts them again.
    """

    region: str | None = None
    regions: Sequence[str] | str = ()
    zones: Sequence[str] | str = ()
    instance_type: str | None = None
    ami: str | None = None
    user: str | None = None
    subnet: Sequence[str] | str | None = None
    security_group: str | None = None
    profile: str | None = None
    placement: Literal["auto", "no"] = "auto"
    disk: int | str = 100
    endpoint: str | None = None
    instance_profile: str | None = None
    public_ip: bool | None = None
    jump: str | None = None
    caller: Sequence[str] | str = ()
    tags: Mapping[str, str] | str = ""
    throughput: int | None = None
    reservation: str | None = None
    capacity_block: str | None = None
    warm: float | str | None = None

    name = "aws"


class Slurm(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of a Slurm cluster, by the commands of this machine, or of the host `login`, reached by `ssh`.

    What is left out is left to Slurm. `job` is an allocation that is there: `"current"` is the one in which this
    process is. `extra` has further arguments of sbatch, `modules` are loaded, and the lines `before` run, by the
    batch shell on the first node; the other nodes have the environment that results. `container` is the image in
    which all that runs on nodes runs, as pyxis or apptainer names it. Raises `OptionError`.
    """

    login: str | None = None
    job: str | int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    gres: str | None = None
    exclusive: bool = False
    extra: Sequence[str] = ()
    modules: Sequence[str] = ()
    before: Sequence[str] = ()
    container: str | None = None

    name = "slurm"


class Kubernetes(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of a Kubernetes cluster, by `kubectl` of this machine, with its `context`, or within a pod of the cluster.

    `image` is the container image of the pods (without one: Debian's with this Python), `queue` a LocalQueue of Kueue.
    `pod_overrides` has parts of a pod, `{"spec": {...}, "metadata": {...}}`: maps are merged, None removes, lists are
    made longer, and their items with the same `name` merged. `gpu_key` is the name by which GPUs are counted. Raises `OptionError`.
    """

    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    queue: str | None = None
    service_account: str | None = None
    gpu_key: str | None = None
    pod_overrides: Mapping[str, object] | None = None

    name = "kubernetes"


class Ray(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of a Ray cluster: `"auto"` is that of this machine, or of `RAY_ADDRESS`; else `"ray://HOST:10001"`.

    `resources` are further ones of each node, by Ray's names: `{"TPU": 4}`. `python` is an interpreter that has the
    cluster's release of Ray, where the notebook's own has not. With `waits`, nodes that the cluster lacks now are
    waited for, as its autoscaler may bring them. Raises `OptionError`.
    """

    address: str = AUTO_ADDRESS
    resources: Mapping[str, float] | None = None
    python: str | Path | None = None
    waits: bool = False

    name = "ray"


class SkyPilot(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of the clouds that SkyPilot knows, by its program `sky`, from an environment of its own.

    `infra` is a cloud, or `cloud/region`; without it, the cheapest place that SkyPilot may use. `executable` is the
    program's path, `image_id` an image of the cloud, `disk` is in GB. Raises `OptionError`.
    """

    infra: str | None = None
    executable: str | Path | None = None
    instance_type: str | None = None
    image_id: str | None = None
    disk: int | None = None

    name = "sky"


def with_source(
    asked: PoolOptions, source: Local | SSH | Slurm | Kubernetes | Ray | SkyPilot | AWS
) -> PoolOptions:
    """Options with a provider and its own parts; raises `OptionError`."""
    match source:
        case SSH():
            return _with_ssh(asked, source)
        case Slurm():
            return asked.changed(provider="slurm", slurm=_slurm_access(source))
        case Kubernetes():
            return asked.changed(provider="kubernetes", kubernetes=_kubernetes_access(source))
        case Ray():
            return asked.changed(provider="ray", ray=_ray_access(source))
        case SkyPilot():
            return asked.changed(provider="sky", skypilot=_skypilot_access(source))
        case AWS():
            return asked.changed(provider="aws", aws=_aws_access(source))
        case Local():
            return asked.changed(provider="local")


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
        asked = asked.changed(**{option: of_text(option, option, as_text(option, value))})
    if not asked.hosts:
        raise OptionError("hosts", 'sky.SSH(hosts=[...]): name hosts, such as hosts=["gpu1"]')
    return asked


def _host(value: Any) -> str:
    if not isinstance(value, str) or "," in value:
        raise OptionError(
            "hosts", f"sky.SSH(hosts=[...]) takes texts such as 'gpu1', not {value!r}"
        )
    return value


def _aws_access(aws: AWS) -> AWSAccess:
    """`sky.AWS(...)` with its parts read as options."""
    fields: dict[str, Any] = {}
    for name in AWS.__struct_fields__:
        value: Any = getattr(aws, name)
        if value is None or value == () or (name == "tags" and not value):
            continue
        if name == "tags" and isinstance(value, Mapping):
            fields[name] = _tags(cast(Mapping[Any, Any], value))
            continue
        if name in ("regions", "zones", "subnet", "caller") and isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        fields[name] = _part(name, value)
    others = fields.get("regions", ())
    fields["regions"] = tuple(each for each in others if each != fields.get("region"))
    return AWSAccess(**fields)


def _tags(given: Mapping[Any, Any]) -> tuple[tuple[str, str], ...]:
    """The tags of `sky.AWS(tags={...})`, whose values may have commas."""
    for each in itertools.chain.from_iterable(given.items()):
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise OptionError("tags", f"sky.AWS(tags={given!r}): {each!r} is not text")
    return aws_readers.tag_pairs(
        "tags", str(dict(given)), [(str(key), str(value)) for key, value in given.items()]
    )


_LISTS = ("extra", "modules", "before")
_OF_LINE = {"modules": "module"}


def _slurm_access(slurm: Slurm) -> SlurmAccess:
    """`sky.Slurm(...)` with its parts read as options."""
    fields: dict[str, Any] = {}
    for name in Slurm.__struct_fields__:
        value: Any = getattr(slurm, name)
        if value is None or value == () or value is False:
            continue
        if name == "exclusive":
            if value is not True:
                raise OptionError(name, f"sky.Slurm(exclusive={value!r}): write True or False")
        elif name in _LISTS:
            value = _texts(name, value)
            for text in value if name != "before" else ():
                of_text(name, _OF_LINE.get(name, name), text)
        else:
            value = of_text(name, name, str(value) if name == "job" else as_text(name, value))
        fields[name] = value
    return SlurmAccess(**fields)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    texts: tuple[Any, ...] = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(text, str) for text in texts):
        raise OptionError(name, f"sky.Slurm({name}={value!r}): write a list of text")
    return texts


def _ray_access(ray: Ray) -> RayAccess:
    """`sky.Ray(...)` with its parts read as options."""
    given: Any = ray.resources or {}
    if not isinstance(given, Mapping):
        raise OptionError("resources", f"sky.Ray(resources={given!r}): write {{'TPU': 4}}")
    waits: Any = ray.waits
    if not isinstance(waits, bool):
        raise OptionError("waits", f"sky.Ray(waits={waits!r}): write True or False")
    text = ",".join(f"{name}:{amount}" for name, amount in given.items())  # pyright: ignore[reportUnknownVariableType]
    return RayAccess(
        address=of_text("address", "address", as_text("address", ray.address)),
        resources=of_text("resources", "resources", text) if text else (),
        python=_program("python", ray.python),
        waits=waits,
    )


def _skypilot_access(source: SkyPilot) -> SkyPilotAccess:
    """`sky.SkyPilot(...)` with its parts read as options."""
    infra = source.infra
    disk: Any = source.disk
    if disk is not None and (not isinstance(disk, int) or isinstance(disk, bool) or disk < 1):
        raise OptionError("disk", f"sky.SkyPilot(disk={disk!r}): give GB")
    words = {"instance_type": source.instance_type, "image_id": source.image_id}
    for name, value in words.items():
        given: Any = value
        is_word = isinstance(given, str) and given.isprintable() and given and given[0] != "-"
        if given is not None and not is_word:
            raise OptionError(name, f"sky.SkyPilot({name}={given!r}): write it as text")
    return SkyPilotAccess(
        infra=None if infra is None else of_text("infra", "infra", as_text("infra", infra)),
        executable=_program("executable", source.executable),
        disk=disk,
        **words,
    )


def _program(name: str, value: str | Path | None) -> str | None:
    """The path of a program, absolute; raises `OptionError` for one that is not there."""
    if value is None:
        return None
    path = Path(value).expanduser().absolute()
    if not path.is_file():
        raise OptionError(name, f"{name}={str(value)!r}: there is no such program")
    return str(path)


def _kubernetes_access(source: Kubernetes) -> KubernetesAccess:
    """`sky.Kubernetes(...)` with its parts read as options."""
    fields: dict[str, Any] = {}
    for name in Kubernetes.__struct_fields__:
        value: Any = getattr(source, name)
        if value is None:
            continue
        if name == "pod_overrides":
            fields[name] = _overrides(value)
        elif name == "image":
            fields[name] = option_readers.container_image(name, as_text(name, value))
        elif name == "gpu_key":
            fields[name] = option_readers.resource_name(name, as_text(name, value))
        else:
            fields[name] = of_text(name, name, as_text(name, value))
    return KubernetesAccess(**fields)


def _overrides(value: Any) -> str:
    """The text of overrides; raises `OptionError` for what is no part of a pod."""
    form = 'sky.Kubernetes(pod_overrides={"spec": {...}, "metadata": {...}})'
    if not isinstance(value, Mapping) or {*value} - {"spec", "metadata"}:  # pyright: ignore[reportUnknownArgumentType]
        raise OptionError("pod_overrides", f"write {form}: other parts than these has no pod")
    try:
        text = msgspec.json.encode(value, order="deterministic").decode()
    except (TypeError, ValueError) as error:
        raise OptionError("pod_overrides", f"{form} takes what JSON has: {error}") from None
    return text


def _part(name: str, value: Any) -> Any:
    if name in ("disk", "throughput") and isinstance(value, int) and not isinstance(value, bool):
        return of_text(name, name, str(value))
    if name == "warm" and not isinstance(value, str):
        return of_text(name, name, as_text(name, value))
    if name == "public_ip" and isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise OptionError(name, f"sky.AWS({name}={value!r}): write it as text")
    if name == "placement" and value not in ("auto", "no"):
        raise OptionError(name, f"sky.AWS(placement={value!r}): choose 'auto' or 'no'")
    if name in ("profile", "placement", "endpoint"):
        return value
    option = "region" if name == "regions" else name
    read = of_text(name, option, value)
    if name != "region":
        return read
    if len(read) != 1:
        raise OptionError(name, f"sky.AWS(region={value!r}): name one; others are regions=[...]")
    return read[0]
