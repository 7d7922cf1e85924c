"""Readers that turn the text of an option into its value; each raises `OptionError`. Pure."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import AUTO, WORDS, parse_frameworks
from skyward_nb.words.hosts import TRUST, parse_host
from skyward_nb.words.masking import masked_text
from skyward_nb.words.provider_access import CURRENT, is_container_image
from skyward_nb.words.spec import Simulate
from skyward_nb.words.units import near_words, read_size
from skyward_nb.workdir.patterns import read_pattern

_MOST_NUMBERS = 10_000
Reader = Callable[[str, str], Any]
"""Reads (option's name, text)."""

_BETWEEN = re.compile(r"\s+|,(?=[A-Za-z])(?![^\[]*\])")


def plain(_option: str, text: str) -> str:
    """The text itself."""
    return text


def alone(parse: Callable[[str], Any]) -> Reader:
    """A reader made of a function that takes the text alone."""
    return lambda _option, text: parse(text)


def matching(form: str, why: str) -> Reader:
    """A reader of texts of this form; `why` has the words for another `text`."""

    def read(option: str, text: str) -> str:
        if not re.fullmatch(form, text):
            raise OptionError(option, f"{option}={text}: {why.format(option=option, text=text)}")
        return text

    return read


far_folder: Reader = matching(
    r"(/|~/|\$[A-Za-z_])([\w./~@%+=,-]|\$[A-Za-z_])*",
    "name a folder there by its whole path, as in {option}=/scratch/$USER, or {option}=~/big",
)
"""A folder on a machine elsewhere; its shell knows `~/` and variables there."""

slurm_name: Reader = matching(r"(?!-)[^\s'\"\\;|<>$`]+", "{text!r} is not a name that Slurm takes")
"""A word of Slurm's, as its commands take it."""

job: Reader = matching(rf"{CURRENT}|\d+", "write {option}=current, or the id of your job")
"""`current`, or the id of a job."""

address: Reader = matching(
    r"(?!-)(auto|(ray://)?([A-Za-z0-9_.\-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})",
    "write {option}=auto, {option}=ray://HOST:10001, or {option}=HOST:6379 from one of the cluster's nodes",
)
"""The address of a Ray cluster: `auto`, `ray://HOST:10001`, or `HOST:6379` from one of its nodes."""

infra: Reader = matching(
    r"[a-z][a-z0-9]*(/[A-Za-z0-9_.:@*\-]+){0,3}",
    "write a cloud, or CLOUD/REGION: {option}=gcp/us-central1",
)
"""A place to rent machines at, as SkyPilot writes it: `gcp`, `gcp/us-central1`, `k8s/my-context`."""

kubernetes_name: Reader = matching(
    r"[a-z0-9]([a-z0-9.\-]{0,61}[a-z0-9])?",
    "{text!r} is not a name that Kubernetes takes: lower-case letters, digits, '-' and '.', at most 63",
)
"""A name as Kubernetes takes it: RFC 1123's, of at most 63 characters."""

resource_name: Reader = matching(
    r"[a-z0-9.\-]+/[A-Za-z0-9._\-]+", "{text!r} is not a name like nvidia.com/mig-1g.10gb"
)
"""The name of a resource of Kubernetes' nodes, as `nvidia.com/gpu`."""

container_image: Reader = matching(
    r"[A-Za-z0-9][A-Za-z0-9._\-/:@]*",
    "name a sky.Image of the notebook, or for provider=kubernetes a container image, such as "
    "{option}=python:3.12-slim",
)
"""A container image, as `nvcr.io/nvidia/pytorch:25.01-py3`, `me/torch@sha256:...`."""

user: Reader = matching(r"[^\s@:/\-][^\s@:/]*", "{text!r} is not a user name")
"""The name of a user on a host."""

_name_of_a_pool: Reader = matching(
    r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,40}(-[0-9a-f]{6})?", "use letters, digits, '-', '_' and '.'"
)


def pool_name(option: str, text: str) -> str:
    """The name of a pool, or its id."""
    if text in ("all", "now"):
        raise OptionError(
            option,
            f"{option}={text}: give it another name, as `%sky down {text}` is about all pools",
        )
    return _name_of_a_pool(option, text)


def flag(option: str, text: str) -> bool:
    """`yes` or `no`."""
    if text.lower() in ("yes", "true", "1"):
        return True
    if text.lower() in ("no", "false", "0"):
        return False
    raise OptionError(option, f"{option} is a flag: write it alone, or =no")


def simulation(option: str, text: str) -> Simulate:
    """`yes`, `cuda`, or "" for `no`."""
    if text.lower() == "cuda":
        return "cuda"
    try:
        return "yes" if flag(option, text) else ""
    except OptionError:
        raise OptionError(
            option, f"{option}={text}: write it alone, or {option}=cuda, or {option}=no"
        ) from None


def partition(option: str, text: str) -> bool | str:
    """Whether GPUs are cut; or the name of a partition of Slurm."""
    try:
        return flag(option, text)
    except OptionError:
        return slurm_name(option, text)


def slurm_names(option: str, text: str) -> tuple[str, ...]:
    """Such words, with commas between them."""
    return tuple(slurm_name(option, name) for name in _parts(text))


def resources(option: str, text: str) -> tuple[tuple[str, float], ...]:
    """Resources by Ray's names, each with an amount: `TPU:4,slow_disk:0.5`."""
    found: dict[str, float] = {}
    for part in _parts(text):
        name, _, amount = part.rpartition(":")
        if not name or not re.fullmatch(r"\d+(\.\d+)?", amount) or not float(amount):
            raise OptionError(option, f"{option}={text}: write {option}=NAME:AMOUNT, such as TPU:4")
        if name in _OTHER_WAYS:
            raise OptionError(
                option, f"{option}={text}: write {_OTHER_WAYS[name]} to ask for {name}"
            )
        found[name] = float(amount)
    return tuple(found.items())


_OTHER_WAYS = {"CPU": "cpus=4", "memory": "memory=32"}


def context(option: str, text: str) -> str:
    """The name of a context of kubectl, which may have any form; an option of kubectl is none."""
    if text.startswith("-") or not text.isprintable() or " " in text:
        raise OptionError(
            option,
            f"{option}={text}: {text!r} is not a context: `kubectl config get-contexts -o name` lists them",
        )
    return text


def image(option: str, text: str) -> str:
    """The name of a variable, or a container image: one of those has a `:`, `/` or `@`."""
    return container_image(option, text) if is_container_image(text) else variable(option, text)


def arguments(option: str, text: str) -> tuple[str, ...]:
    """Arguments of a command, as a shell splits them."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise OptionError(option, f"{option}={text}: {error}") from None
    for word in words:
        if not word.startswith("-"):
            raise OptionError(
                option, f"{option}={text}: {word!r} is not an argument: write --name=value"
            )
    return words


def choice(choices: Sequence[str]) -> Reader:
    """A reader of one of these words."""

    def read(option: str, text: str) -> str:
        if text not in choices:
            known = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
            raise OptionError(option, f"{option}={text}: choose {known}{near_words(text, choices)}")
        return text

    return read


def trust(option: str, text: str) -> tuple[str, ...]:
    """Words of `TRUST`, with commas between them, of which `known` and `first` exclude each other."""
    words = tuple(map(partial(choice(TRUST), option), _parts(text) or ("",)))
    if {"known", "first"} <= {*words}:
        raise OptionError(option, f"{option}={text}: host keys are known ones, or the first")
    return words


def size_or_none(option: str, text: str) -> int | None:
    """Bytes; None for `none`."""
    return None if text.lower() == "none" else read_size(option, text)


def count_or_none(option: str, text: str) -> int | None:
    """A whole number of 1 or more; None for `none`."""
    return None if text.lower() == "none" else count(option, text)


def count(option: str, text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(option, f"{option}={text}: give a whole number of 1 or more")
    return int(text)


def slots(option: str, text: str) -> int | None:
    """A count, or None for `auto`."""
    return None if text == "auto" else count(option, text)


def dollars(option: str, text: str) -> float:
    """A sum such as `5` or `$5`."""
    found = re.fullmatch(r"\$?(\d+(?:\.\d+)?)", text)
    if found is None:
        raise OptionError(option, f"{option}={text}: give a sum of dollars, such as {option}=5")
    return float(found[1])


def variables(option: str, text: str) -> tuple[str, ...]:
    """Names of variables, with commas between them."""
    names = _parts(text)
    wrong = [name for name in names if not name.isidentifier() or keyword.iskeyword(name)]
    if wrong or not names:
        bad = wrong[0] if wrong else text
        raise OptionError(option, f"{option}={text}: {bad!r} is not a variable name")
    return names


def variable(option: str, text: str) -> str:
    """The name of one variable."""
    names = variables(option, text)
    if len(names) != 1:
        raise OptionError(option, f"{option}={text}: give one name")
    return names[0]


def push(option: str, text: str) -> tuple[str, ...] | None:
    """Names of variables, none for `none`; None for `auto`."""
    return None if text == "auto" else () if text == "none" else variables(option, text)


def frameworks(_option: str, text: str) -> tuple[str, ...]:
    """Words of `frameworks.WORDS`, or `AUTO`."""
    try:
        return parse_frameworks(text)
    except OptionError as error:
        near = "" if {",", ":"} & {*text} else near_words(text, (*WORDS, *AUTO))
        raise OptionError(error.option, f"{error.message}{near}") from None


def env(option: str, text: str) -> dict[str, str]:
    """`NAME=VALUE`, several with commas between them."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        shown = masked_text(text)
        raise OptionError(option, f"{option}={shown}: write env=NAME=VALUE, several with commas")
    return {name: value for name, _, value in pairs}


def packages(_option: str, text: str) -> tuple[str, ...]:
    """Requirements, with spaces or commas between them: a comma in `numpy>=2,<3` is its own."""
    return tuple(part.strip(",") for part in _BETWEEN.split(text.strip()))


def hosts(_option: str, text: str) -> tuple[str, ...]:
    """Hosts as written; a hostfile is read when a pool is made."""
    names = _parts(text)
    for name in names:
        if "/" not in name and not name.startswith("@"):
            parse_host(name)
    return names


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Numbers and ranges of them, with commas between: `3-7,9`."""
    found: list[int] = []
    for part in _parts(text) or ("",):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise OptionError(option, f"{option}={text}: give numbers, such as {option}=3-7,9")
        found += range(int(first), int(last or first) + 1)
        if len(found) > _MOST_NUMBERS or int(last or first) < int(first):
            raise OptionError(option, f"{option}={text}: {part} is not a range of numbers")
    return tuple(dict.fromkeys(found))


def paths(option: str, text: str) -> tuple[str, ...]:
    """Patterns of paths in a folder, with commas between them."""
    return tuple(read_pattern(option, each) for each in _parts(text) or ("",))


def aws_names(form: str, example: str) -> Reader:
    """A reader of AWS's names of this form, with commas between them."""

    def read(option: str, text: str) -> tuple[str, ...]:
        names = _parts(text)
        for name in names or (text,):
            if not re.fullmatch(form, name):
                raise OptionError(option, f"{option}={text}: {name!r} is not a name like {example}")
        return names

    return read


def aws_name(form: str, example: str) -> Reader:
    """A reader of one of AWS's names."""
    read = aws_names(form, example)
    return lambda option, text: read(option, text.replace(",", ";"))[0]


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
