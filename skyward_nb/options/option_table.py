"""The option line of the magics: one table of options, and the grammar that reads them. Pure.

`key=value` and `--key value` mean the same; flags stand alone. Parsing, help and completion
all come from the table.
"""

from __future__ import annotations

import keyword
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from skyward_nb.words.accelerators import parse_accelerator
from skyward_nb.words.catalogue import KINDS
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import AUTO, WORDS, parse_frameworks
from skyward_nb.words.hosts import parse_host, read_port
from skyward_nb.words.image import read_python
from skyward_nb.words.masking import masked_text
from skyward_nb.words.mesh import parse_mesh
from skyward_nb.words.mig import MODELS, parse_mig
from skyward_nb.words.offers import parse_need
from skyward_nb.words.units import near_words, read_duration, read_size

Scope = Literal["pool", "cell", "verb"]


@dataclass(frozen=True)
class Option:
    """One option: how its value is written, read and explained; flags have no `form`."""

    name: str
    scope: Scope
    form: str
    help: str
    read: Callable[[str, str], Any] = lambda _option, text: text
    choices: tuple[str, ...] = ()

    @property
    def is_flag(self) -> bool:
        """Whether it stands alone."""
        return not self.form


def _count(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(option, f"{option}={text}: give a whole number of 1 or more")
    return int(text)


def _slots(option: str, text: str) -> int | None:
    return None if text == "auto" else _count(option, text)


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    wrong = [name for name in names if not name.isidentifier() or keyword.iskeyword(name)]
    if wrong or not names:
        bad = wrong[0] if wrong else text
        raise OptionError(option, f"{option}={text}: {bad!r} is no name of a variable")
    return names


def _name(option: str, text: str) -> str:
    names = _names(option, text)
    if len(names) != 1:
        raise OptionError(option, f"{option}={text}: give one name")
    (name,) = names
    return name


def _push(option: str, text: str) -> tuple[str, ...] | None:
    return None if text == "auto" else () if text == "none" else _names(option, text)


def _framework(_option: str, text: str) -> tuple[str, ...]:
    try:
        return parse_frameworks(text)
    except OptionError as error:
        near = "" if {",", ":"} & {*text} else near_words(text, (*WORDS, *AUTO))
        raise OptionError(error.option, f"{error.message}{near}") from None


def _env(option: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key:
            shown = masked_text(text)
            raise OptionError(
                option, f"{option}={shown}: write env=NAME=VALUE, several with commas"
            )
        found[key] = value
    return found


def _hosts(_option: str, text: str) -> tuple[str, ...]:
    """Hosts as they are written; a hostfile is read where a pool is made."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if "/" not in name and not name.startswith("@"):
            parse_host(name)
    return names


def _user(option: str, text: str) -> str:
    if not re.fullmatch(r"[^\s@:/\-][^\s@:/]*", text):
        raise OptionError(option, f"{option}={text}: {text!r} is no name of a user")
    return text


_BETWEEN = re.compile(r"\s+|,(?=[A-Za-z])(?![^\[]*\])")


def _packages(_option: str, text: str) -> tuple[str, ...]:
    """Requirements with spaces or commas between them: a comma in `numpy>=2,<3` is its own."""
    return tuple(part.strip(",") for part in _BETWEEN.split(text.strip()))


def _choice(*choices: str) -> Callable[[str, str], str]:
    def read(option: str, text: str) -> str:
        if text not in choices:
            known = ", ".join(choices)
            raise OptionError(
                option, f"{option}={text}: there is {known}{near_words(text, choices)}"
            )
        return text

    return read


def _pool_name(option: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,40}(-[0-9a-f]{6})?", text):
        raise OptionError(option, f"{option}={text}: use letters, digits, '-', '_' and '.'")
    return text


def _dollars(option: str, text: str) -> float:
    found = re.fullmatch(r"\$?(\d+(?:\.\d+)?)", text)
    if found is None:
        raise OptionError(option, f"{option}={text}: give a sum of dollars, such as {option}=5")
    return float(found[1])


def _regions(option: str, text: str) -> tuple[str, ...]:
    return _written(option, text, r"[a-z]{2,3}(-[a-z]+)+-\d", "us-east-1")


def _zones(option: str, text: str) -> tuple[str, ...]:
    return _written(option, text, r"[a-z]{2,3}(-[a-z0-9]+)+-\d[a-z]", "us-east-1a")


def _written(option: str, text: str, form: str, such_as: str) -> tuple[str, ...]:
    """Names with commas between them, each of a form."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not re.fullmatch(form, name):
            raise OptionError(option, f"{option}={text}: {name!r} is no such name as {such_as}")
    return names


def _called(form: str, such_as: str) -> Callable[[str, str], str]:
    """Reads a name that AWS has given."""

    def read(option: str, text: str) -> str:
        return _written(option, text.replace(",", ";"), form, such_as)[0]

    return read


_PROVIDERS = ("local", "ssh", "aws")
_SPOTS = ("no", "yes", "auto")
_ON_PREEMPT = ("tell", "replace")
_TRUSTS = ("known", "first")
_BACKENDS = ("auto", "gloo", "nccl")
_ON_ERROR = ("stop", "wait")
_GATHERS = ("all", "head", "none")

OPTIONS: tuple[Option, ...] = (
    Option("nodes", "pool", "N", "nodes of the pool (1)", _count),
    Option(
        "ranks_per_node", "pool", "auto|N", "ranks on each node: one per accelerator, or 1", _slots
    ),
    Option(
        "accelerator",
        "pool",
        "A100|A100:8|none",
        "accelerators on each node (none)",
        lambda _, text: parse_accelerator(text),
        (*(kind.name for kind in KINDS), "none"),
    ),
    Option(
        "mig",
        "pool",
        "3g.40gb",
        "a rank for each slice of accelerators, cut by MIG (none)",
        lambda _, text: parse_mig(text),
        (*dict.fromkeys(profile for model in MODELS for profile in model.profiles), "none"),
    ),
    Option("partition", "pool", "", "cut idle GPUs into such slices while the pool lives"),
    Option("simulate", "pool", "", "the same ranks, on CPU, where the accelerator is missing"),
    Option(
        "provider",
        "pool",
        "local|ssh|aws",
        "where nodes come from (ssh with hosts=, else local)",
        _choice(*_PROVIDERS),
        _PROVIDERS,
    ),
    Option("hosts", "pool", "a,me@b:22|@file", "hosts to log in to, by SSH: the nodes", _hosts),
    Option("user", "pool", "NAME", "who logs in to hosts (as OpenSSH's config says)", _user),
    Option("port", "pool", "22", "where hosts' sshd listens (as OpenSSH's config says)", read_port),
    Option("key", "pool", "FILE", "private key for hosts (as OpenSSH finds them)"),
    Option("config", "pool", "FILE", "of OpenSSH, to read instead of ~/.ssh/config"),
    Option(
        "trust",
        "pool",
        "known|first",
        "which host keys: of known_hosts, or the first, pinned (known)",
        _choice(*_TRUSTS),
        _TRUSTS,
    ),
    Option(
        "cpus", "pool", "8|8+", "processors of a machine that is rented; +: or more", parse_need
    ),
    Option("memory", "pool", "32|32+", "GB of memory of a machine that is rented", parse_need),
    Option(
        "region",
        "pool",
        "us-east-1,...",
        "where machines are rented; the next, where else (AWS's own)",
        _regions,
    ),
    Option("zones", "pool", "us-east-1a,...", "zones that they may be in, the best first", _zones),
    Option(
        "instance_type",
        "pool",
        "g6.xlarge",
        "the type of machines, instead of the cheapest that fits",
        _called(r"[a-z][a-z0-9\-]*\.[a-z0-9\-]+", "g6.xlarge"),
    ),
    Option(
        "spot",
        "pool",
        "no|yes|auto",
        "what may be taken back, for less; auto: if there is any (no)",
        _choice(*_SPOTS),
        _SPOTS,
    ),
    Option(
        "on_preempt",
        "pool",
        "tell|replace",
        "whether the next run gets another for one taken back (tell)",
        _choice(*_ON_PREEMPT),
        _ON_PREEMPT,
    ),
    Option(
        "max_cost", "pool", "5", "the pool ends itself when it has cost so many dollars", _dollars
    ),
    Option(
        "confirm_above",
        "pool",
        "5",
        "dollars an hour above which you are asked first (5)",
        _dollars,
    ),
    Option("yes", "pool", "", "rent machines without asking"),
    Option(
        "ami",
        "pool",
        "ami-...",
        "image of the machines (Ubuntu; with GPUs for deep learning)",
        _called(r"ami-[0-9a-f]{8,17}", "ami-0123456789abcdef0"),
    ),
    Option(
        "subnet",
        "pool",
        "subnet-...",
        "where in a network of your own they are (the default one)",
        _called(r"subnet-[0-9a-f]{8,17}", "subnet-0123456789abcdef0"),
    ),
    Option(
        "security_group",
        "pool",
        "sg-...",
        "who reaches them (you by SSH, and they each other)",
        _called(r"sg-[0-9a-f]{8,17}", "sg-0123456789abcdef0"),
    ),
    Option("aws_profile", "pool", "NAME", "of AWS's configuration (as AWS_PROFILE says)"),
    Option(
        "framework",
        "pool",
        "torch|keras:jax|auto|none",
        "readied on each rank; auto: by what is imported (none)",
        _framework,
        (*WORDS, *AUTO, "none"),
    ),
    Option(
        "backend",
        "pool",
        "auto|gloo|nccl",
        "of the framework's process group (auto)",
        _choice(*_BACKENDS),
        _BACKENDS,
    ),
    Option(
        "collective_timeout",
        "pool",
        "30m",
        "how long a collective of torch may take (torch's own)",
        read_duration,
    ),
    Option(
        "mesh",
        "pool",
        "fsdp:2,tp:2",
        "how ranks are arranged, for sky.mesh() and sky.parallelize()",
        lambda _, text: parse_mesh(text),
    ),
    Option("image", "pool", "NAME", "what nodes hold: an sky.Image of the notebook", _name),
    Option(
        "python",
        "pool",
        "3.12",
        "Python of the ranks (the notebook's)",
        lambda _, text: read_python(text),
    ),
    Option(
        "pip", "pool", '"torch numpy>=2"', "packages of the ranks, as pip takes them", _packages
    ),
    Option("apt", "pool", '"ffmpeg git"', "packages of Debian that nodes have", _packages),
    Option("env", "pool", "K=V,...", "environment variables of the ranks", _env),
    Option(
        "idle",
        "pool",
        "10m",
        "it ends so long after its last client (10m, elsewhere 30m)",
        read_duration,
    ),
    Option(
        "ttl", "pool", "4h", "the pool ends itself after so long, whatever it does", read_duration
    ),
    Option("keep", "pool", "", "the pool outlives its notebook or script, for `idle`"),
    Option(
        "heartbeat",
        "pool",
        "2s",
        "how long a machine may be silent; after three it is cut off",
        read_duration,
    ),
    Option(
        "grace",
        "pool",
        "2s",
        "how long stopped ranks may take before they are killed",
        read_duration,
    ),
    Option("pool", "pool", "NAME", "which pool (default)", _pool_name),
    Option("ranks", "cell", "all|head|0,2-3|::2", "ranks that run the cell (all)"),
    Option("out", "cell", "NAME", "bind the run's value to this name", _name),
    Option("pull", "cell", "a,b", "bring these names of the ranks", _names),
    Option(
        "gather",
        "cell",
        "all|head|none",
        "whose values come back (all)",
        _choice(*_GATHERS),
        _GATHERS,
    ),
    Option("push", "cell", "auto|none|a,b", "names to send (auto: what the cell needs)", _push),
    Option("stdout", "cell", "all|head|none|0,1", "ranks whose standard output is shown (all)"),
    Option("stderr", "cell", "all|head|none|0,1", "ranks whose standard error is shown (all)"),
    Option("text", "cell", "256kB", "most text of a run that the notebook keeps", read_size),
    Option("limit", "cell", "2GB", "most bytes a value may have to come back", read_size),
    Option(
        "timeout",
        "cell",
        "10m",
        "stop it after so long, and tell where each rank was",
        read_duration,
    ),
    Option(
        "on_error",
        "cell",
        "stop|wait",
        "what the others do when a rank fails (stop)",
        _choice(*_ON_ERROR),
        _ON_ERROR,
    ),
    Option("detach", "cell", "", "run in the background: the cell's value is a handle"),
    Option("dry_run", "cell", "", "show what would be sent, and send and run nothing"),
    Option(
        "profile",
        "cell",
        "comm",
        "time in collectives per rank, and traces of them (needs framework=torch)",
        _choice("comm"),
        ("comm",),
    ),
    Option("quiet", "cell", "", "show no picture unless something fails"),
    Option("as", "verb", "NAME", "what the notebook calls what it brings", _name),
    Option("run", "verb", "7", "which run, as its picture says (the last one)"),
    Option("rank", "verb", "all|head|0,2-3", "ranks whose output is wanted (all)"),
    Option("node", "verb", "all|0,2-3|gpu1", "machines: how they were readied, their agents' logs"),
    Option("lines", "verb", "N", "only so many of the last lines", _count),
    Option("save", "verb", "FILE", "write it to a file instead"),
)

TAKES = {
    "push": ("ranks", "pool"),
    "pull": ("ranks", "as", "gather", "limit", "pool"),
    "vars": ("ranks", "pool"),
    "attach": ("pool", "detach"),
    "logs": ("run", "rank", "node", "lines", "save", "pool"),
    "check": ("pool",),
    "cost": ("pool",),
}
"""Options of the verbs of `%sky` that take others than those that shape a pool."""

BY_NAME = {option.name: option for option in OPTIONS}


@dataclass(frozen=True)
class ParsedOptions:
    """What an option line asks for: only what was written, already read."""

    pool: dict[str, Any] = field(default_factory=dict)
    cell: dict[str, Any] = field(default_factory=dict)
    rest: tuple[str, ...] = ()


def _are_names(token: str) -> bool:
    return all(part.isidentifier() for part in token.split(","))


@lru_cache(maxsize=64)
def parse(
    line: str, *, scopes: tuple[Scope, ...] = ("pool", "cell"), words: int = 0
) -> ParsedOptions:
    """Read an option line; up to `words` bare words are allowed in `rest`. Do not change the answer.

    Raises `OptionError` for what is unknown, doubled, or has a value it cannot have.
    """
    return parse_words(_split(line), scopes=scopes, words=words)


def parse_words(
    tokens: Sequence[str],
    *,
    scopes: tuple[Scope, ...],
    words: int,
    is_word: Callable[[str], bool] = _are_names,
) -> ParsedOptions:
    """The same of a line that is split into words, as a shell does it; `is_word` tells bare ones."""
    found: dict[Scope, dict[str, Any]] = {"pool": {}, "cell": {}, "verb": {}}
    rest: list[str] = []
    for token, key, text in _pairs(tokens):
        option = BY_NAME.get(key)
        if len(rest) < words and is_word(token):
            rest.append(token)  # a variable may have the name of an option
            continue
        if option is None or option.scope not in scopes:
            raise OptionError(key, unknown_option(key, scopes))
        if text is None:
            raise OptionError(key, f"{key} needs a value: {key}={option.form}")
        if not text:
            raise OptionError(key, f"{key}= has no value: {option.form}")
        if key in found[option.scope]:
            raise OptionError(key, f"{key} is given twice")
        found[option.scope][key] = read_option(option, text)
    return ParsedOptions(found["pool"], {**found["cell"], **found["verb"]}, tuple(rest))


def split_off(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options that come first, and the rest: from the first word that can be none, or from `--`."""
    rest = list(tokens)
    options: list[str] = []
    while rest:
        word = rest[0]
        if word == "--":
            return options, rest[1:]
        key, equals, _ = _key_of(word)
        option = BY_NAME.get(key)
        if option is None and not (word.startswith("-") or (equals and key.isidentifier())):
            break
        takes_next = word.startswith("--") and not equals and option and not option.is_flag
        count = 2 if takes_next else 1
        options += rest[:count]
        del rest[:count]
    return options, rest


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=False)
    except ValueError as error:
        raise OptionError(line, f"the option line cannot be read: {error}") from None


def _key_of(token: str) -> tuple[str, str, str]:
    """(option's name, `=` or nothing, the value there) of a word."""
    key, equals, value = token.removeprefix("--").partition("=")
    return key.replace("-", "_"), equals, value


def _pairs(words: Iterable[str]) -> Iterator[tuple[str, str, str | None]]:
    """(token, option's name, its value as written) of each word; flags alone say yes.

    The value is None where there is none, which only an option with a form can lack.
    """
    tokens = deque(words)
    while tokens:
        token = tokens.popleft()
        key, equals, value = _key_of(token)
        option = BY_NAME.get(key)
        if equals or option is None:
            yield token, key, value
        elif option.is_flag:
            yield token, key, "yes"
        elif token.startswith("--") and tokens:
            yield token, key, tokens.popleft()
        else:
            yield token, key, None


def parse_settings(line: str) -> dict[str, str]:
    """Options of a line as written, each checked; `option=` alone has an empty text.

    Raises `OptionError` as `parse` does.
    """
    settings: dict[str, str] = {}
    for _, key, text in _pairs(_split(line)):
        option = BY_NAME.get(key)
        if option is None or option.scope == "verb":
            raise OptionError(key, unknown_option(key, ("pool", "cell")))
        if text is None:
            raise OptionError(key, f"{key} needs a value: {key}={option.form}")
        if text:
            read_option(option, text)
        settings[key] = text
    return settings


def read_option(option: Option, text: str) -> Any:
    """The value of an option as written; raises `OptionError`."""
    return _flag(option, text) if option.is_flag else option.read(option.name, text)


def _flag(option: Option, value: str) -> bool:
    if value.lower() in ("yes", "true", "1"):
        return True
    if value.lower() in ("no", "false", "0"):
        return False
    raise OptionError(option.name, f"{option.name} is a flag: write it alone, or =no")


def unknown_option(key: str, scopes: tuple[Scope, ...]) -> str:
    """What to say of an option that is not among those of `scopes`."""
    if key in BY_NAME and BY_NAME[key].scope == "verb":
        verb = next(verb for verb, taken in TAKES.items() if key in taken)
        return f"{key} belongs to %sky {verb}"
    if key in BY_NAME:
        return f"{key} belongs on a cell's line: %%sky_remote {key}=..."
    names = [option.name for option in OPTIONS if option.scope in scopes]
    near = near_words(key, names)
    return f"there is no option {key!r}{near or '; %sky help lists them'}"
