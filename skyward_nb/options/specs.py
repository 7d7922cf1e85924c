"""The spec of a pool from options, and whether an existing pool meets them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from skyward_nb.names.included_modules import located
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.options.host_access import (
    OF_ACCESS,
    access_of,
    access_options,
    takes_values_alone,
    with_hosts,
)
from skyward_nb.options.kubernetes_options import (
    container_image,
    kubernetes_of,
    kubernetes_options,
    with_kubernetes,
)
from skyward_nb.options.plugin_options import options_of
from skyward_nb.options.ray_options import ray_of, ray_options, with_ray
from skyward_nb.options.rental_options import OF_AWS, aws_of, with_rental
from skyward_nb.options.skypilot_options import skypilot_of, skypilot_options, with_skypilot
from skyward_nb.options.slurm_options import (
    ALSO_OF_AWS,
    OF_SLURM,
    slurm_of,
    slurm_options,
    with_slurm,
)
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.plugins.keras_plugin import settled
from skyward_nb.plugins.plugin_table import find_plugin, uses_of
from skyward_nb.protocol.commands import PluginUse
from skyward_nb.words.errors import OptionError, PoolError, spell_size
from skyward_nb.words.frameworks import lacking, with_what_they_need
from skyward_nb.words.image import Image, checked_env
from skyward_nb.words.info import InstanceInfo, environment
from skyward_nb.words.masking import masked
from skyward_nb.words.mesh import spell_mesh
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import IDLE_ELSEWHERE, PoolSpec

_ALONE = "no process group of {}: with cluster=no each node stands alone"
_OF_FRAMEWORKS = ("backend", "collective_timeout", "mesh")
"""Options that say more of a framework, and come with one that is added."""
_OF_IMAGES = ("image", "python", "pip", "apt")
_OF_PROVIDERS = ("ssh", "slurm", "kubernetes", "ray", "skypilot", "aws")
_OF_SPEC = ("pool", *({*PoolSpec.__struct_fields__} - {*_OF_IMAGES, *_OF_PROVIDERS}))


def spec_of(base: PoolSpec, asked: PoolOptions) -> PoolSpec:
    """`base` with the requested options; raises `OptionError` if they contradict one another."""
    spec = with_slurm(with_hosts(replace(base, **_fields(asked)), asked), asked)
    spec = with_skypilot(with_ray(with_kubernetes(spec, asked), asked), asked)
    spec = with_rental(spec, asked)
    spec = replace(spec, image=image_of(base.image, asked))
    if asked.idle is UNSET and spec.is_elsewhere and not base.is_elsewhere:
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
    if spec.resume and not spec.checkpoint:
        raise OptionError("resume", "resume needs a checkpoint to go on from: add checkpoint=...")
    if spec.backend == "nccl" and spec.accelerator is None:
        raise OptionError("backend", "backend=nccl needs GPUs: ask for accelerator=..., or gloo")
    if spec.simulate and spec.accelerator is None:
        raise OptionError("simulate", "simulate stands in for GPUs: add accelerator=...")
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
            "mesh", f"mesh={spell_mesh(spec.mesh)} needs framework=torch, or jax, or keras:jax{has}"
        )
    return spec


def _check_alone(spec: PoolSpec) -> None:
    """Raise `OptionError` for options that join all ranks if nodes are to stand alone."""
    asked = {"framework": ",".join(spec.framework), "mesh": spell_mesh(spec.mesh)}
    for option, text in asked.items():
        if text and not spec.cluster:
            raise OptionError(
                "cluster",
                f"{option}={text} joins all ranks of a pool, and with cluster=no, in Python "
                "sky.Options(cluster=False), each node stands alone. Leave out one of the two: what is installed can be imported there "
                "without a plugin.",
            )


def _check_variables(spec: PoolSpec, own: Iterable[str]) -> None:
    """Raise `OptionError` if env= sets variables that differ between ranks."""
    if reserved := sorted(set(spec.variables) & set(own)):
        names = ", ".join(reserved)
        raise OptionError("env", f"env= cannot set {names}: each rank has its own")


def _of_the_place(uses: Iterable[PluginUse]) -> set[str]:
    """The variables of plugins that differ between ranks."""
    here, elsewhere = InstanceInfo(), InstanceInfo(rank=1, world_size=2, head_port=1)
    return {
        name
        for use in uses
        for name, value in find_plugin(use.name).env(here, use.options).items()
        if find_plugin(use.name).env(elsewhere, use.options).get(name) != value
    }


def _check_shares(spec: PoolSpec) -> None:
    """Raise `OptionError` if ranks would share a GPU or a slice that they cannot share."""
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
    """Raise `OptionError` if a pool cannot record the profile of a run."""
    if not profile or {"torch", "jax"}.intersection(with_what_they_need(spec.framework)):
        return
    raise OptionError(
        "profile",
        f"profile={profile} needs framework=torch or jax, and the pool is made with "
        f"framework={','.join(spec.framework) or 'none'}",
    )


def readied_for(spec: PoolSpec, choices: Iterable[PluginChoice]) -> PoolSpec:
    """A pool's spec with the plugins that functions add.

    Raises `OptionError` if the pool has other options, such as another backend.
    """
    choices = tuple(choices)
    asked, who = options_of(choices), f"{choices[0]!r} on the function asks"
    if others := _other_variants(spec, asked.framework or ()):
        raise OptionError(
            "framework",
            f"{who} for {_spell(asked.framework)}, and the pool is made with framework="
            f"{_spell(others)}: use the same for both",
        )
    return _with_frameworks(spec, asked, who)


def _with_frameworks(spec: PoolSpec, asked: PoolOptions, who_asks: str) -> PoolSpec:
    plain = PoolSpec()
    for name in asked.without(("framework", "env")).stated:
        have, wanted = getattr(spec, name), getattr(asked, name)
        if have not in (wanted, getattr(plain, name)):
            raise OptionError(
                name,
                f"{who_asks} for {name}={_spell(wanted)}, and the pool is made "
                f"with {name}={_spell(have)}: use the same value for both",
            )
    framework = tuple(dict.fromkeys((*spec.framework, *(asked.framework or ()))))
    return spec_of(spec, asked.changed(framework=framework, env={**spec.env, **(asked.env or {})}))


def extended(spec: PoolSpec, asked: PoolOptions) -> PoolSpec:
    """The spec of a pool that is up, with the frameworks and the packages that a line adds to it.

    Raises `PoolError` where the pool has other options than are asked for.
    """
    spec, asked = _with_packages(spec, asked)
    words: tuple[str, ...] = asked.framework or ()
    added = lacking(words, spec.framework)
    if not added:
        check_fits(spec, asked.without(["framework"]) if words else asked)
        return spec
    _check_variants(spec, added, f"framework={_spell(words)} was asked for")
    check_fits(spec, asked.without(("framework", *_OF_FRAMEWORKS)))
    more = asked.without(set(asked.stated) - {*_OF_FRAMEWORKS})
    line = f"framework={_spell(words)} on the line asks"
    return _with_frameworks(spec, more.changed(framework=added), line)


def _with_packages(spec: PoolSpec, asked: PoolOptions) -> tuple[PoolSpec, PoolOptions]:
    """The spec with the packages of `pip=` and `apt=`, and the options without those.

    With an image on the line they belong to that one, which is compared whole.
    """
    if asked.image is not UNSET or not {"pip", "apt"} & {*asked.stated}:
        return spec, asked
    image = spec.image.having(None, asked.pip or (), asked.apt or ())
    rest = asked.without(("pip", "apt"))
    return (spec if image == spec.image else replace(spec, image=image)), rest


def made_by_choice(
    options: PoolOptions, choice: FrameworkChoice, *, asked: bool, words: tuple[str, ...] = ()
) -> tuple[PoolSpec, str]:
    """The spec of a pool to be made, with the frameworks that code needs, and a note on those or "".

    They come to these `words`; `asked` is as for `extended_by_choice`. Raises `OptionError`.
    """
    added = lacking(choice.words, words)
    if added and not asked and options.cluster is False:
        return spec_of(PoolSpec(), options.with_chosen(words)), _ALONE.format(_spell(added))
    spec = spec_of(PoolSpec(), options.with_chosen((*words, *added)))
    return spec, str(choice) if asked or added else ""


def _check_variants(spec: PoolSpec, added: Iterable[str], wanted: str) -> None:
    """Raise `PoolError` where a framework is to be added that the pool has in another variant."""
    have = with_what_they_need(spec.framework)
    if any(word.partition(":")[0] in have for word in added):
        raise _differs(spec, "framework", spec.framework, wanted)


def extended_by_choice(
    spec: PoolSpec, choice: FrameworkChoice, *, asked: bool
) -> tuple[PoolSpec, str]:
    """The spec of a pool that is up, with the frameworks that code needs, and a note on that or "".

    Where nobody `asked` for `framework=auto`, one that cannot be added is told by the note; else this
    raises `OptionError` or `PoolError`.
    """
    added = lacking(choice.words, spec.framework)
    if not added:
        has = f"framework=auto: pool {spec.name} has {_spell(spec.framework)}"
        return spec, has if asked else ""
    if not asked and not spec.framework and not spec.adds_frameworks:
        return spec, ""  # framework=none is what somebody wanted
    if not asked and (why := _why_not_added(spec, added)):
        return spec, why
    _check_variants(spec, added, f"framework=auto means {choice.told}")
    line = f"framework=auto ({choice.why}) asks"
    return _with_frameworks(spec, PoolOptions(framework=added), line), str(choice)


def without_other_variants(spec: PoolSpec, words: Iterable[str]) -> PoolSpec:
    """The spec without the frameworks that these words name in another variant."""
    others = _other_variants(spec, words)
    return replace(spec, framework=tuple(word for word in spec.framework if word not in others))


def _other_variants(spec: PoolSpec, words: Iterable[str]) -> tuple[str, ...]:
    """The frameworks of a spec that these words name in another variant."""
    wanted = with_what_they_need(words)
    parts = [(word, *word.partition(":")[::2]) for word in spec.framework]
    return tuple(word for word, name, variant in parts if wanted.get(name, "") not in ("", variant))


def _why_not_added(spec: PoolSpec, added: tuple[str, ...]) -> str:
    """Why frameworks that code needs are not added to a pool that is up, unless somebody asks for it; else ""."""
    if not spec.cluster:
        return _ALONE.format(_spell(added))
    others, have = with_what_they_need(spec.framework), _spell(spec.framework)
    if any(word.partition(":")[0] in others for word in added):
        why = f"pool {spec.name} has {have}; framework={_spell(added)} replace makes it anew"
    elif not spec.adds_frameworks:
        why = f"pool {spec.name} was made with framework={have}; framework={_spell(added)} adds it"
    elif spec.is_elsewhere:
        why = (
            f"pool {spec.name} was made without it; framework={_spell(added)} adds it where its "
            "machines have the packages"
        )
    else:
        return ""
    return f"no process group of {_spell(added)}: {why}"


def image_of(base: Image, asked: PoolOptions) -> Image:
    """The requested image, or `base`, with the requested Python, packages and modules.

    Raises `OptionError` for modules that do not exist, and for values of other types.
    """
    is_pods = container_image(asked) is not None
    image: Any = base if asked.image is UNSET or is_pods else asked.image
    if isinstance(image, str):
        raise OptionError(
            "image", f"image={image} names a sky.Image of a notebook, and this is not one"
        )
    if not isinstance(image, Image):
        kind = type(image).__name__
        raise OptionError("image", f"image= takes a sky.Image(pip=[...], ...), not {kind}")
    image = image.having(asked.python or None, asked.pip or (), asked.apt or ())
    return replace(image, includes=located(image.includes, Path.cwd()))


def _fields(asked: PoolOptions) -> dict[str, object]:
    """The fields of a spec that options state directly."""
    stated = [option for option in asked.stated if option in _OF_SPEC]
    if isinstance(asked.partition, str):  # Slurm's
        stated.remove("partition")
    fields: dict[str, object] = {
        ("name" if each == "pool" else each): getattr(asked, each) for each in stated
    }
    return {**fields, "only_values": True} if takes_values_alone(asked) else fields


def check_fits(spec: PoolSpec, asked: PoolOptions) -> None:
    """Raise `PoolError` if an existing pool has other options than the requested ones."""
    for option, have, wanted in _compared(spec, asked):
        if have != wanted:
            raise _differs(spec, option, have, f"{option}={_spell(wanted, option)} was asked for")
    if {*_OF_IMAGES} & {*asked.stated}:
        image = image_of(Image(), asked)
        is_stated = asked.image is not UNSET and container_image(asked) is None
        if spec.image.lacks(image) or (is_stated and image != spec.image):
            raise _differs(spec, "image", spec.image, f"image={_spell(image)} was asked for")


def _compared(spec: PoolSpec, asked: PoolOptions) -> Iterator[tuple[str, object, object]]:
    """(option, value of the pool, requested value) of each option that may differ."""
    fields = _fields(asked)
    if fields.pop("only_values", False):
        yield "trust", "values" if spec.only_values else "all", "values"
    for field, wanted in fields.items():
        have = getattr(spec, field)
        if field != "confirm_above":  # a pool that is up needs no consent
            yield "pool" if field == "name" else field, have, wanted
    if spec.aws is None and access_options(asked):
        access = access_of(spec.ssh, asked)
        for option in OF_ACCESS:
            have, wanted = getattr(spec.ssh, option, None), getattr(access, option, None)
            if option != "hosts" or {*(have or ())} != {*(wanted or ())}:  # nodes order them
                yield option, have, wanted
    yield from _compared_jobs(spec, asked)
    rented = [option for option in (*OF_AWS, ALSO_OF_AWS, "user") if option in asked.stated]
    if rented and not (spec.aws is None and {*rented} <= {"user", ALSO_OF_AWS}):
        access = aws_of(spec.aws, asked)
        for option in rented:
            field = "profile" if option == "aws_profile" else option
            yield option, getattr(spec.aws, field, None), getattr(access, field)


def _compared_jobs(spec: PoolSpec, asked: PoolOptions) -> Iterator[tuple[str, object, object]]:
    given = slurm_options(asked)
    access = slurm_of(spec.slurm, asked)
    for option in given if spec.slurm is not None else ():
        yield option, getattr(spec.slurm, OF_SLURM[option]), getattr(access, OF_SLURM[option])
    pods = kubernetes_of(spec.kubernetes, asked)
    for option in kubernetes_options(asked) if spec.kubernetes is not None else ():
        yield option, getattr(spec.kubernetes, option), getattr(pods, option)
    for option in ray_options(asked) if spec.ray is not None else ():
        yield option, getattr(spec.ray, option), getattr(ray_of(spec.ray, asked), option)
    for option in skypilot_options(asked) if spec.skypilot is not None else ():
        rents = skypilot_of(spec.skypilot, asked)
        yield option, getattr(spec.skypilot, option), getattr(rents, option)


def _differs(spec: PoolSpec, option: str, have: object, wanted: str) -> PoolError:
    return PoolError(
        spec.name,
        f"pool {spec.name!r} is up with {option}={_spell(have, option)}, and {wanted}. "
        f"Either `%sky down pool={spec.name}` first, or take another: pool=NAME. Left out, the "
        "pool is used as it is.",
    )


def _spell(value: object, option: str = "") -> str:
    match value:
        case "":
            return "no"
        case None | ():
            return "none"
        case ((str(), int()), *_) as axes:
            return ",".join(f"{name}:{size}" for name, size in axes)
        case tuple():
            return ",".join(map(str, value))
        case dict():
            return ",".join(f"{key}={item}" for key, item in masked(value).items()) or "none"
        case int() if option == "memory_limit":
            return spell_size(value).replace(" ", "")
        case float() if option in ("max_cost", "max_hourly_cost"):
            return f"{value:g}"
        case float():
            return f"{value:g}s"
        case _:
            return str(value)
