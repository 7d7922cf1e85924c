"""The shape of a mesh as a script has it: a list, a text, or the value of a key of its configuration or its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from skyward_nb.words.errors import OptionError
from skyward_nb.words.mesh import Axes, parse_mesh


def read_shape(shape: Any, config: Any, argv: Sequence[str]) -> Axes:
    """The axes that `shape` means, a key of `config` or else of `argv`; raises ValueError."""
    if not isinstance(shape, str):
        return _axes(shape, "the shape of sky.mesh")
    if ":" in shape or shape.lstrip().startswith("["):
        return _axes(shape, "sky.mesh")
    if config is not None:
        return _axes(_within(config, shape), shape)
    found = [value for key, value in _pairs(argv[1:]) if key == shape]
    if not found:
        raise ValueError(
            f"sky.mesh({shape!r}): no argument of the script is {shape}=...: write "
            f'{shape}=[[2,2],["fsdp","tp"]] there, or give config='
        )
    return _axes(found[-1], shape)


def _within(config: Any, key: str) -> Any:
    """The value of `a.b.c` in nested mappings, or in what OmegaConf makes of them."""
    value = config
    for number, part in enumerate(parts := key.split(".")):
        try:
            value = value[part]
        except (KeyError, TypeError, AttributeError, IndexError):
            where = ".".join(parts[:number]) or "config"
            raise ValueError(f"sky.mesh({key!r}): {where} has no {part}") from None
    return value


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(key, value) of `key=value` as Hydra takes it, of `--key=value`, and of `--key value`."""
    for number, word in enumerate(words):
        key, equals, value = word.partition("=")
        is_dashed = key.startswith("--")
        if not equals and is_dashed and number + 1 < len(words):
            value = words[number + 1]
        yield (key[2:] if is_dashed else key.lstrip("+")), value


def _axes(value: Any, key: str) -> Axes:
    text = value
    if not isinstance(value, str):
        try:
            sizes, names = value
            text = f"[[{','.join(map(str, sizes))}],[{','.join(map(str, names))}]]"
        except (TypeError, ValueError):
            text = repr(value)
    try:
        return parse_mesh(text)
    except OptionError as error:
        raise ValueError(f"{key}: {error.message.removeprefix('mesh=')}") from None
