"""Defaults of options, from weakest: the user's file, the project's, the environment, the kernel, the session.

    ~/.config/skyward_nb/config.toml    nodes = 4
    pyproject.toml, the nearest above   [tool.skyward]
                                        nodes = 4
    environment                         SKYWARD_NODES=4
    %sky on, a kernel's installation    nodes=4
    %sky config                         nodes=4

The option line is the strongest. A pool's defaults count when it is made.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import platformdirs
from msgspec import UNSET
from msgspec.structs import replace

from skyward_nb.options.host_access import with_provider
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.options.option_table import BY_NAME, unknown_option
from skyward_nb.options.rental_options import without_unused
from skyward_nb.words.errors import AcceleratorError, OptionError
from skyward_nb.words.masking import masked_setting
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec

_PREFIX = "SKYWARD_"


@dataclass(frozen=True)
class Default:
    """One default: the option's name, its text, and its source."""

    option: str
    text: str
    source: str


def defaults(
    folder: Path,
    environ: Mapping[str, str],
    session: Mapping[str, str],
    kernel: Iterable[Default] = (),
) -> list[Default]:
    """All defaults that hold in `folder`, the weakest first; an `OptionError` names the file."""
    found: list[Default] = []
    user = platformdirs.user_config_path("skyward_nb") / "config.toml"
    if user.is_file():
        found += _from_table(_toml(user), str(user))
    project = next(
        (p for f in (folder, *folder.parents) if (p := f / "pyproject.toml").is_file()), None
    )
    if project is not None:
        table = _toml(project).get("tool", {}).get("skyward", {})
        found += _from_table(table, f"{project} [tool.skyward]")
    for name in filter(_may_have_default, BY_NAME):
        variable = _PREFIX + name.upper()
        if text := environ.get(
            variable
        ):  # one that is empty was taken back, as by `%env SKYWARD_NODES=`
            found.append(Default(name, text, variable))
    found += kernel
    return found + [Default(name, text, "%sky config") for name, text in session.items()]


def with_defaults(asked: ParsedOptions, known: list[Default]) -> ParsedOptions:
    """Options completed by the defaults; the `OptionError` of a bad default names its source."""
    values: dict[str, object] = {}
    for default in known:
        try:
            values[default.option] = BY_NAME[default.option].value(default.text)
        except OptionError as error:
            raise OptionError(default.option, f"{error} (from {default.source})") from None
    weaker = ParsedOptions.of(values)
    pool = without_unused(with_provider(asked.pool).over(weaker.pool), asked.pool)
    return replace(asked, pool=pool, cell=asked.cell.over(weaker.cell))


def for_new_pool(asked: ParsedOptions, known: list[Default]) -> PoolOptions:
    """The options of a pool that is to be made; `simulate` as a default counts where GPUs are missing.

    That is on this machine. Raises what `with_defaults` raises.
    """
    pool = with_defaults(asked, known).pool
    if not pool.simulate or asked.pool.simulate is not UNSET:
        return pool
    is_here = pool.provider in (UNSET, "local")
    return (
        pool if is_here and pool.accelerator and _lacks_gpus(pool) else pool.without(["simulate"])
    )


@contextlib.contextmanager
def sources_told(stated: PoolOptions, known: Iterable[Default]) -> Generator[None]:
    """Have an `OptionError` about a new pool say which options that it names are defaults, and from where."""
    try:
        yield
    except OptionError as error:
        strongest = {default.option: default for default in known}
        told = [
            f"{name}={masked_setting(name, default.text)} is from {default.source}"
            for name, default in strongest.items()
            if name not in stated.stated and re.search(rf"\b{name}=", error.message)
        ]
        if not told:
            raise
        raise OptionError(error.option, f"{error.message} ({', '.join(told)})") from None


def _lacks_gpus(pool: PoolOptions) -> bool:
    """Whether this machine lacks the accelerators of a pool."""
    from skyward_nb.providers.local import LocalProvider  # seldom, and takes a moment

    shape = ("nodes", "accelerator", "mig", "partition", "ranks_per_node")
    asked = {name: value for name in shape if (value := getattr(pool, name)) is not UNSET}
    try:
        LocalProvider().check(PoolSpec(**asked))
    except AcceleratorError:
        return True
    return False


def _may_have_default(name: str) -> bool:
    return name in BY_NAME and BY_NAME[name].scope != "verb"


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise OptionError(str(path), f"{path} cannot be read: {error}") from None


def _from_table(table: Mapping[str, Any], source: str) -> Iterator[Default]:
    for key, value in table.items():
        name = key.replace("-", "_")
        if not _may_have_default(name):
            raise OptionError(key, f"{unknown_option(name, ('pool', 'cell'))} (from {source})")
        yield Default(name, _written(name, value), source)


def _written(name: str, value: object) -> str:
    """A TOML value as the text of an option."""
    match value:
        case bool():
            return "yes" if value else "no"
        case [list(), *_]:  # mesh = [[2, 2], ["fsdp", "tp"]]
            return msgspec.json.encode(value).decode()
        case list():
            return ",".join(map(str, value))
        case dict():
            sign = ":" if name == "mesh" else "="
            return ",".join(f"{key}{sign}{item}" for key, item in value.items())
        case _:
            return str(value)
