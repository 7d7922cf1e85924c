"""What plugins that are chosen as values ask of a pool, and whether one has it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from skyward_nb.options.accelerator_choices import AcceleratorChoice
from skyward_nb.options.accelerator_choices import chosen as chosen_accelerator
from skyward_nb.plugins import choices as known
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import with_what_they_need
from skyward_nb.words.spec import PoolSpec

_BARE = (
    known.torch,
    known.jax,
    known.keras,
    known.tensorflow,
    known.huggingface,
    known.transformers,
)
"""What may be written without brackets, too."""


def fields_of(
    choices: Iterable[PluginChoice | Callable[[], PluginChoice]] = (),
    accelerator: str | AcceleratorChoice | None = None,
) -> dict[str, Any]:
    """What plugins and accelerators ask of a pool, as `specs.spec_of` takes it; empty for none.

    Raises `OptionError` where two contradict one another, naming both, and for what is neither.
    """
    given: Any = choices
    if not isinstance(given, Iterable):
        raise OptionError("plugins", f"plugins= takes a list: plugins=[{given!r}]")
    chosen = tuple(map(_choice, choices))
    said = _of_accelerator(accelerator)
    for each in chosen:
        for place, value in _said(each):
            before, by = said.setdefault(place, (value, each))
            if before != value:
                raise OptionError("plugins", f"{by!r} and {each!r} say different things")
    words = dict.fromkeys(each.word for each in chosen if each.word != "mig")
    if any(word.startswith("keras:") for word in words):
        words.pop("keras", None)
    found: dict[str, Any] = {"framework": tuple(words)} if words else {}
    for (name, key), (value, _) in said.items():
        if name == "env":
            found.setdefault("env", {})[key] = value
        elif name != "keras":
            found[name] = value
    return found


def missing(spec: PoolSpec, choices: Iterable[PluginChoice]) -> tuple[PluginChoice, ...]:
    """Those plugins of a function that a pool of this spec does not ready, or readies otherwise."""
    have = with_what_they_need(spec.framework)
    return tuple(each for each in choices if not _has(spec, have, each))


def _has(spec: PoolSpec, have: Mapping[str, str], choice: PluginChoice) -> bool:
    name, _, variant = choice.word.partition(":")
    is_readied = choice.word == "mig" or (name in have and variant in ("", have[name]))
    return is_readied and all(
        getattr(spec, field) == value if field != "env" else value.items() <= spec.variables.items()
        for field, value in choice.fields.items()
    )


def _choice(choice: Any) -> PluginChoice:
    """A plugin that is written with its brackets, or without."""
    if isinstance(choice, PluginChoice):
        return choice
    for each in _BARE:
        if choice is each:
            return each()
    shown = repr(choice) if isinstance(choice, str) else type(choice).__name__
    raise OptionError(
        "plugins",
        f"plugins= takes sky.plugins.torch(), jax(), keras(), tensorflow(), huggingface() and "
        f"mig(profile), not {shown}",
    )


def _of_accelerator(
    accelerator: str | AcceleratorChoice | None,
) -> dict[tuple[str, str], tuple[Any, object]]:
    gpus = chosen_accelerator(accelerator)
    said: dict[tuple[str, str], tuple[Any, object]] = {}
    if accelerator is not None:
        said["accelerator", ""] = gpus and gpus.accelerator, gpus
    if gpus is not None and gpus.mig:
        said["mig", ""] = gpus.mig, gpus
    return said


def _said(choice: PluginChoice) -> Iterable[tuple[tuple[str, str], Any]]:
    """What a plugin says, of which another one can say something else."""
    name, _, variant = choice.word.partition(":")
    if name == "keras" and variant:
        yield ("keras", ""), variant
    for key, value in choice.fields.items():
        if key == "env":
            yield from ((("env", name), text) for name, text in value.items())
        else:
            yield (key, ""), value
