"""The table of commands of `skyward-nb` and of what each takes, for reading and for help."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from skyward_nb.options.option_line import ParsedOptions, parse_words
from skyward_nb.options.option_table import BY_NAME, OPTIONS, TAKES, near_option
from skyward_nb.words.errors import OptionError
from skyward_nb.words.units import near_words

POOL = tuple(option.name for option in OPTIONS if option.scope == "pool" and option.name != "image")

SCRIPT = (*POOL, "stdout", "stderr", "timeout", "on_error", "profile", "quiet", "fetch", "folder")
"""What a script takes."""

RENTING = (
    "region", "zones", "user", "key", "ami", "subnet", "security_group", "public_ip", "jump", "caller", "tags", "disk",
    "instance_profile", "aws_profile", "python", "max_cost", "yes",
)  # fmt: skip
"""What a rehearsal takes: where and how to rent, and for how much."""


@dataclass(frozen=True)
class Command:
    """A command: its syntax, its purpose, its options, and the number of bare words it takes.

    If it has `words`, the bare words are among these.
    """

    form: str
    help: str
    takes: tuple[str, ...] = ()
    most_words: int = 0
    words: tuple[str, ...] = ()


# fmt: off
COMMANDS = {
    "status": Command("[NAME]", "live pools: their clients, runs and ranks", ("pool",), 1),
    "logs": Command("[RUN]", "output of a run; node=: logs of machines; runs: a list", TAKES["logs"], 1),
    "down": Command("[NAME ...] [all] [now]", "take pools down, with their ranks, values and files",
                    ("pool", "now"), sys.maxsize),
    "sweep": Command("[now]", "remove leftovers of dead pools: processes, values, machines", ("now",)),
    "bake": Command("[NAME] [remove]", "image of a machine, then the pool's end; alone: a list",
                    TAKES["bake"], 1),
    "check": Command("[hang] [option ...]", "devices, versions, reach, all-reduce; hang: where ranks are",
                     POOL, 1, ("hang",)),
    "run": Command("[option ...] SCRIPT [ARG ...]", "run a script on every rank of a pool, as torchrun does",
                   SCRIPT),
    "torchrun": Command("[option] SCRIPT [ARG ...]", "torchrun with its own options, on nodes of a pool", SCRIPT),
    "rehearse": Command("aws [ACT ...] [option ...]", "rent the smallest machines that show whether all works",
                        RENTING, sys.maxsize),
}
# fmt: on


def read(command: str, words: list[str]) -> ParsedOptions:
    """The options of a command line; raises `OptionError` for an unknown command or option."""
    if command not in COMMANDS:
        known = near_words(command, COMMANDS) or f": the commands are {', '.join(COMMANDS)}"
        what = f"there is no command {command!r}" if command else "a command is missing"
        raise OptionError(command, what + known)
    row = COMMANDS[command]
    try:
        asked = parse_words(
            words,
            scopes=("pool", "cell", "verb"),
            words=row.most_words,
            is_word=lambda word: word in row.words if row.words else _is_bare(word, row.takes),
        )
    except OptionError as error:
        if error.option in BY_NAME:
            raise
        known = near_words(error.option, (*row.takes, *row.words))
        raise OptionError(
            error.option,
            f"there is no option {error.option!r}{known or f'; skyward-nb {command} --help lists them'}",
        ) from None
    for option in asked.stated:
        if option not in row.takes:
            near = near_option(option, row.takes) or (
                f"; skyward-nb {command} --help lists its options"
            )
            raise OptionError(option, f"{option}= is not an option of this command{near}")
    return asked


def _is_bare(word: str, takes: tuple[str, ...]) -> bool:
    is_flag = word in takes and BY_NAME[word].is_flag
    return not (is_flag or word.startswith("-") or "=" in word)
