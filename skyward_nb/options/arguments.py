"""The arguments of `sky.Compute`, read like options of a line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from skyward_nb.options import aws_readers
from skyward_nb.options.accelerator_choices import AcceleratorChoice
from skyward_nb.options.argument_texts import as_text, of_text
from skyward_nb.options.defaults import defaults, for_new_pool, sources_told
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.options.plugin_options import options_of
from skyward_nb.options.provider_arguments import (
    AWS,
    SSH,
    Kubernetes,
    Local,
    Ray,
    SkyPilot,
    Slurm,
    with_source,
)
from skyward_nb.options.specs import spec_of
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import Options, PoolOptions, Worker
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.volume import Volume, apart, read_volume

AcceleratorLike = str | AcceleratorChoice
MeshLike = str | Mapping[str, int] | Sequence[Sequence[Any]]
TimeLike = float | str | timedelta


Allocation = Literal["spot", "on-demand", "spot-if-available", "cheapest"]
_SPOT = {"spot": "yes", "on-demand": "no", "spot-if-available": "auto", "cheapest": "cheapest"}


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One of several ways to have the nodes of a pool: `sky.Compute(sky.Spec(...), sky.Spec(...))`.

    Its fields are arguments of `sky.Compute`, and those that it leaves out are as they are there.
    """

    provider: Local | SSH | Slurm | Kubernetes | Ray | SkyPilot | AWS | str | None = None
    accelerator: AcceleratorLike | None = None
    nodes: int | None = None
    ranks_per_node: int | Literal["auto"] | None = None
    image: Image | None = None
    cpus: float | str | None = None
    memory: float | str | None = None
    spot: Literal["auto", "yes", "no", "cheapest"] | bool | None = None
    allocation: Allocation | None = None
    max_hourly_cost: float | None = None
    max_cost: float | None = None
    ttl: TimeLike | None = None
    simulate: bool | Literal["cuda"] | None = None


def specs_for(
    default_name: str,
    plugins: Iterable[PluginChoice | Callable[[], PluginChoice]],
    alternatives: Sequence[Spec],
    **arguments: Any,
) -> tuple[PoolSpec, ...]:
    """The specs of `sky.Compute(...)`: one for each alternative, or one without any; raises `OptionError`."""
    if not alternatives:
        return (spec_for(default_name, plugins, **arguments),)
    found: list[PoolSpec] = []
    for number, each in enumerate(alternatives, 1):
        if not isinstance(each, Spec):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                "specs", f"sky.Compute(...) takes sky.Spec(...) in front, not {type(each).__name__}"
            )
        own = {field: getattr(each, field) for field in each.__struct_fields__}
        stated = {field: value for field, value in own.items() if value is not None}
        whole = {**arguments, **stated}
        for argument, (option, _) in SYNONYM_ARGUMENTS.items():
            if {argument, option} & {*stated}:  # they say the same thing
                whole |= {said: stated.get(said) for said in (argument, option)}
        try:
            found.append(spec_for(default_name, plugins, **whole))
        except OptionError as error:
            raise OptionError(error.option, f"sky.Spec number {number}: {error.message}") from None
    return tuple(found)


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
    # Other words for an option come last: what they mean is compared with what is there.
    for argument, value in sorted(arguments.items(), key=lambda each: each[0] in SYNONYM_ARGUMENTS):
        if value is not None:
            read = _with_synonym if argument in SYNONYM_ARGUMENTS else _with_argument
            asked = read(asked, argument, value)
    known = [each for each in defaults(Path.cwd(), os.environ, {}) if each.option != "pool"]
    whole = for_new_pool(ParsedOptions(pool=asked), known)
    if whole.chooses_frameworks:  # functions bring those that they use
        whole = whole.with_chosen(())
    try:
        with sources_told(asked, known):
            return spec_of(PoolSpec(), whole.changed(pool=whole.pool or default_name))
    except OptionError as error:
        worker = arguments.get("worker")
        if worker is None or error.option != "ranks_per_node":
            raise
        said = f"ranks_per_node={worker.concurrency}"
        text = error.message.replace(said, f"worker=sky.Worker(concurrency={worker.concurrency})")
        raise OptionError("worker", text) from None


def _with_argument(asked: PoolOptions, argument: str, value: Any) -> PoolOptions:
    """Options with the value of an argument."""
    option = "pool" if argument == "name" else argument
    match argument, value:
        case "provider", Local() | SSH() | Slurm() | Kubernetes() | Ray() | SkyPilot() | AWS():
            return with_source(asked, value)
        case "env", _:
            return asked.changed(env={**(asked.env or {}), **_env(value)})
        case "options", _:
            return asked.changed(cluster=_cluster_of(value))
        case "image", Image():
            pass
        case "volumes", _:
            value = _volumes(value)
        case (("pip" | "apt"), _):
            value = _packages(argument, value)
        case "trust", _:  # the provider may have said which host keys
            value = (*(asked.trust or ()), *of_text(argument, option, as_text(argument, value)))
        case "ca", os.PathLike():
            value = of_text(argument, option, os.fspath(value))
        case _, timedelta():
            value = value.total_seconds()
        case _:
            value = of_text(argument, option, as_text(argument, value))
    return asked.changed(**{option: value})


def _cluster_of(options: Any) -> bool:
    if not isinstance(options, Options):
        kind = type(options).__name__
        raise OptionError("options", f"options= takes sky.Options(...), not {kind}")
    return options.cluster


def _spot_of(allocation: Any) -> str:
    if not isinstance(allocation, str) or allocation not in _SPOT:
        words = ", ".join(map(repr, _SPOT))
        raise OptionError("allocation", f"allocation={allocation!r}: choose one of {words}")
    return _SPOT[allocation]


def _ranks_of(worker: Any) -> int:
    if not isinstance(worker, Worker):
        kind = type(worker).__name__
        raise OptionError("worker", f"worker= takes sky.Worker(concurrency=...), not {kind}")
    return worker.concurrency


SYNONYM_ARGUMENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "allocation": ("spot", _spot_of),
    "worker": ("ranks_per_node", _ranks_of),
}
"""Arguments that are other words for an option: which one, and what its value is."""


def _with_synonym(asked: PoolOptions, argument: str, value: Any) -> PoolOptions:
    """Options with what an argument means; raises `OptionError` where another one says something else."""
    option, read = SYNONYM_ARGUMENTS[argument]
    have, wanted = getattr(asked, option), read(value)
    if have not in (UNSET, wanted):
        raise OptionError(
            argument,
            f"{argument}= means {option}={wanted}, and {option}={have} is given: leave out one",
        )
    return asked.changed(**{option: wanted})


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise OptionError("env", "env= takes a dictionary of text: env={'NAME': 'value'}")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise OptionError("env", f"env={{{name!r}: ...}}: names and values are text")
    return dict(value)


def _volumes(value: Any) -> tuple[Volume, ...]:
    if isinstance(value, str):
        return aws_readers.volumes("volumes", value)
    given: tuple[Any, ...] = (
        (value,) if isinstance(value, Volume) or not isinstance(value, Iterable) else tuple(value)
    )
    found: list[Volume] = []
    for each in given:
        if not isinstance(each, (Volume, str)):
            kind = type(each).__name__
            raise OptionError("volumes", f"volumes= takes a list of sky.Volume(...), not {kind}")
        found.append(read_volume("volumes", each) if isinstance(each, str) else each)
    return apart(tuple(found))


def _packages(option: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    for text in texts:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise OptionError(option, f"{option}= takes text, or a list of it, not {kind}")
    return texts
