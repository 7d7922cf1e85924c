"""The grammar of option lines of the magics and of `skyward-nb`, and the options that they state. Pure.

`key=value` and `--key value` mean the same; flags stand alone.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_table import (
    BY_NAME,
    NAMES_A_POOL,
    RUN_TAKES,
    TAKES,
    Option,
    Scope,
    unknown_option,
)
from skyward_nb.options.synonyms import ALIASES
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.units import is_unit


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `%sky logs` and `skyward-nb logs`, which select output; unstated ones are empty.

    Raises `OptionError` for options of a run beside `node`, and for `follow` beside another destination.
    """

    run: str = ""
    rank: str = ""
    node: str = ""
    lines: int | None = None
    save: str = ""
    follow: bool = False

    def __post_init__(self) -> None:
        for option, value in (("run", self.run), ("rank", self.rank)):
            if value and self.node:
                raise OptionError(
                    option,
                    f"{option}={value} selects the output of a run, and node={self.node} that of "
                    "machines: state one of them",
                )
        if self.follow and (self.node or self.save):
            other = "node" if self.node else "save"
            raise OptionError(
                "follow", f"follow prints the output of a run as it comes: leave out {other}="
            )

    @property
    def stated(self) -> tuple[str, ...]:
        """The names of the options that are stated."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name))


class ParsedOptions(msgspec.Struct, frozen=True):
    """The options that a line states of a pool, a run and logs; `rest` are its bare words."""

    pool: PoolOptions = PoolOptions()
    cell: CellOptions = CellOptions()
    logs: LogOptions = LogOptions()
    rest: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any], rest: Iterable[str] = ()) -> ParsedOptions:
        """From values by the names of their options."""
        pool = {name: value for name, value in values.items() if BY_NAME[name].scope == "pool"}
        logs = {
            name: value for name, value in values.items() if name in LogOptions.__struct_fields__
        }
        cell = {name: values[name] for name in values if name not in (*pool, *logs)}
        return cls(PoolOptions(**pool), CellOptions.of(cell), LogOptions(**logs), tuple(rest))

    @property
    def stated(self) -> tuple[str, ...]:
        """The names of the options that are stated."""
        return (*self.pool.stated, *self.cell.stated, *self.logs.stated)


_COMMENT = re.compile(r"(?:^|\s)#")
_NUMBER = re.compile(r"\d+(\.\d+)?")


def _are_names(token: str) -> bool:
    return all(part.isidentifier() for part in token.split(","))


def _is_a_name(token: str) -> bool:
    return "=" not in token and not token.startswith("-") and token not in BY_NAME


@lru_cache(maxsize=64)
def parse(
    line: str, *, scopes: tuple[Scope, ...] = ("pool", "cell"), words: int = 0
) -> ParsedOptions:
    """Read an option line with up to `words` bare words.

    Raises `OptionError` for an option that is unknown, is stated twice, or has no such value.
    """
    return parse_words(split_line(line), scopes=scopes, words=words)


def parse_verb(verb: str, line: str, *, words: int = 0) -> ParsedOptions:
    """Read the line of a verb of `%sky`; raises `OptionError` for options that the verb does not take.

    Of a verb that names a pool, a bare word is its name; `%sky down all` (or `--all`) has a word of its own.
    """
    taken = TAKES[verb]
    scopes: tuple[Scope, ...] = tuple(
        dict.fromkeys(("pool", *(BY_NAME[option].scope for option in taken)))
    )
    if verb in NAMES_A_POOL:
        given = split_line(line)
        if verb == "down":
            given = ["all" if word in ("--all", "-a") else word for word in given]
        asked = parse_words(given, scopes=scopes, words=1, is_word=_is_a_name)
        if asked.rest and (verb, asked.rest) != ("down", ("all",)):
            if asked.pool.name is not None:
                raise OptionError("pool", f"pool= is given twice: {asked.rest[0]}")
            (name,) = asked.rest
            name = BY_NAME["pool"].value(name)
            asked = msgspec.structs.replace(asked, pool=asked.pool.changed(pool=name), rest=())
    elif verb == "bake":
        asked = parse_words(split_line(line), scopes=scopes, words=1, is_word=_is_a_name)
    else:
        asked = parse(line, scopes=scopes, words=words)
    for option in asked.stated:
        if option not in taken:
            names = ", ".join(f"{each}=" for each in taken)
            only = f", only {names}" if names else ": this takes no options"
            raise OptionError(option, f"{option}= is not an option here{only}")
    return asked


def parse_script(line: str) -> tuple[ParsedOptions, list[str]]:
    """Read the line of `%sky run`: its options, and the words from the script on; raises `OptionError`."""
    options, rest = split_off(split_line(line))
    return of_script(options), rest


def of_script(words: Sequence[str], takes: Sequence[str] = RUN_TAKES) -> ParsedOptions:
    """Read the options of a pool, and those of a run that scripts take; raises `OptionError`."""
    asked = parse_words(words, scopes=("pool", "cell", "verb"), words=0)
    for option in (*asked.cell.stated, *asked.logs.stated):
        if option not in takes:
            why = (
                "which has no names of the notebook" if option != "ranks" else "which runs on nodes"
            )
            raise OptionError(option, f"{option}= is not an option of a script, {why}")
    if asked.cell.out and not asked.cell.detach:
        raise OptionError(
            "out", "a script has no value: out= names the handle of one that runs with detach"
        )
    return asked


def parse_words(
    tokens: Sequence[str],
    *,
    scopes: tuple[Scope, ...],
    words: int,
    is_word: Callable[[str], bool] = _are_names,
) -> ParsedOptions:
    """`parse` of a line that is split into words, as a shell does it; `is_word` recognizes bare words."""
    found: dict[str, Any] = {}
    rest: list[str] = []
    for token, key, text in _pairs(tokens):
        if len(rest) < words and is_word(token):
            rest.append(token)  # a variable may have the name of an option
            continue
        if rest and is_word is _are_names and key not in BY_NAME and _are_names(token):
            raise OptionError(
                token, f"names have commas between them: write {','.join(rest)},{token}"
            )
        option, text = _known(key, text, scopes)
        if not text:
            raise OptionError(key, f"{key}= has no value: {option.form}")
        if key in found:
            raise OptionError(key, f"{key} is given twice")
        found[key] = option.value(text)
    return ParsedOptions.of(found, rest)


def parse_settings(line: str) -> dict[str, str]:
    """The options of a line as texts, each checked; `option=` alone has an empty text.

    Raises `OptionError` as `parse` does.
    """
    settings: dict[str, str] = {}
    for _, key, text in _pairs(split_line(line)):
        option, settings[key] = _known(key, text, ("pool", "cell"))
        if text:
            option.value(text)
    return settings


def split_off(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """(options, rest): the rest begins at the first word that is no option, or after `--`.

    Raises `OptionError` where that word is the unit of the number before it: `timeout=2 s train.py`.
    """
    rest = list(tokens)
    options: list[str] = []
    last: list[str] = []
    while rest:
        word = rest[0]
        if word == "--":
            return options, rest[1:]
        if word == "-m":  # and the name of a module
            break
        key, equals, _ = _key_of(word)
        option = BY_NAME.get(key)
        if option is None and not (word.startswith("-") or (equals and key.isidentifier())):
            _joined((*last, word))
            break
        takes_next = word.startswith("-") and not equals and option and not option.is_flag
        count = 2 if takes_next else 1
        last = ["=".join(rest[:count])]
        options += rest[:count]
        del rest[:count]
    return options, rest


def words_without(words: Sequence[str], names: Iterable[str]) -> list[str]:
    """The options of a line but these, as `key=value`; words that are no options are left out, too."""
    left_out = {*names}
    return [
        f"{key}={text}"
        for _, key, text in _pairs(words)
        if key in BY_NAME and key not in left_out and text is not None
    ]


def split_line(line: str) -> list[str]:
    """The words of a line, as a shell splits it, without a comment; raises `OptionError` for a quote that is open."""
    for begun in _COMMENT.finditer(line):
        with contextlib.suppress(ValueError):  # it stands within quotes
            return shlex.split(line[: begun.start()])
    try:
        return shlex.split(line)
    except ValueError as error:
        raise OptionError(line, f"the option line cannot be read: {error}") from None


def _known(key: str, text: str | None, scopes: tuple[Scope, ...]) -> tuple[Option, str]:
    """(option, text) of a key; raises `OptionError` if either is missing."""
    option = BY_NAME.get(key)
    if option is None or option.scope not in scopes:
        raise OptionError(key, unknown_option(key, scopes))
    if text is None:
        raise OptionError(key, f"{key} needs a value: {key}={option.form}")
    return option, text


def _key_of(token: str) -> tuple[str, str, str]:
    """(option's name, `=` or nothing, value) of a word."""
    key, equals, value = token.removeprefix("--").partition("=")
    name = key if key in ALIASES else key.replace("-", "_")
    return ALIASES.get(name, name), equals, value


def _joined(words: Iterable[str]) -> deque[str]:
    """The words, of which `nodes = 2`, `nodes= 2` and `nodes =2` are one.

    Raises `OptionError` for a unit that stands apart from its number, as in `memory_limit=2 GB`.
    """
    found: deque[str] = deque()
    for word in words:
        key, equals, value = _key_of(found[-1]) if found else ("", "", "")
        is_open = key in BY_NAME and not value
        if is_open and (word.startswith("=") if not equals else _key_of(word)[0] not in BY_NAME):
            word = found.pop() + word
        elif (
            _NUMBER.fullmatch(value) and key in BY_NAME and BY_NAME[key].has_unit and is_unit(word)
        ):
            raise OptionError(
                key, f"{key}={value} {word}: write it without a space, {key}={value}{word}"
            )
        found.append(word)
    return found


def _pairs(words: Iterable[str]) -> Iterator[tuple[str, str, str | None]]:
    """(token, option's name, text) of each option; a flag alone has the text `yes`.

    The text is None for an option that needs a value and has none.
    """
    tokens = _joined(words)
    while tokens:
        token = tokens.popleft()
        key, equals, value = _key_of(token)
        option = BY_NAME.get(key)
        if equals or option is None:
            yield token, key, value
        elif option.is_flag:
            yield token, key, "yes"
        elif token.startswith("-") and tokens:
            yield token, key, tokens.popleft()
        else:
            yield token, key, None
