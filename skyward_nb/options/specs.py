"""The pool that an option line asks for, and whether one that is up is that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from skyward_nb.names.included_modules import located
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.options.host_access import OF_ACCESS, access_fields, access_of
from skyward_nb.options.plugin_fields import fields_of
from skyward_nb.options.rental_options import NOT_OF_SPEC, OF_AWS, aws_fields, aws_of
from skyward_nb.plugins.base import find_plugin, uses_of
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.plugins.keras_plugin import settled
from skyward_nb.protocol.commands import PluginUse
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.frameworks import lacking, meant, with_what_they_need
from skyward_nb.words.image import Image, checked_env
from skyward_nb.words.info import InstanceInfo, environment
from skyward_nb.words.masking import masked
from skyward_nb.words.mesh import spell_mesh
from skyward_nb.words.spec import IDLE_ELSEWHERE, PoolSpec

_OF_IMAGES = ("image", "python", "pip", "apt")


def spec_of(base: PoolSpec, asked: Mapping[str, Any]) -> PoolSpec:
    """`base` with what is asked for; raises `OptionError` where options contradict one another."""
    fields = {**_fields(asked), **access_fields(base, asked), **aws_fields(base, asked)}
    spec = replace(base, **fields, image=image_of(base.image, asked))
    if "idle" not in asked and spec.is_elsewhere and not base.is_elsewhere:
        spec = replace(spec, idle=IDLE_ELSEWHERE)
    checked_env(spec.env)
    _check_alone(spec)
    spec = replace(spec, framework=settled(spec.framework, spec.variables))
    _check_variables(spec, environment(InstanceInfo()))
    if spec.mig and spec.accelerator is None:
        raise OptionError(
            "mig", f"mig={spec.mig} needs accelerator=..., the GPU that is cut: accelerator=A100"
        )
    if spec.partition and not spec.mig:
        raise OptionError("partition", "partition cuts GPUs into slices, and needs mig=3g.40gb")
    _check_shares(spec)
    if spec.backend == "nccl" and (spec.accelerator is None or spec.simulate):
        raise OptionError("backend", "backend=nccl needs GPUs: ask for accelerator=..., or gloo")
    if spec.simulate and spec.accelerator is None:
        raise OptionError("simulate", "simulate stands in for accelerator=..., which is missing")
    uses = uses_of(spec)
    _check_variables(spec, _of_the_place(uses))
    frameworks = {use.name for use in uses}
    if "torch" not in frameworks and spec.backend != "auto":
        raise OptionError("backend", f"backend={spec.backend} needs framework=torch")
    if "torch" not in frameworks and spec.collective_timeout is not None:
        raise OptionError("collective_timeout", "collective_timeout= needs framework=torch")
    if spec.mesh and not frameworks & {"torch", "jax"}:
        has = f": framework={','.join(spec.framework)} has no meshes" if spec.framework else ""
        raise OptionError(
            "mesh",
            f"mesh={spell_mesh(spec.mesh)} needs framework=torch, or jax, or keras:jax{has}",
        )
    return spec


def _check_alone(spec: PoolSpec) -> None:
    """Raise `OptionError` for what joins the ranks of nodes that are to stand alone."""
    asked = {"framework": ",".join(spec.framework), "mesh": spell_mesh(spec.mesh)}
    for option, text in asked.items():
        if text and not spec.cluster:
            raise OptionError(
                "cluster",
                f"{option}={text} joins all ranks of a pool, and with sky.Options(cluster=False) each "
                "node stands alone. Leave out one of the two: what is installed can be imported there "
                "without a plugin.",
            )


def _check_variables(spec: PoolSpec, own: Iterable[str]) -> None:
    """Raise `OptionError` where env= has variables of which each rank has its own."""
    if reserved := sorted(set(spec.variables) & set(own)):
        names = ", ".join(reserved)
        raise OptionError("env", f"env= cannot set {names}: each rank has its own")


def _of_the_place(uses: Iterable[PluginUse]) -> set[str]:
    """The variables of plugins that say where a rank stands, and so are its own."""
    here, elsewhere = InstanceInfo(), InstanceInfo(rank=1, world_size=2, head_port=1)
    return {
        name
        for use in uses
        for name, value in find_plugin(use.name).env(here, use.options).items()
        if find_plugin(use.name).env(elsewhere, use.options).get(name) != value
    }


def _check_shares(spec: PoolSpec) -> None:
    """Raise `OptionError` where ranks would share a GPU, or a slice of one, that cannot."""
    if not spec.accelerator or spec.slots <= spec.devices or (spec.simulate and not spec.mig):
        return
    if not spec.mig and spec.backend == "gloo":
        return
    has = f"{spec.accelerator}, cut into {spec.devices} × {spec.mig}" * bool(spec.mig)
    why = "NCCL wants one for each rank" if spec.backend == "nccl" else "two ranks do not share one"
    way = ". With framework=torch backend=gloo they share: slower, and enough to try things out"
    raise OptionError(
        "ranks_per_node",
        f"ranks_per_node={spec.slots}: a node has {has or spec.accelerator}, and {why}"
        f"{way * (not spec.mig)}",
    )


def check_profile(spec: PoolSpec, profile: str | None) -> None:
    """Raise `OptionError` where a run cannot be recorded as asked for."""
    frameworks = with_what_they_need(spec.framework)
    if not profile or "torch" in frameworks:
        return
    instead = ""
    if "jax" in frameworks:
        instead = (
            "; for JAX, `with jax.profiler.trace(folder):` in the cell records one for TensorBoard"
        )
    raise OptionError(
        "profile",
        f"profile={profile} needs framework=torch, and the pool is made with "
        f"framework={','.join(spec.framework) or 'none'}{instead}",
    )


def readied_for(spec: PoolSpec, choices: Iterable[PluginChoice]) -> PoolSpec:
    """A pool's spec with the plugins that functions ask for besides.

    Raises `OptionError` where the pool is made otherwise, as with another backend.
    """
    choices = tuple(choices)
    asked = fields_of(choices)
    plain = PoolSpec()
    for name, wanted in asked.items():
        have = getattr(spec, name)
        if name not in ("framework", "env") and have not in (wanted, getattr(plain, name)):
            raise OptionError(
                name,
                f"{choices[0]!r} on the function asks for {name}={_spell(wanted)}, and the pool is made "
                f"with {name}={_spell(have)}: have them say the same",
            )
    if "framework" in asked:
        asked["framework"] = tuple(dict.fromkeys((*spec.framework, *asked["framework"])))
    if "env" in asked:
        asked["env"] = {**spec.env, **asked["env"]}
    return spec_of(spec, asked)


def image_of(base: Image, asked: Mapping[str, Any]) -> Image:
    """The image that is asked for, or `base`, with what else is asked of it; its modules found.

    Raises `OptionError` for modules that are not there, and for what is no image.
    """
    image = asked.get("image", base)
    if isinstance(image, str):
        raise OptionError("image", f"image={image} names an sky.Image of a notebook; there is none")
    if not isinstance(image, Image):
        kind = type(image).__name__
        raise OptionError("image", f"image= takes an sky.Image(pip=[...], ...), not {kind}")
    image = image.having(asked.get("python"), asked.get("pip", ()), asked.get("apt", ()))
    return replace(image, includes=located(image.includes, Path.cwd()))


def _fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        ("name" if key == "pool" else key): value
        for key, value in asked.items()
        if key not in (*_OF_IMAGES, *OF_ACCESS, *NOT_OF_SPEC)
    }


def check_fits(spec: PoolSpec, asked: Mapping[str, Any]) -> None:
    """Raise `PoolError` where a pool that is up is not what is asked for."""
    for field, wanted in _fields(asked).items():
        if field == "confirm_above":
            continue  # it costs what it costs
        have = getattr(spec, field)
        if have != wanted and not (field == "framework" and meant(wanted, have)):
            option = "pool" if field == "name" else field
            said = f"{option}={_spell(wanted, option)} was asked for"
            raise _differs(spec, option, have, said)
    _check_access(spec, asked)
    _check_rented(spec, asked)
    if not {*_OF_IMAGES} & {*asked}:
        return
    wanted = image_of(Image(), asked)
    if spec.image.lacks(wanted) or ("image" in asked and wanted != spec.image):
        raise _differs(spec, "image", spec.image, f"image={_spell(wanted)} was asked for")


def _check_access(spec: PoolSpec, asked: Mapping[str, Any]) -> None:
    if not {*OF_ACCESS} & {*asked} or spec.aws is not None:
        return
    access = access_of(spec.ssh, asked)
    for option in OF_ACCESS:
        have, wanted = getattr(spec.ssh, option, None), getattr(access, option, None)
        if option == "hosts" and have and wanted and {*have} == {*wanted}:
            continue  # the order is that of the nodes
        if have != wanted:
            raise _differs(spec, option, have, f"{option}={_spell(wanted)} was asked for")


def _check_rented(spec: PoolSpec, asked: Mapping[str, Any]) -> None:
    given = [option for option in (*OF_AWS, "user") if option in asked]
    if not given or (spec.aws is None and given == ["user"]):
        return
    access = aws_of(spec.aws, asked)
    for option in given:
        field = "profile" if option == "aws_profile" else option
        have, wanted = getattr(spec.aws, field, None), getattr(access, field)
        if have != wanted:
            raise _differs(spec, option, have, f"{option}={_spell(wanted)} was asked for")


def check_choice(spec: PoolSpec, choice: FrameworkChoice) -> str:
    """What a pool that is up has, for who asks for `framework=auto`.

    Raises `PoolError` where it lacks what would be chosen.
    """
    if lacking(choice.words, spec.framework):
        have = spec.framework
        raise _differs(spec, "framework", have, f"framework=auto means {choice.told}")
    return f"framework=auto: pool {spec.name} has {_spell(spec.framework)}"


def _differs(spec: PoolSpec, option: str, have: object, wanted: str) -> PoolError:
    return PoolError(
        spec.name,
        f"pool {spec.name!r} is up with {option}={_spell(have, option)}, and {wanted}. "
        f"Either `%sky down pool={spec.name}` first, or take another: pool=NAME. Left out, the "
        "pool is used as it is.",
    )


def _spell(value: object, option: str = "") -> str:
    match value:
        case None | ():
            return "none"
        case ((str(), int()), *_) as axes:
            return ",".join(f"{name}:{size}" for name, size in axes)
        case tuple():
            return ",".join(map(str, value))
        case dict():
            return ",".join(f"{key}={item}" for key, item in masked(value).items()) or "none"
        case float() if option == "max_cost":
            return f"{value:g}"
        case float():
            return f"{value:g}s"
        case _:
            return str(value)
