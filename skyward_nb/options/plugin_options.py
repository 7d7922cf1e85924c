"""The options that plugins state, and whether a pool meets them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from skyward_nb.options.accelerator_choices import AcceleratorChoice
from skyward_nb.options.accelerator_choices import chosen as chosen_accelerator
from skyward_nb.plugins import choices as known
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import with_what_they_need
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec

_Place = tuple[str, str]
"""(option, variable of it), for which two plugins may state different values."""


def options_of(
    choices: Iterable[PluginChoice | Callable[[], PluginChoice]] = (),
    accelerator: str | AcceleratorChoice | None = None,
) -> PoolOptions:
    """The options that plugins and an accelerator state.

    Raises `OptionError` if two contradict one another, naming both, and for values of other types.
    """
    given: Any = choices
    if not isinstance(given, Iterable):
        raise OptionError("plugins", f"plugins= takes a list: plugins=[{given!r}]")
    chosen = tuple(map(_choice, choices))
    stated = _of_accelerator(accelerator)
    for each in chosen:
        for place, value in _of_choice(each):
            before, by = stated.setdefault(place, (value, each))
            if before != value:
                raise OptionError("plugins", f"{by!r} and {each!r} say different things")
    no_frameworks = ("mig", *known.OF_JOBS)
    words = dict.fromkeys(each.word for each in chosen if each.word not in no_frameworks)
    if any(word.startswith("keras:") for word in words):
        words.pop("keras", None)
    found: dict[str, Any] = {"framework": tuple(words)} if words else {}
    for (option, variable), (value, _) in stated.items():
        if option == "env":
            found.setdefault("env", {})[variable] = value
        elif option != "keras":
            found[option] = value
    return PoolOptions(**found)


def missing(spec: PoolSpec, choices: Iterable[PluginChoice]) -> tuple[PluginChoice, ...]:
    """The plugins of a function that a pool of this spec lacks, or has with other options."""
    have = with_what_they_need(spec.framework)
    return tuple(each for each in choices if not _has(spec, have, each))


def _has(spec: PoolSpec, have: Mapping[str, str], choice: PluginChoice) -> bool:
    name, _, variant = choice.word.partition(":")
    is_ready = choice.word in ("mig", *known.OF_JOBS) or (
        name in have and variant in ("", have[name])
    )
    asked = choice.options
    has_env = (asked.env or {}).items() <= spec.variables.items()
    others = asked.without(["env"]).stated
    return is_ready and has_env and all(getattr(spec, n) == getattr(asked, n) for n in others)


def has_jobs(choices: Iterable[PluginChoice | Callable[[], PluginChoice]]) -> bool:
    """Whether joblib's jobs are to run on the ranks."""
    return any(_choice(each).word in known.OF_JOBS for each in choices)


def _choice(choice: Any) -> PluginChoice:
    """A plugin written with brackets, or without."""
    if isinstance(choice, PluginChoice):
        return choice
    for each in known.WITHOUT_ARGUMENTS:
        if choice is each:
            return each()
    shown = repr(choice) if isinstance(choice, str) else type(choice).__name__
    names = [
        f"{each.__name__}()" for each in known.WITHOUT_ARGUMENTS if each is not known.transformers
    ]
    raise OptionError(
        "plugins",
        f"plugins= takes sky.plugins.{', '.join(names)} and mig(profile), not {shown}",
    )


def _of_accelerator(
    accelerator: str | AcceleratorChoice | None,
) -> dict[_Place, tuple[Any, object]]:
    gpus = chosen_accelerator(accelerator)
    stated: dict[_Place, tuple[Any, object]] = {}
    if accelerator is not None:
        stated["accelerator", ""] = gpus and gpus.accelerator, gpus
    if gpus is not None and gpus.mig:
        stated["mig", ""] = gpus.mig, gpus
    return stated


def _of_choice(choice: PluginChoice) -> Iterator[tuple[_Place, Any]]:
    """The values of a plugin that another one may contradict."""
    name, _, variant = choice.word.partition(":")
    if name == "keras" and variant:
        yield ("keras", ""), variant
    for variable, text in (choice.options.env or {}).items():
        yield ("env", variable), text
    for option in choice.options.without(["env"]).stated:
        yield (option, ""), getattr(choice.options, option)
