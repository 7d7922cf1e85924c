"""The commands there are, and what each takes: one table for reading and for help."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from skyward_nb.options.option_table import BY_NAME, OPTIONS, ParsedOptions, parse_words
from skyward_nb.words.errors import OptionError
from skyward_nb.words.units import near_words

POOL = tuple(option.name for option in OPTIONS if option.scope == "pool" and option.name != "image")


@dataclass(frozen=True)
class Command:
    """How a command is written, what it does, the options it takes, and how many bare words.

    Where it has `words` of its own, the bare ones are among these.
    """

    form: str
    help: str
    takes: tuple[str, ...] = ()
    most_words: int = 0
    words: tuple[str, ...] = ()


COMMANDS = {
    "status": Command(
        "[NAME]",
        "live pools: their clients, runs and ranks",
        ("pool",),
        most_words=1,
    ),
    "logs": Command(
        "[RUN]",
        "output of a run; node=: logs of machines; runs: a list",
        ("run", "rank", "node", "lines", "save", "pool"),
        most_words=1,
    ),
    "down": Command(
        "[NAME ...] [all]",
        "take pools down, with their ranks, values and files",
        ("pool",),
        most_words=sys.maxsize,
    ),
    "sweep": Command("", "remove leftovers of dead pools: processes, values, machines"),
    "check": Command(
        "[hang] [option ...]",
        "devices, versions, reach, all-reduce; hang: where ranks are",
        POOL,
        most_words=1,
        words=("hang",),
    ),
    "run": Command(
        "[option ...] SCRIPT [ARG ...]",
        "run a script on every rank of a pool, as torchrun does",
        (*POOL, "stdout", "stderr", "timeout", "on_error", "profile", "quiet"),
    ),
}


def read(command: str, words: list[str]) -> ParsedOptions:
    """What a line asks for; raises `OptionError` for what is no command, or no option of it."""
    if command not in COMMANDS:
        known = near_words(command, COMMANDS) or f": there is {', '.join(COMMANDS)}"
        what = f"there is no command {command!r}" if command else "a command is missing"
        raise OptionError(command, what + known)
    row = COMMANDS[command]
    try:
        asked = parse_words(
            words,
            scopes=("pool", "cell", "verb"),
            words=row.most_words,
            is_word=lambda word: word in row.words if row.words else _is_bare(word),
        )
    except OptionError as error:
        if error.option in BY_NAME:
            raise
        known = near_words(error.option, (*row.takes, *row.words))
        raise OptionError(
            error.option,
            f"there is no option {error.option!r}{known or f'; skyward-nb {command} --help lists them'}",
        ) from None
    for option in (*asked.pool, *asked.cell):
        if option not in row.takes:
            raise OptionError(
                option,
                f"{option}= is not an option of this command; skyward-nb {command} --help lists its options",
            )
    return asked


def _is_bare(word: str) -> bool:
    return not word.startswith("-") and "=" not in word
